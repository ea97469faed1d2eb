"""Steps of another process of this machine: kept for a whole run, or for one round of a sweep.

A process for each round makes a round an independent sample of the program, where steps are short.
Identical code in two processes differs by 2 to 20 %, by where its memory lies, for as long as they
live. A sweep in one process takes such a difference for the cost of a batch size. Its first round
is made in the process that profiles; each further one in a process of its own, which first runs a
step of every batch size. Where that start takes so long that too few rounds fit the time, the rest
runs in the first process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....base.errors import CurvescopeError
from ...hardware.host_usage import wait_until_quiet
from ...recording.remote_store import AnyPath
from ...workload.any_workload import AnyWorkload
from ..configuration import Configuration, configuration_of
from ..processes import ChildProcess
from ..protocol import Protocol
from ..visits import Empty, Visit, VisitPlan
from .here import Here, LocalSteps, build_workload
from .site import ROUND, Facts, Site

_ROUNDS = 8  # that fit the time, with the starts of their processes
_START_S, _FIRST_STEPS = 1.5, 3.0  # of a process; of the first step of each size, in later ones

Start = Callable[[Sequence[int]], Any]  # starts a `ChildProcess` with steps of these sizes
IN_ROUND = Facts(ROUND, runs_reference=True, waits=True)


class Process(Site):
    """Steps that another process keeps, seen from this one."""

    def __init__(self, child: Any) -> None:
        """Take a `ChildProcess` that serves `LocalSteps`."""
        self.child = child

    def facts(self) -> Facts:
        """What the process does around timed steps."""
        facts: Facts = self.child.call("facts")
        return facts

    def visit(self, condition: int, how: VisitPlan) -> Visit | Empty:
        """Have the process make one visit."""
        result: Visit | Empty = self.child.call("visit", condition, how)
        return result

    def end(self) -> None:
        """End the process."""
        self.child.end()


def starter_of(spec: Mapping[str, Any]) -> Start | None:
    """How to start processes of the steps that `recording.json` describes so; None where no process
    can build them.
    """
    try:
        configuration = configuration_of(spec)
    except CurvescopeError:
        return None
    if configuration.device != "cpu" or configuration.compiled or configuration.graphed:
        return None
    return lambda batches: ChildProcess(steps_of_round, configuration, list(batches))


def steps_of_round(configuration: Configuration, batches: Sequence[int]) -> LocalSteps:
    """In the process of a round: its steps, of which one of each batch size has run."""
    workload = build_workload(configuration)
    for batch in batches:
        workload.load(batch)
        workload.time_step()
    wait_until_quiet()
    return LocalSteps(workload, IN_ROUND)


class Rounds(Here):
    """The steps of a sweep in its process, timed in a process of each round after the first."""

    def __init__(
        self,
        workload: AnyWorkload,
        find_starter: Callable[[Mapping[str, Any]], Start | None] = starter_of,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `find_starter` says how processes start, see `starter_of`."""
        super().__init__(workload)
        self._find_starter = find_starter
        self._clock_s = clock_s
        self._start: Start | None = None
        self._started_in_s = 0.0  # the last one; a compiled step compiles all its sizes first
        self._process: Process | None = None
        self._visited: set[int] = set()  # in the process
        self._count = 0  # of the processes that timed steps
        self._steps_s: dict[int, float] = {}  # the fastest timed step of each size, in their order

    def begin(self, batches: Sequence[int], protocol: Protocol, recording: AnyPath) -> None:
        """Run a step of the smallest size; see `SweptSite`."""
        super().begin(batches, protocol, recording)
        self._sizes = len(batches)
        self._protocol = protocol
        self._start = None if protocol.is_fixed else self._find_starter(self.spec)

    def visit(self, condition: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit: timed in the process of the round, and profiled and checked in this one,
        where that is due.
        """
        if how.is_probe:
            return super().visit(condition, how)
        timed = self._time(condition, how) if condition in self._marked else None
        result: Visit | Empty
        if timed is None or self._is_profiled(condition, how) or self._needs_checks(condition):
            result = super().visit(condition, how)
        else:
            result = timed
        if isinstance(result, Empty):
            return result
        if timed is not None:
            result = replace(result, unprofiled=timed.unprofiled, marked=timed.marked)
        steps_s = [row["duration_ns"] / 1e9 for row in result.unprofiled]
        self._steps_s[condition] = min([*steps_s, self._steps_s.get(condition, math.inf)])
        return result

    def start_s(self, condition: int) -> float:
        """The share of a visit in the expected start of a round's process; 0 where rounds have
        none.
        """
        del condition
        is_used = self._start is not None and self._fit()
        return self._estimate_start_s() / self._sizes if is_used else 0.0

    def closing_entry(self) -> dict[str, Any]:
        """The number of processes, and what checks found."""
        return {**super().closing_entry(), "processes": 1 + self._count}

    def end(self) -> None:
        """End the process of the round, and release the steps."""
        self._end_round()
        super().end()

    def _needs_checks(self, condition: int) -> bool:
        return self.workload.is_users and self._checks.need(condition)

    def _time(self, condition: int, how: VisitPlan) -> Visit | None:
        """The timed and marked steps of one visit, in the process of the round; None where it runs
        in this one.
        """
        begins = self._process is None or condition in self._visited
        if self._start is None or (begins and not self._fit()):
            self._end_round()
            return None
        if begins:
            self._end_round()
            # In the order of the first visits: torch.compile has code for the first sizes only.
            began_s = self._clock_s()
            self._process, self._visited = Process(self._start(list(self._steps_s))), set()
            self._started_in_s = self._clock_s() - began_s
        wait_until_quiet()  # this process's threads
        timing = VisitPlan(how.protocol, profile=False, light=condition in self._light)
        assert self._process is not None
        result = self._process.visit(condition, timing)
        if isinstance(result, Empty):  # e.g. a step that another process cannot build
            self._start = None
            self._end_round()
            return None
        self._count += not self._visited
        self._visited.add(condition)
        self._name_code(condition, result)
        return result

    def _fit(self) -> bool:
        """Whether enough rounds fit the time, each with a start."""
        visits_s = 0.0
        for batch, step_s in self._steps_s.items():
            steps = self._protocol.steps_of_visit(batch, round(1e9 * step_s))
            visits_s += (2 * steps + 1) * step_s  # a discarded one, and as many marked as unmarked
        limit_s = self._protocol.time_limit_s
        return limit_s is not None and _ROUNDS * (self._estimate_start_s() + visits_s) <= limit_s

    def _estimate_start_s(self) -> float:
        """Seconds of the start of a process, by the step of each size and by the last start."""
        return max(_START_S + _FIRST_STEPS * sum(self._steps_s.values()), self._started_in_s)

    def _end_round(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None
