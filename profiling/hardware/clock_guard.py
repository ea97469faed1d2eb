"""Unlocks the SM clock of a GPU when the process that locked it is gone, even by a kill that nobody
can catch.

`main("cuda:N")`, in a process of its own, prints a line when it is ready, and waits for the end
of its standard input, which that process keeps open. A line there says that the clock is unlocked.
"""

from __future__ import annotations

import subprocess
import sys

from ...base.errors import CurvescopeError
from ...base.own_process import python_command
from .nvml import find_device

_DONE = b"unlocked\n"


def start_guard(device: str) -> subprocess.Popen[bytes]:
    """Start the guard of `cuda:N`, which no signal to this process's group reaches;
    CurvescopeError: it did not.
    """
    guard = subprocess.Popen(  # noqa: S603 (this Python)
        python_command(__name__, "main", device),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert guard.stdout is not None
    if not guard.stdout.readline():
        guard.wait()
        raise CurvescopeError(
            f"the clock of {device} is not locked: the process that would unlock it after a kill "
            "did not start"
        )
    return guard


def end_guard(guard: subprocess.Popen[bytes]) -> None:
    """Tell the guard that the clock is unlocked, and wait until it has ended."""
    guard.communicate(_DONE)


def main(device: str) -> None:
    """Run the guard of a device."""
    gpu = find_device(device)
    print("ready", flush=True)
    if sys.stdin.buffer.read() != _DONE:
        gpu.library.nvmlDeviceResetGpuLockedClocks(gpu.handle)
