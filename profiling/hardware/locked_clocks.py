"""Locks the SM clock of a GPU for a while, and unlocks it whatever happens.

Nothing else in Curvescope changes a setting of a GPU, and this does only for `--lock-clocks`: a
locked clock holds for all who use the GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...base.endings import end_like_ctrl_c
from ...base.errors import BackendMissingError, CurvescopeError
from .clock_guard import end_guard, start_guard
from .nvml import NvmlDevice, find_device

# Children that measure say it, too, in their recordings.
_VARIABLE = "CURVESCOPE_LOCKED_SM_CLOCK_HZ"
ON_A_CPU = "--lock-clocks is for a GPU, and this runs on the CPU: omit it."
# Why an experiment that would lock the clock is untested.
NOT_ASKED = (
    "it locks the clock of the GPU, for all who use it, and needs --lock-clocks: "
    "`curvescope confirm RUN --lock-clocks`, as root"
)
_MAY_LOCK = ContextVar("may lock clocks", default=False)


@contextmanager
def clocks_may_be_locked(asked: bool = True) -> Iterator[None]:
    """Let experiments lock the clock while the block runs, if the user asked for it."""
    token = _MAY_LOCK.set(asked)
    try:
        yield
    finally:
        _MAY_LOCK.reset(token)


def may_lock_clocks() -> bool:
    """Whether the user asked for experiments that lock the clock."""
    return _MAY_LOCK.get()


def read_locked_clock_hz() -> int | None:
    """The SM clock that Curvescope locked for this run; None if it locked none."""
    text = os.environ.get(_VARIABLE)
    return int(text) if text else None


@contextmanager
def lock_clocks(device: str, clock_mhz: int | None = None) -> Iterator[int]:
    """Lock the SM clock of `cuda:N` while the block runs, to so many MHz, which the block gets;
    then unlock it.

    None is the GPU's default application clock, which it holds under most loads, or if it has none,
    its largest. A CPU, missing rights, or a clock that the GPU refuses are errors. NVML does not
    say whether a clock was locked before. If this process is killed, another one unlocks the clock,
    see `clock_guard`.
    """
    if device == "cpu":
        raise CurvescopeError(ON_A_CPU)
    try:
        gpu = find_device(device)
    except BackendMissingError as error:
        raise CurvescopeError(f"the clock cannot be locked: {error}") from error
    mhz = clock_mhz or gpu.read("nvmlDeviceGetDefaultApplicationsClock", "NVML_CLOCK_SM")
    mhz = mhz or gpu.read("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM")
    if mhz is None:
        raise CurvescopeError(
            "--lock-clocks: this GPU reports no clock; write one, e.g. --lock-clocks 1500."
        )
    guard = start_guard(device)
    with end_like_ctrl_c():
        try:
            _lock(gpu, mhz)
            os.environ[_VARIABLE] = str(mhz * 1_000_000)
            yield mhz
        finally:
            os.environ.pop(_VARIABLE, None)
            _unlock(gpu, device)
            end_guard(guard)


def _unlock(gpu: NvmlDevice, device: str) -> None:
    try:
        gpu.library.nvmlDeviceResetGpuLockedClocks(gpu.handle)
    except gpu.library.NVMLError as error:
        print(
            f"curvescope: the clock of {device} could not be unlocked ({error}): run "
            "`nvidia-smi -rgc` as root.",
            file=sys.stderr,
        )


def _lock(gpu: NvmlDevice, mhz: int) -> None:
    try:
        gpu.library.nvmlDeviceSetGpuLockedClocks(gpu.handle, mhz, mhz)
    except gpu.library.NVMLError as error:
        raise CurvescopeError(
            f"the GPU does not lock its clock at {mhz} MHz ({error}): this takes root, Volta or "
            "later, and a clock that `nvidia-smi -q -d SUPPORTED_CLOCKS` lists"
        ) from error
