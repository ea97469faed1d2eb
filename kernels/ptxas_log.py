"""What ptxas says of the kernels it assembled (`-v`), which alone tells spills from other local memory."""

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
    """One kernel's lines. Bytes are per thread, shared memory per block.

    Attributes:
        stack_frame_bytes: local memory per thread.
        spill_store_bytes: of the instructions that store registers for which there was no room.
        spill_load_bytes: of those that load them back.
        registers_per_thread: allocated.
        shared_bytes: static.
        constant_bytes: bank to bytes; not said from sm_90 on.
    """

    stack_frame_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    registers_per_thread: int
    shared_bytes: int
    constant_bytes: dict[int, int]


def read_ptxas_log(log: str) -> dict[str, PtxasReport]:
    """Kernel to what ptxas says of it; kernels of which it does not say everything are left out.

    Args:
        log: of ptxas -v, nvcc -Xptxas -v or NVRTC with --ptxas-options=-v.
    """
    found = {}
    _, *parts = _ENTRY.split(log)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        frame, used, shared = _FRAME.search(text), _USED.search(text), _SHARED.search(text)
        if frame and used:
            found[name] = PtxasReport(
                stack_frame_bytes=int(frame[1]),
                spill_store_bytes=int(frame[2]),
                spill_load_bytes=int(frame[3]),
                registers_per_thread=int(used[1]),
                shared_bytes=int(shared[1]) if shared else 0,
                constant_bytes={int(bank): int(size) for size, bank in _CONSTANT.findall(text)},
            )
    return found
