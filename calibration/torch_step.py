"""Steps of a model's shapes from plain torch operations with random weights: what a GPU takes for them.

One layer is norm, QKV, attention over its KV, output projection, norm, gated MLP; then the LM head over the rows that
are sampled, and their argmax. Weights of every layer are there, so that reads are real; KV of a step lies in a pool
whose regions the layers take in turn, so that caches do not keep what a real pool would not. KV is contiguous a
sequence, not paged, and the kernels are torch's: an engine with better ones is faster, which the source says.
On a GPU steps are captured as CUDA graphs and timed with events: kernels alone, launches hidden.
"""

from __future__ import annotations

import importlib
from typing import Any

from calibration.measure import Unmeasurable
from calibration.measure_http import round_trips_ns
from calibration.measure_machine import machine
from calibration.measure_run import Limit, RunResult, closed_loop
from calibration.models import ModelShape
from calibration.plan import Point, RunPoint
from calibration.torch_timing import CpuTiming, CudaTiming, Timing
from traces.errors import InputError

# Shapes small enough for a dry run on a CPU: every operation, no weight worth the name.
TINY = ModelShape("tiny", 2, 64, 8, 2, 16, 128, 512, 1 << 20)
_POOL_SHARE = 0.6
_TINY_POOL_BYTES = 64 << 20


