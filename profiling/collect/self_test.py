"""Self-tests of collector and counters: empty kernels of the driver in processes of their own,
without torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base.errors import BackendMissingError, CurvescopeError
from ...base.own_process import python_command
from ..hardware.cuda_driver import KERNEL_NAME, CudaDriver
from .inject import record
from .range_profiler import RangeProfiler

_LAUNCHES = 1000
_COUNTED = 10
_LIMIT_S = 60


@dataclass(frozen=True)
class SelfTest:
    """What the collector recorded."""

    launched: int  # number of launched kernels
    recorded: int  # number of them in the recording
    with_geometry: int  # number of recorded kernels with grid, block and registers
    seconds: float  # duration of the recorded block
    status: str  # `recording`, or the reason why the collector did not record
    cupti_path: str | None  # path of the libcupti that was taken; None for none
    cupti_version: int | None  # API version of that libcupti; None if unknown

    @property
    def has_passed(self) -> bool:
        """Whether every kernel was recorded with its geometry."""
        return self.status == "recording" and self.launched == self.recorded == self.with_geometry


def run_self_test() -> SelfTest:
    """Run the self-test in a process of its own, so that this one has no profiler;
    BackendMissingError if it fails.
    """
    return SelfTest(**_run())


def run_counter_test(cupti_path: str) -> int:
    """How many of ten empty kernels CUPTI's range profiler counts in its own process;
    BackendMissingError: none.
    """
    return int(_run(cupti_path)["counted"])


def _run(*words: str) -> dict[str, Any]:
    """What this module prints as JSON in a process of its own."""
    command = python_command(__name__, "main", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)  # noqa: S603 - this module
    except subprocess.TimeoutExpired as error:
        raise BackendMissingError(f"it did not end within {_LIMIT_S} s") from error
    if done.returncode:
        raise BackendMissingError(
            (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _test_this_process() -> SelfTest:
    with (
        tempfile.TemporaryDirectory(prefix="curvescope-") as folder,
        CudaDriver().empty_kernel() as launch,
    ):
        launch()  # what the first launch prepares is no part of the test
        began_s = time.monotonic()
        with record(Path(folder, "recording")) as recording:
            for _ in range(_LAUNCHES):
                launch()
        seconds = time.monotonic() - began_s
        kernels = recording.frame("kernels")
        kernels = kernels[kernels["name"] == KERNEL_NAME]
        geometry = kernels[["grid_x", "block_x", "registers_per_thread"]].notna().all(axis=1)
        facts = recording.meta["collectors"][0]
        return SelfTest(
            _LAUNCHES,
            len(kernels),
            int(geometry.sum()),
            seconds,
            str(facts.get("cupti_status")),
            facts.get("cupti_path"),
            facts.get("cupti_version"),
        )


def _count_in_this_process(cupti_path: str) -> dict[str, Any]:
    driver = CudaDriver()
    with driver.empty_kernel() as launch:

        def run() -> None:
            for _ in range(_COUNTED):
                launch()
            driver.synchronize()

        capability = driver.describe(0)["compute_capability"]
        context = driver.current_context()
        counts = RangeProfiler(cupti_path).count_kernels(capability, 0, context, run)
    return {"counted": sum("sm_cycles" in columns for columns in counts.columns)}


def main(*words: str) -> None:
    """In the process of a test: print its result as JSON."""
    try:
        print(json.dumps(_count_in_this_process(*words) if words else asdict(_test_this_process())))
    except CurvescopeError as error:
        sys.exit(str(error))
