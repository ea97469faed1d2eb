"""A process for each round of a sweep, where steps are short: then a round is an independent sample
of the program.

Identical code in two processes differs by 2 to 20 %, by where its memory lies, for as long as they
live. A sweep in one process takes such a difference for the cost of a batch size. Its first round
is made in the process that profiles; each further one in a process of its own, which first runs a
step of every batch size. Where that start takes so long that too few rounds fit the time, the rest
runs in the first process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base.errors import CurvescopeError
from ..hardware.host_usage import wait_until_quiet
from ..hardware.reference import Reference
from .configuration import Configuration, configuration_of
from .processes import ChildProcess
from .protocol import Protocol
from .visit import visit
from .visit_processes import build_workload
from .visits import Empty, StepRow, Visit

_ROUNDS = 8  # that fit the time, with the starts of their processes
_START_S, _FIRST_STEPS = 1.5, 3.0  # of a process; of the first step of each size, in later ones


class RoundProcesses:
    """The processes of the rounds after the first; `end` ends the last one."""

    def __init__(
        self,
        start: Callable[[Sequence[int]], Any] | None,
        protocol: Protocol,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Define how a process starts that serves `RoundSteps` of some batch sizes; None for no
        processes.
        """
        self._start, self._protocol, self._clock_s = start, protocol, clock_s
        self._started_in_s = 0.0  # the last one; a compiled step compiles all its sizes first
        self._process: Any = None
        self._visited: set[int] = set()
        self.count = 0  # of the processes that timed steps

    def visit(self, batch: int, rows: Sequence[StepRow], *, light: bool) -> Visit | None:
        """The timed and marked steps of one visit, in the process of the round; None where it runs
        in this one.

        `rows` are those of `steps` so far; `light` is as of `visit.visit`.
        """
        steps_s = fastest_s(rows)
        begins = self._process is None or batch in self._visited
        if self._start is None or (begins and not self._fit(steps_s)):
            self.end()
            return None
        if begins:
            self.end()
            # In the order of the first visits: torch.compile has code for the first sizes only.
            began_s = self._clock_s()
            self._process, self._visited = self._start(list(steps_s)), set()
            self._started_in_s = self._clock_s() - began_s
        wait_until_quiet()  # this process's threads
        result: Visit | Empty = self._process.call("visit", batch, self._protocol, light)
        if isinstance(result, Empty):  # e.g. a step that another process cannot build
            self._start = None
            self.end()
            return None
        self.count += not self._visited
        self._visited.add(batch)
        return result

    def start_s(self, rows: Sequence[StepRow]) -> float:
        """Expected seconds of the start of a round's process; 0 where rounds have none."""
        steps_s = fastest_s(rows)
        is_used = self._start is not None and self._fit(steps_s)
        return self._expected_start_s(steps_s) if is_used else 0.0

    def _fit(self, steps_s: Mapping[int, float]) -> bool:
        """Whether enough rounds fit the time, each with a start."""
        counts = {
            batch: self._protocol.steps_of_visit(batch, round(1e9 * step_s))
            for batch, step_s in steps_s.items()
        }
        # A discarded step, and as many marked as unmarked ones.
        visits_s = sum((2 * counts[batch] + 1) * step_s for batch, step_s in steps_s.items())
        limit_s = self._protocol.time_limit_s
        return (
            limit_s is not None
            and _ROUNDS * (self._expected_start_s(steps_s) + visits_s) <= limit_s
        )

    def _expected_start_s(self, steps_s: Mapping[int, float]) -> float:
        """Seconds of the start of a process, by the step of each size and by the last start."""
        return max(_START_S + _FIRST_STEPS * sum(steps_s.values()), self._started_in_s)

    def end(self) -> None:
        """End the process of the round."""
        if self._process is not None:
            self._process.end()
            self._process = None


def fastest_s(rows: Sequence[StepRow]) -> dict[int, float]:
    """The fastest timed step of each batch size, seconds."""
    fastest: dict[int, float] = {}
    for row in rows:
        if not row["profiled"]:
            batch, step_s = row["batch"], row["duration_ns"] / 1e9
            fastest[batch] = min(step_s, fastest.get(batch, step_s))
    return fastest


class RoundSteps:
    """In the process of a round: steps of a configuration, of which one of each batch
    size has run.
    """

    def __init__(self, configuration: Configuration, batches: Sequence[int]) -> None:
        self._workload = build_workload(configuration)
        self._reference = Reference(self._workload.clock_ns)
        for batch in batches:
            self._workload.load(batch)
            self._workload.time_step()
        wait_until_quiet()

    def visit(self, batch: int, protocol: Protocol, light: bool) -> Visit | Empty:
        """Time and mark steps."""
        result = visit(
            self._workload, batch, protocol, profile=False, light=light, reference=self._reference
        )
        wait_until_quiet()
        return result


def starter_of(spec: Mapping[str, Any]) -> Callable[[Sequence[int]], Any] | None:
    """How to start processes of the steps that `recording.json` describes so; None where no process
    can build them.
    """
    try:
        configuration = configuration_of(spec)
    except CurvescopeError:
        return None
    if configuration.device != "cpu" or configuration.compiled or configuration.graphed:
        return None
    return lambda batches: ChildProcess(RoundSteps, configuration, list(batches))
