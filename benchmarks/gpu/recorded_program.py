"""A program with every kind of GPU work that the collector must read: what it runs, for raw buffers
of CUPTI.

Arguments: any of `driver` (an empty kernel by cuLaunchKernel, without torch), `graph` (a CUDA
graph, captured once and replayed twice), `streams` (two products on two streams at once), `copy`
(one pinned cudaMemcpyAsync each way), `pageable` (one copy from pageable memory), `processes`
(`streams` in two processes at once) and `profiler` (`streams` before, under and after
torch.profiler), or `blocks DIR` (two `curvescope.record()` blocks in one process, each with a
kernel by the driver and a replayed graph).
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scripts

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.profiling.attribution.range_names import STEP_RANGE
from curvescope.profiling.hardware.cuda_driver import CudaDriver

_SIZE = 512


def driver() -> None:
    with CudaDriver().empty_kernel() as launch:
        launch()


def graph() -> None:
    _, replay = _captured()
    replay()
    replay()


def streams() -> None:
    torch = _torch()
    a = torch.randn(_SIZE, _SIZE, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    b = a @ a
    with torch.cuda.stream(side):
        c = a @ a
    torch.cuda.current_stream().wait_stream(side)
    (b + c).sum()
    torch.cuda.synchronize()


def copy() -> None:
    """A copy to the device and back, each by cudaMemcpyAsync."""
    torch = _torch()
    host = torch.ones(1 << 20).pin_memory()
    device = host.to("cuda", non_blocking=True)
    host.copy_(device, non_blocking=True)
    torch.cuda.synchronize()


def pageable() -> None:
    """A copy to the device from memory that is not pinned."""
    torch = _torch()
    torch.ones(1 << 20).to("cuda")
    torch.cuda.synchronize()


def processes() -> None:
    """The same in two processes, whose work shares the device."""
    both = [subprocess.Popen([sys.executable, __file__, "streams"]) for _ in range(2)]
    codes = [process.wait() for process in both]
    if any(codes):
        raise CurvescopeError("a process failed")


def profiler() -> None:
    """A profiler of another that takes CUPTI for a while, and gives it back."""
    torch = _torch()
    streams()
    with torch.profiler.profile() as profiler:
        streams()
    print(
        "torch.profiler saw "
        f"{sum('CUDA' in str(event.device_type) for event in profiler.events())} events"
    )
    streams()


def blocks(folder: Path) -> None:
    import curvescope

    torch, replay = _captured()
    for number in (1, 2):
        with curvescope.record(folder / f"block-{number}"):
            driver()
            replay()
            torch.cuda.synchronize()


def _captured() -> tuple[Any, Callable[[], None]]:
    torch = _torch()
    a = torch.randn(_SIZE, _SIZE, device="cuda")
    (a @ a).sum()  # cuBLAS makes its workspace outside the capture
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        (a @ a).sum()
    torch.cuda.synchronize()
    return torch, captured.replay


def _torch() -> Any:
    from curvescope.base.torch_runtime import import_torch

    torch = import_torch()
    if not torch.cuda.is_available():
        raise BackendMissingError("This torch has no CUDA device.")
    return torch


PARTS: dict[str, Callable[[], None]] = {
    part.__name__: part for part in (driver, graph, streams, copy, pageable, processes, profiler)
}


def main() -> int:
    import nvtx

    words = sys.argv[1:]
    if words[0] == "blocks":
        blocks(Path(words[1]))
        return 0
    broke = False
    for name in words:
        with nvtx.annotate(f"{STEP_RANGE}:batch size=1"), nvtx.annotate(name):
            try:
                PARTS[name]()
            except Exception:  # the records of the other parts are worth having
                traceback.print_exc()
                broke = True
    return int(broke)


if __name__ == "__main__":
    scripts.run(main)
