"""How many programs of a kernel fit on one multiprocessor at once: an inactive program, too, waits for its place.

Limits per compute capability are those of the CUDA C++ Programming Guide, table "Technical Specifications".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor has for all of its programs."""

    registers: int = 65536
    warps: int = 64
    programs: int = 32
    shared_bytes: int = 0
    shared_bytes_program: int = 0
    reserved_bytes: int = 1024


MULTIPROCESSORS = {
    90: Multiprocessor(shared_bytes=228 << 10, shared_bytes_program=227 << 10),
    80: Multiprocessor(shared_bytes=164 << 10, shared_bytes_program=163 << 10),
}
_REGISTERS_GRAIN = 256
_SHARED_GRAIN = 128


def resident(arch: int, registers: int, warps: int, shared_bytes: int) -> int:
    """Return the programs that one multiprocessor holds at once; 0 where one does not fit.

    registers      a thread; handed out to warps in grains of 256
    shared_bytes   a program; the system reserves 1 KiB beside it

    >>> resident(90, registers=166, warps=4, shared_bytes=98304)
    2
    """
    has = MULTIPROCESSORS[arch]
    if shared_bytes > has.shared_bytes_program:
        return 0
    a_warp = -(-registers * 32 // _REGISTERS_GRAIN) * _REGISTERS_GRAIN
    shared = -(-(shared_bytes + has.reserved_bytes) // _SHARED_GRAIN) * _SHARED_GRAIN
    by_registers = has.registers // a_warp // warps
    return min(has.programs, has.warps // warps, by_registers, has.shared_bytes // shared)
