"""Factors of the processor: its threads, their priority, its clock, rests and caches."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.hardware.host import physical_cores
from ...profiling.hardware.locked_clocks import (
    NOT_ASKED,
    lock_clocks,
    may_lock_clocks,
    read_locked_clock_hz,
)
from ...profiling.measure.visits import StepRow
from ...profiling.workload.steps import ChangedSteps
from ..changed_steps import LEAST_WAIT, waiting_share
from ..factor import ON_GPU, Caches, Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import reason_without_tensors
from ..replay.recorded_call import CallFamily

# Fewer threads on a CPU: what dividing the work, waiting for each other or for cores, and sharing a
# core cost goes.


def _usual() -> int:
    return int(import_torch().get_num_threads())


def _half() -> str | None:
    return (
        f"half of {_usual()} threads is one, which is a change of its own" if _usual() < 4 else None
    )


def _physical() -> str | None:
    threads, cores = _usual(), physical_cores()
    if cores is None:
        return "the system does not say which processors share a core"
    few = threads <= cores
    return (
        f"threads are no more than physical cores already ({threads} of {cores})" if few else None
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    torch, former = import_torch(), _usual()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def _to_one(_: Target) -> None:
    if _usual() == 1:
        raise CurvescopeError("the steps already run on one thread")
    import_torch().set_num_threads(1)


def _steps_on(
    threads: Callable[[], int], how: str, common: int, why_not: Callable[[], str | None]
) -> StepChange:
    return StepChange(
        how=how,
        variables=lambda: {"OMP_NUM_THREADS": str(threads())},
        common=common,
        reason_against=lambda _: why_not(),
        prepare=lambda _: import_torch().set_num_threads(threads()),
    )


HALF_THREADS = Factor(
    name="half_threads",
    what="the work runs on half of the threads",
    remedy="run {where} on half of the threads",
    refuses=ON_GPU,
    step=_steps_on(
        lambda: _usual() // 2,
        "torch.set_num_threads(torch.get_num_threads() // 2), or OMP_NUM_THREADS in the "
        "environment",
        common=6,
        why_not=_half,
    ),
    sets="threads",
)
PHYSICAL_CORES = Factor(
    name="physical_cores",
    what="there is one thread for each physical core",
    remedy="run {where} on one thread for each physical core",
    refuses=ON_GPU,
    step=_steps_on(
        lambda: physical_cores() or 1,
        "torch.set_num_threads(N) or OMP_NUM_THREADS=N, N the number of physical cores (lscpu)",
        common=7,
        why_not=_physical,
    ),
    sets="threads",
)
ONE_THREAD = Factor(
    name="one_thread",
    what="the work runs on one thread",
    remedy="run {where} on one thread",
    refuses=ON_GPU,
    term=TermChange(
        how="torch.set_num_threads(1) before it and the former number after it; OMP_NUM_THREADS=1 "
        "for the whole "
        "process",
        screen=3,
        reason_against=lambda _: "it runs on one thread already" if _usual() == 1 else None,
        around=_one_thread,
    ),
    step=StepChange(
        how="torch.set_num_threads(1), or OMP_NUM_THREADS=1 in the environment",
        variables=lambda: {"OMP_NUM_THREADS": "1"},
        screen=4,
        common=8,
        prepare=_to_one,
    ),
    sets="threads",
)


# The step runs at a raised priority: what other work on the same cores costs goes away.
#
# Under Linux's fair scheduling, a thread of nice value -20 has 87 times the weight of one of 0
# (sched(7)), so a neighbour on the core gets about 1 % of it. The priority ends with the process.

NICE = (-20, -10)  # the first that is allowed
_TASKS = Path("/proc/self/task")
_AUTOGROUP = Path("/proc/self/autogroup")
_STILL_WAITS = 0.5  # share of the wait that may be left


class _RaisedSteps(ChangedSteps):
    """Steps whose threads get the priority before each visit; processes that they start do not get
    it.
    """

    def __init__(self, workload: Any, nice: int) -> None:
        super().__init__(workload)
        self._nice = nice

    def load(self, batch: int) -> None:
        super().load(batch)
        for thread in _threads():
            with suppress(ProcessLookupError):  # it ended
                os.setpriority(os.PRIO_PROCESS, thread, self._nice)


def _prepare(_: Target) -> None:
    nice = _raise()
    if sys.platform == "linux":
        # Processes that the step starts, e.g. loaders of data, are neighbours too. Threads also
        # start without the priority, and get it before the next visit.
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        _leave_autogroup(nice)


def _without_effect(unmodified: Sequence[StepRow], changed: Sequence[StepRow]) -> str | None:
    before, after = waiting_share(unmodified), waiting_share(changed)
    if before is None or after is None or before < LEAST_WAIT or after < _STILL_WAITS * before:
        return None
    return (
        f"its threads waited for a core in {before:.0%} of their time without the priority and in "
        f"{after:.0%} with it: they wait for each other, or for work in another control group, "
        "which a priority does not reach"
    )


def _raise() -> int:
    """Raise the priority of this thread, whose process has no other yet; returns the nice value."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    for nice in NICE:
        if usual <= nice:
            raise CurvescopeError(f"the steps run at a raised priority already (nice {usual})")
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            return nice
    raise CurvescopeError(
        "raising the priority needs the capability CAP_SYS_NICE: run as root (in a container with "
        "--cap-add SYS_NICE), or allow nice values down to -10 in /etc/security/limits.conf"
    )


