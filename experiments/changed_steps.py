"""Changes of complete steps that several factors make, see `ChangedSteps`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from ..base.errors import CurvescopeError
from ..profiling.measure.visits import StepRow
from ..profiling.workload.steps import ChangedSteps

# Threads of a step wait for each other too: a smaller share of the time without a core is no
# contention.
LEAST_WAIT = 0.05


class StepsWithin(ChangedSteps):
    """Steps that run within a context."""

    def __init__(
        self, workload: Any, context: Callable[[], AbstractContextManager[object]]
    ) -> None:
        super().__init__(workload)
        self._context = context

    def submit(self) -> object:
        with self._context():
            return super().submit()

    def time_step(self) -> tuple[int, int]:
        with self._context():
            return super().time_step()


class ChangedModule(ChangedSteps):
    """Steps whose module is changed in place before its first step; a user's may name another after
    each `load`.
    """

    def __init__(self, workload: Any, change: Callable[[Any], object]) -> None:
        super().__init__(workload)
        self._change, self._changed = change, weakref.WeakSet[Any]()

    def load(self, batch: int) -> None:
        super().load(batch)
        module = self.workload.model
        if module is None:
            raise CurvescopeError("the step names no module: give it the attribute `module`")
        if module not in self._changed:
            self._change(module)
            self._changed.add(module)


def waiting_share(rows: Iterable[StepRow]) -> float | None:
    """Share of the runnable time in which threads waited for a core; None if unknown."""
    used = [(row.get("cpu_time_ns"), row.get("run_queue_wait_ns")) for row in rows]
    timed = [(cpu, wait) for cpu, wait in used if cpu is not None and wait is not None]
    runnable = sum(cpu + wait for cpu, wait in timed)
    return sum(wait for _, wait in timed) / runnable if runnable else None
