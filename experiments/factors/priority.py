"""The step runs at a raised priority: what other work on the same cores costs goes away.

Under Linux's fair scheduling, a thread of nice value -20 has 87 times the weight of one of 0 (sched(7)), so a neighbour
on the core gets about 1 % of it. The priority ends with the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.measure.stopping import StepRow
from ..changed_steps import LEAST_WAIT, ChangedSteps, waiting_share
from ..factor import Factor, StepChange, Target

NICE = (-20, -10)  # the first that is allowed
_TASKS = Path("/proc/self/task")
_AUTOGROUP = Path("/proc/self/autogroup")
_STILL_WAITS = 0.5  # share of the wait that may be left


class _RaisedSteps(ChangedSteps):
    """Steps whose threads get the priority before each visit; processes that they start do not get it."""

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
        # Processes that the step starts, e.g. loaders of data, are neighbours too. Threads also start without the
        # priority, and get it before the next visit.
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        _leave_autogroup(nice)


def _without_effect(unmodified: Sequence[StepRow], changed: Sequence[StepRow]) -> str | None:
    before, after = waiting_share(unmodified), waiting_share(changed)
    if before is None or after is None or before < LEAST_WAIT or after < _STILL_WAITS * before:
        return None
    return (
        f"its threads waited for a core in {before:.0%} of their time without the priority and in {after:.0%} with "
        "it: they wait for each other, or for work in another control group, which a priority does not reach"
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
        "raising the priority needs the capability CAP_SYS_NICE: run as root (in a container with --cap-add SYS_NICE), "
        "or allow nice values down to -10 in /etc/security/limits.conf"
    )


def _leave_autogroup(nice: int) -> None:
    """Put this process into a scheduling group of its own: in that of its session, nice values count only inside.

    Linux groups the processes of a session (sched(7), "The autogroup feature"). Where that is off, nothing changes.
    """
    with suppress(OSError):
        # the leader of a process group cannot begin a session
        os.setpgid(0, os.getpgid(os.getppid()))
        os.setsid()
        _AUTOGROUP.write_text(str(nice))


def _threads() -> Iterable[int]:
    """The threads of this process; 0, the process, where the system does not list them."""
    return [int(task.name) for task in _TASKS.iterdir()] if _TASKS.exists() else [0]


FACTOR = Factor(
    name="priority",
    what="the step runs at a raised priority",
    remedy="run {where} at a raised priority, or on cores of its own",
    step=StepChange(
        how="sudo nice -n -10 COMMAND; or taskset -c CORES COMMAND, with the other work on other cores (cpuset of "
        "cgroups)",
        prepare=_prepare,
        change=lambda workload, _: _RaisedSteps(workload, os.getpriority(os.PRIO_PROCESS, 0)),
        without_effect=_without_effect,
    ),
    any_framework=True,
)
