"""GPU datasheets: the only hardware facts that a roofline needs.

`memory_bytes` is what the CUDA runtime reports as total (it is what vLLM multiplies by
gpu_memory_utilization), which is less than the marketing figure. Rates are dense (no sparsity), with FP32
accumulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from traces.errors import InputError, nearest

_GIB = 1 << 30
_TERA = 10**12


@dataclass(frozen=True)
class Gpu:
    """One GPU model.

    memory_bytes       total memory the runtime reports
    bytes_per_s        datasheet HBM or GDDR bandwidth
    bf16_flop_per_s    dense, FP32 accumulation
    fp8_flop_per_s     dense; 0 where the tensor cores have no fp8
    pcie_bytes_per_s   assumed effective host-link bandwidth, one direction
    nvlink             all GPUs of a server reach each other over NVLink
    tables             prefix of this GPU's kernel tables, empty where none were published
    nearest            tables prefix of the GPU whose efficiency stands in where `tables` is empty
    datasheet          name of the file it was read from, empty for a listed GPU
    """

    key: str
    title: str
    memory_bytes: int
    bytes_per_s: int
    bf16_flop_per_s: int
    fp8_flop_per_s: int
    pcie_gen: int
    pcie_bytes_per_s: int
    nvlink: bool
    tables: str = ""
    nearest: str = ""
    datasheet: str = ""

    def flop_per_s(self, precision: str) -> int:
        """Return dense FLOP/s of the matrix multiplies at `precision` (mxfp4 weights multiply in bf16)."""
        return self.fp8_flop_per_s if precision in ("fp8", "fp8_block") else self.bf16_flop_per_s


# Effective host-link bandwidth is an assumption until measured: gen 4 about 25 GB/s, gen 5 50 to 55 GB/s.
_GEN4, _GEN5 = 25 * 10**9, 52 * 10**9

GPUS: dict[str, Gpu] = {
    g.key: g
    for g in (
        Gpu("H200", "NVIDIA H200 SXM 141GB", int(139.8 * _GIB), 4800 * 10**9, 989 * _TERA, 1978 * _TERA,
            5, _GEN5, True, tables="h200_sxm"),
        Gpu("H100", "NVIDIA H100 SXM 80GB", int(79.1 * _GIB), 3350 * 10**9, 989 * _TERA, 1978 * _TERA,
            5, _GEN5, True, tables="h100_sxm"),
        Gpu("A100", "NVIDIA A100 SXM 80GB", int(79.2 * _GIB), 2039 * 10**9, 312 * _TERA, 0,
            4, _GEN4, True, tables="a100_sxm"),
        Gpu("RTX4090", "NVIDIA GeForce RTX 4090", int(23.6 * _GIB), 1008 * 10**9, 165 * _TERA, 330 * _TERA,
            4, _GEN4, False, tables="rtx4090"),
        Gpu("A6000", "NVIDIA RTX A6000", int(47.5 * _GIB), 768 * 10**9, 155 * _TERA, 0,
            4, _GEN4, False, nearest="rtx4090"),
        Gpu("L40S", "NVIDIA L40S", int(44.4 * _GIB), 864 * 10**9, 362 * _TERA, 733 * _TERA,
            4, _GEN4, False, nearest="rtx4090"),
        Gpu("RTXPRO6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", int(94.9 * _GIB), 1597 * 10**9,
            500 * _TERA, 1000 * _TERA, 5, _GEN5, False, nearest="rtx4090"),
    )
}  # fmt: skip


def gpu(key: str) -> Gpu:
    """Return the datasheet of `key`, whatever its case and dashes; raises InputError with the nearest."""
    plain = key.upper().replace("-", "").replace("_", "").replace(" ", "")
    if plain in GPUS:
        return GPUS[plain]
    raise InputError(nearest(key, GPUS, what="gpu"))