def load_torch() -> Any:
    """Return torch; raises InputError where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise InputError(
            "--backend torch: torch is not installed; install the extra: pip install 'foreserve[kernels]'"
        ) from None


class TorchBackend:
    """Measures steps of one dense model on one device. Holds weights and a KV pool until it is dropped.

    device   "cuda" (bfloat16) or "cpu" (float32, for dry runs)
    """

    def __init__(self, shape: ModelShape, device: str = "cuda") -> None:
        torch = load_torch()
        if shape.experts:
            raise InputError(
                f"--model {shape.name}: the torch backend has dense layers only; use --backend vllm"
            )
        if device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: torch sees no CUDA device; --device cpu is a dry run")
        self.torch, self.shape, self.device = torch, shape, device
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.name = f"torch {torch.__version__} {shape.name} {device}"
        self.timing: Timing = CudaTiming(torch) if device == "cuda" else CpuTiming(torch)
        self._layers = [self._weights() for _ in range(shape.layers)]
        self._embedding = self._random(shape.vocab, shape.hidden)
        self._head = self._embedding if shape.tied_embeddings else self._random(shape.vocab, shape.hidden)
        self._ones = torch.ones(shape.hidden, device=device, dtype=self.dtype)
        pool_bytes = _TINY_POOL_BYTES
        if device == "cuda":
            pool_bytes = int(_POOL_SHARE * torch.cuda.mem_get_info()[0])
        self._pool = torch.empty(pool_bytes // self.dtype.itemsize, device=device, dtype=self.dtype).normal_()

    def machine(self) -> dict[str, Any]:
        """Return the host, the model and how steps are made."""
        device = self.torch.cuda.get_device_name() if self.device == "cuda" else "cpu"
        return {
            **machine(),
            "backend": self.name,
            "device": device,
            "cuda": self.torch.version.cuda,
            "model": self.shape.name,
            "precision": str(self.dtype).removeprefix("torch."),
            "steps": "plain torch operations, contiguous KV, CUDA graphs; engine rows: this module's own host loop",
        }

    def refuses(self, point: Point) -> str | None:
        """Return why the point cannot be measured: no GPU for it, or more KV than the pool holds."""
        if self.device == "cpu" and (point.kind == "graph" or point.loaded):
            return f"{point.kind} needs a CUDA device"
        if point.kind in ("copy", "graph", "idle"):
            return None
        tokens = (
            max(sum(point.contexts()), point.prefix_tokens + point.new_tokens)
            + point.batch * point.new_tokens
        )
        need = 2 * tokens * self.shape.kv_heads * self.shape.head_dim
        if need > self._pool.numel():
            return f"KV of one layer takes {need * self.dtype.itemsize >> 20} MiB, the pool holds less"
        return None

    def measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
        """Return quantity -> repetitions; raises Unmeasurable where the device cannot (out of memory, no kernel)."""
        try:
            with self.torch.inference_mode():
                return self._measure(point, repetitions)
        except RuntimeError as e:
            # Torch's own errors are RuntimeErrors; a capture that failed leaves memory behind.
            self.timing.forget()
            raise Unmeasurable(str(e).splitlines()[0]) from None

    def run(self, run: RunPoint, budget: Limit) -> RunResult:
        """Run the loop on measured steps; decode steps replay graphs that are kept, chunks are launched."""
        with self.torch.inference_mode():
            return closed_loop(run, self._step_ns, budget)

    def _step_ns(self, point: Point) -> int:
        keep = point.key if point.kind == "decode" else ""
        return self.timing.once_ns(lambda: self._step(point), keep)

    def _measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
        if point.kind == "idle":
            return {"client": round_trips_ns(repetitions)}
        if point.kind == "graph":
            return self.timing.graph(point.nodes, repetitions)
        if point.kind == "copy":
            load = (lambda: self._step(Point("E", "decode", 64, 1, 1024))) if point.loaded else None
            times = self.timing.copies_ns(point.size_bytes, point.mode == "to_device", repetitions, load)
            return {"copy": times}
        if point.mode:
            from calibration.torch_host import host_loop_ns

            return {"engine": host_loop_ns(self, point, repetitions)}
        return {"step": self.timing.times_ns(lambda: self._step(point), repetitions)}

    def step_on(self, point: Point, ids: Any) -> Any:
        """Run one decode step on given token ids, int64[batch] on the device; return the next ones, int64[batch]."""
        return self._step(point, ids)

    def _step(self, point: Point, ids: Any = None) -> Any:
        """Run one step; return the sampled token ids, int64[sequences] on the device."""
        torch, functional, shape = self.torch, self.torch.nn.functional, self.shape
        chunk = point.new_tokens if point.kind in ("prefill", "mixed") else 0
        chunks = point.batch if point.kind == "prefill" else int(point.kind == "mixed")
        queries = 0 if point.kind == "prefill" else (point.new_tokens if point.kind == "verify" else 1)
        decoding = 0 if point.kind == "prefill" else point.batch
        rows = decoding * queries + chunks * chunk
        if ids is None:
            ids = torch.zeros(rows, dtype=torch.int64, device=self.device)
        x = functional.embedding(ids, self._embedding)
        at = 0
        heads, kv_heads, width = shape.heads, shape.kv_heads, shape.head_dim
        for qkv_weight, out_weight, up_weight, down_weight in self._layers:
            h = functional.rms_norm(x, (shape.hidden,), self._ones)
            qkv = functional.linear(h, qkv_weight).view(rows, heads + 2 * kv_heads, width)
            q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
            parts = []
            row = 0
            for count, context in self._groups(point) if decoding else []:
                part = slice(row, row + count * queries)
                out, at = self._attend(q[part], k[part], v[part], count, queries, context, at, causal=False)
                parts.append(out)
                row += count * queries
            for _ in range(chunks):
                part = slice(row, row + chunk)
                keys = point.prefix_tokens + chunk
                out, at = self._attend(q[part], k[part], v[part], 1, chunk, keys, at, causal=True)
                parts.append(out)
                row += chunk
            attended = parts[0] if len(parts) == 1 else torch.cat(parts)
            x = x + functional.linear(attended, out_weight)
            h = functional.rms_norm(x, (shape.hidden,), self._ones)
            gate, up = functional.linear(h, up_weight).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, down_weight)
        last = list(range(decoding * queries)) + [
            decoding * queries + (i + 1) * chunk - 1 for i in range(chunks)
        ]
        sampled = (
            x
            if len(last) == rows
            else torch.cat([x[: decoding * queries], x[last[decoding * queries] :: chunk]])
        )
        return functional.linear(
            functional.rms_norm(sampled, (shape.hidden,), self._ones), self._head
        ).argmax(-1)

    def _attend(
        self, q: Any, k: Any, v: Any, count: int, queries: int, keys: int, at: int, *, causal: bool
    ) -> tuple[Any, int]:
        """Write the new keys and values behind `keys` - `queries` old ones, attend; return rows and the next region."""
        bias = importlib.import_module("torch.nn.attention.bias")
        kv_heads, width = self.shape.kv_heads, self.shape.head_dim
        size = count * kv_heads * keys * width
        if at + 2 * size > self._pool.numel():
            at = 0
        shape = (count, kv_heads, keys, width)
        ks, vs = (self._pool[at + i * size : at + (i + 1) * size].view(shape) for i in range(2))
        new = (count, queries, kv_heads, width)
        ks[:, :, keys - queries :] = k.reshape(new).transpose(1, 2)
        vs[:, :, keys - queries :] = v.reshape(new).transpose(1, 2)
        qs = q.reshape(count, queries, self.shape.heads, width).transpose(1, 2)
        mask = bias.causal_lower_right(queries, keys) if causal and keys > queries else None
        out = self.torch.nn.functional.scaled_dot_product_attention(
            qs, ks, vs, attn_mask=mask, is_causal=causal and mask is None, enable_gqa=True
        )
        return out.transpose(1, 2).reshape(count * queries, self.shape.heads * width), at + 2 * size

    def _groups(self, point: Point) -> list[tuple[int, int]]:
        """Return (sequences, keys) of the decoding part; a skewed batch has two groups."""
        grouped: dict[int, int] = {}
        queries = point.new_tokens if point.kind == "verify" else 1
        for context in point.contexts():
            keys = max(context, queries)
            grouped[keys] = grouped.get(keys, 0) + 1
        return [(count, keys) for keys, count in grouped.items()]

    def _weights(self) -> tuple[Any, Any, Any, Any]:
        s = self.shape
        qkv = self._random((s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden)
        out = self._random(s.hidden, s.heads * s.head_dim)
        return qkv, out, self._random(2 * s.intermediate, s.hidden), self._random(s.hidden, s.intermediate)

    def _random(self, rows: int, columns: int) -> Any:
        # Small weights keep activations finite; times do not depend on them.
        weight = self.torch.empty(rows, columns, device=self.device, dtype=self.dtype)
        return weight.normal_(0.0, 0.02)
