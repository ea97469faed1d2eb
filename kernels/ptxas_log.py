"""Reads the ptxas log (`-v`), the only source that separates spills from other local memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[(\d+)\]")


@dataclass(frozen=True)
class PtxasReport:
    """Resources of one kernel. Bytes are per thread, for shared memory per block.

    Attributes:
        stack_frame_bytes: local memory per thread.
        spill_store_bytes: bytes stored by spills, i.e. by instructions that store registers to local memory.
        spill_load_bytes: bytes loaded back by spills.
        registers_per_thread: allocated registers.
        shared_bytes: static shared memory.
        constant_bytes: bytes by constant bank; ptxas omits them from sm_90 on.
    """

    stack_frame_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    registers_per_thread: int
    shared_bytes: int
    constant_bytes: dict[int, int]


def read_ptxas_log(log: str) -> dict[str, PtxasReport]:
    """Report of each kernel; kernels with an incomplete report are omitted.

    Args:
        log: output of ptxas -v, nvcc -Xptxas -v or NVRTC with --ptxas-options=-v.
    """
    reports = {}
    _, *parts = _ENTRY.split(log)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        frame, used, shared = _FRAME.search(text), _USED.search(text), _SHARED.search(text)
        if frame and used:
            reports[name] = PtxasReport(
                stack_frame_bytes=int(frame[1]),
                spill_store_bytes=int(frame[2]),
                spill_load_bytes=int(frame[3]),
                registers_per_thread=int(used[1]),
                shared_bytes=int(shared[1]) if shared else 0,
                constant_bytes={int(bank): int(size) for size, bank in _CONSTANT.findall(text)},
            )
    return reports