def _leave_autogroup(nice: int) -> None:
    """Put this process into a scheduling group of its own: nice values count only inside a
    session's.

    Linux groups the processes of a session (sched(7), "The autogroup feature"). Where that is off,
    nothing changes.
    """
    with suppress(OSError):
        # the leader of a process group cannot begin a session
        os.setpgid(0, os.getpgid(os.getppid()))
        os.setsid()
        _AUTOGROUP.write_text(str(nice))


def _threads() -> Iterable[int]:
    """The threads of this process; 0, the process, where the system does not list them."""
    return [int(task.name) for task in _TASKS.iterdir()] if _TASKS.exists() else [0]


PRIORITY = Factor(
    name="priority",
    what="the step runs at a raised priority",
    remedy="run {where} at a raised priority, or on cores of its own",
    step=StepChange(
        how="sudo nice -n -10 COMMAND; or taskset -c CORES COMMAND, with the other work on other "
        "cores (cpuset of "
        "cgroups)",
        prepare=_prepare,
        change=lambda workload, _: _RaisedSteps(workload, os.getpriority(os.PRIO_PROCESS, 0)),
        without_effect=_without_effect,
    ),
    any_framework=True,
)


# The SM clock locked to one value, below that of every batch size: what a lower clock of some sizes
# costs goes away.
#
# The process of the experiment locks it for each visit and unlocks it afterwards, whatever becomes
# of the worker. A locked clock holds for all who use the GPU, so this is untested unless it was
# asked for.

_BELOW = 0.95  # of the lowest clock; an average of samples may be above the clock of some moments


def _reason_against(target: Target) -> str | None:
    if read_locked_clock_hz() is not None:
        return "the clock is locked already"
    if not may_lock_clocks():
        return NOT_ASKED
    return None if target.lowest_clock_hz else "the recording has no clocks of its steps"


def _lock(target: Target) -> AbstractContextManager[object]:
    return lock_clocks(
        target.configuration.device, int(_BELOW * (target.lowest_clock_hz or 0) / 1e6)
    )


LOCKED_CLOCK = Factor(
    name="locked_clock",
    what="the clock is locked to one value at all sizes, 5 % below the lowest",
    refuses={"cpu": "only the clock of a GPU is locked"},
    step=StepChange(reason_against=_reason_against, around=_lock),
    any_framework=True,
)


# The device rests between steps: a cost of throttling under sustained load becomes smaller.
#
# The variants of an experiment take turns, so the device also works during the visits of the
# others. The pauses can only show a throttling that a few steps in a row cause, and none that a
# power cap causes inside of one.

_LONGEST_S = 1.0


class _RestedSteps(ChangedSteps):
    _pause_s = 0.0

    def time_step(self) -> tuple[int, int]:
        time.sleep(self._pause_s)
        timed = super().time_step()
        self._pause_s = min(timed[1] / 1e9, _LONGEST_S)
        return timed


PAUSES = Factor(
    name="pauses",
    what="the device rests before each step for as long as a step takes",
    step=StepChange(
        screen=8, screen_on=("cuda",), change=lambda workload, _: _RestedSteps(workload)
    ),
    partial=True,
    any_framework=True,
)


# Operands that no cache has, or that the run before left in the caches.


def _reason_against_cold(family: CallFamily) -> str | None:
    """Equal calls run one after the other on the same operands, so that only the first one would
    find none.
    """
    if family.largest.calls > 1:
        return "its equal calls find in the caches what the one before left there"
    return reason_without_tensors(family)


COLD_CACHES = Factor(
    name="cold_caches",
    what="all operands are evicted from the caches before each run",
    term=TermChange(reason_against=_reason_against_cold, caches=Caches.COLD, same_work=True),
    brings_about=True,
)
WARM_CACHES = Factor(
    name="warm_caches",
    what="operands stay in the caches from the run before",
    term=TermChange(reason_against=reason_without_tensors, caches=Caches.WARM, same_work=True),
)
