"""What the rest of the campaign stands on, in one process: what is here, and whether a profiled
step has kernels.

Arguments: device, network, file that gets a row for each finding. Leaves `device.json` beside it.
The exit code is 1 where a profiled step has no kernels.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import scripts

from curvescope.base.torch_runtime import import_torch
from curvescope.gpu_checks import check_gpus
from curvescope.profiling.hardware.cuda_driver import CudaDriver
from curvescope.profiling.hardware.limits import match_device
from curvescope.profiling.hardware.nvml import driver_version
from curvescope.profiling.hardware.stream_clock import stream_clock
from curvescope.profiling.measure.visit import record_step
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

_PACKAGES = (
    "torch",
    "triton",
    "cupy-cuda13x",
    "numba",
    "numba-cuda",
    "numpy",
    "pandas",
    "pyarrow",
    "nvidia-cuda-cupti",
)
_TOOLS = ("ncu", "nvidia-smi", "nvcc")
_BATCH = 8
KERNELS = "kernels of a profiled step"


def describe(device: str) -> dict[str, Any]:
    """The device, its key in devices.toml, and the software."""
    facts = import_torch().cuda.get_device_properties(device)
    capability = f"{facts.major}.{facts.minor}"
    listed = match_device(facts.name, capability)
    return {
        "name": facts.name,
        "key": None if listed is None else listed.key,
        "compute_capability": capability,
        "sm_count": facts.multi_processor_count,
        "memory_bytes": facts.total_memory,
        "driver": driver_version(),
        "cuda": CudaDriver().version(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _installed(name))},
        "tools": {name: shutil.which(name) for name in _TOOLS},
    }


def profiled_step(device: str, network: str) -> Iterator[tuple[str, bool, str]]:
    """What a profiled step and the clock of its stream say: name, whether it is right, and the
    figures.
    """
    workload = Workload(get_network(network), device)
    workload.load(_BATCH)
    for _ in range(3):
        workload.time_step()
    clock = stream_clock(device)
    if clock is not None:
        clock.begin()
        workload.time_step()
    clock_hz = clock.end() if clock else None
    yield "clock of the stream", clock_hz is not None, f"{clock_hz or 0:.4g} Hz"
    for what in (
        KERNELS,
        "the same of a second one",
    ):  # the first one of a process starts the profiler
        kernels, calls = (rows := record_step(workload)).kernels, rows.api_calls
        placed = {
            name: sum(row.get(name) is not None for row in kernels) for name in ("op", "layer")
        }
        with_them = f"{placed['op']} with an operator, {placed['layer']} with a layer"
        yield what, bool(kernels), f"{len(kernels)} kernels, {with_them}; {len(calls)} API calls"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def findings(device: str, network: str) -> Iterator[tuple[str, bool, str]]:
    """The profiled step first, then what `doctor` says; one that breaks is a finding, too."""
    for what, look in (
        ("profiled step", lambda: profiled_step(device, network)),
        ("driver", lambda: ((one.name, one.found, one.detail) for one in check_gpus())),
    ):
        try:
            yield from look()
        except Exception as error:  # of any library
            traceback.print_exc()
            yield what, False, f"broke: {type(error).__name__}: {error}"


def main() -> int:
    device, network, path = sys.argv[1:]
    Path(path).with_name("device.json").write_text(json.dumps(describe(device), indent=1))
    kernels = False
    for what, found, detail in findings(device, network):
        scripts.add_row(path, {"what": what, "found": found, "detail": detail})
        kernels |= found and what == KERNELS
    return int(not kernels)


if __name__ == "__main__":
    scripts.run(main)
