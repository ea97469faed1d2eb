"""Runs a step of a configuration whose kernels are counted:
`main(CONFIGURATION, BATCH[, CAPABILITY, FILE])`.

One step runs inside an NVTX start/end range, for a tool that counts its kernels; the range spans
all threads, as torch launches the backward pass from another one. With the further arguments the
process counts the kernels itself, by CUPTI's range profiler, and writes the file: JSON with
`kernels` and `flops_counted`. The configuration is JSON, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.own_process import python_command
from ..attribution.counted_kernels import GEOMETRY
from ..attribution.cupti_names import GPU_COPIES
from ..collect.range_profiler import KernelCounts, RangeProfiler
from ..hardware.cuda_driver import CudaDriver
from ..workload.any_workload import AnyWorkload
from .configuration import Configuration
from .visit import record_step, warm_up_profiler

RANGE = "curvescope.counted"
# besides the first: libraries choose their algorithms in the first steps of a size
_WARM_UP_STEPS = 2


def command(configuration: Configuration, batch: int, *more: str) -> list[str]:
    """The command that runs the step in a process of its own; `more` are further arguments, see
    above.
    """
    return python_command(__name__, "main", json.dumps(asdict(configuration)), batch, *more)


def run_marked(workload: AnyWorkload, batch: int) -> None:
    """Run one step in the range, after a warm-up outside it."""
    import nvtx

    _warm_up(workload, batch)
    marked = nvtx.start_range(RANGE)
    workload.time_step()
    nvtx.end_range(marked)


def count_step(
    workload: AnyWorkload,
    batch: int,
    count: Callable[[Callable[[], object]], KernelCounts],
    list_kernels: Callable[[AnyWorkload], list[dict[str, Any]]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Count the kernels of a step, which runs several times, and list the kernels of one more step.

    `count` counts the kernels which another function launches each time. `list_kernels` runs a step
    and returns a row with name, grid and block of each of its kernels, in the order of the
    launches. Where their numbers differ, it is unknown which kernel a count is of: an error.

    Returns:
        The rows with the counted columns, and the precisions in the counted FLOPs.
    """
    _warm_up(workload, batch)
    counts = count(workload.time_step)
    # Last: torch's profiler, which lists them, stays attached to CUPTI.
    kernels = list_kernels(workload)
    if len(kernels) != len(counts.columns):
        raise CurvescopeError(
            f"CUPTI counted {counted(len(counts.columns), 'kernel')} in a step in which torch's "
            f"profiler saw {len(kernels)}."
        )
    rows = [
        {name: kernel.get(name) for name in ("name", *GEOMETRY)} | columns
        for kernel, columns in zip(kernels, counts.columns, strict=True)
    ]
    return rows, counts.flops_counted


def _warm_up(workload: AnyWorkload, batch: int) -> None:
    workload.try_step(batch)
    for _ in range(_WARM_UP_STEPS):
        workload.time_step()


def _count_here(
    workload: AnyWorkload, batch: int, capability: str | None
) -> tuple[list[dict[str, Any]], list[str]]:
    import torch

    device = torch.device(workload.device)

    def count(run: Callable[[], object]) -> KernelCounts:
        with torch.cuda.device(device):
            return RangeProfiler().count_kernels(
                capability, device.index or 0, CudaDriver().current_context(), run
            )

    return count_step(workload, batch, count, _list_kernels)


def _list_kernels(workload: AnyWorkload) -> list[dict[str, Any]]:
    """The kernels of one step in the order of their launches, by torch's profiler."""
    warm_up_profiler(workload)
    kernels = [
        row for row in record_step(workload).kernels if not row["name"].startswith(GPU_COPIES)
    ]
    return sorted(kernels, key=lambda row: row["correlation_id"])


def main(configuration: str, batch: str, *more: str) -> None:
    """Run the step that the arguments name; an error of it is the last line on standard error."""
    try:
        workload = msgspec.json.decode(configuration, type=Configuration).build()
        if not more:
            run_marked(workload, int(batch))
            return
        capability, path = more
        kernels, flops_counted = _count_here(workload, int(batch), capability or None)
        Path(path).write_text(json.dumps({"kernels": kernels, "flops_counted": flops_counted}))
    except CurvescopeError as error:
        sys.exit(str(error))
