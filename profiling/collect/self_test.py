"""The collector's self-test: empty kernels of the driver, recorded in a process of its own, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import BackendMissingError
from ..hardware.cuda_driver import KERNEL_NAME, CudaDriver
from .inject import record

_LAUNCHES = 1000
_LIMIT_S = 60


@dataclass(frozen=True)
class SelfTest:
    """What the collector recorded.

    Attributes:
        launched: number of launched kernels.
        recorded: number of them in the recording.
        with_geometry: number of recorded kernels with grid, block and registers.
        seconds: duration of the recorded block.
        status: `recording`, or the reason why the collector did not record.
        cupti_path: path of the libcupti that was taken; None for none.
        cupti_version: API version of that libcupti; None if unknown.
    """

    launched: int
    recorded: int
    with_geometry: int
    seconds: float
    status: str
    cupti_path: str | None
    cupti_version: int | None

    @property
    def passed(self) -> bool:
        """Whether every kernel was recorded with its geometry."""
        return self.status == "recording" and self.launched == self.recorded == self.with_geometry


def run_self_test() -> SelfTest:
    """Run the self-test in a process of its own, so that this one has no profiler attached.

    Raises:
        BackendMissingError: the process failed, e.g. because its device is in use exclusively.
    """
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)  # noqa: S603 - this module
    except subprocess.TimeoutExpired as error:
        raise BackendMissingError(f"it did not end within {_LIMIT_S} s") from error
    if done.returncode:
        raise BackendMissingError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return SelfTest(**json.loads(done.stdout.splitlines()[-1]))


def _test_this_process() -> SelfTest:
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder, CudaDriver().empty_kernel() as launch:
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


if __name__ == "__main__":
    print(json.dumps(asdict(_test_this_process())))
