"""Processes that run steps: one for each visit, or one for each round of a sweep.

A process for each visit costs seconds: if it crashes, that is a result. `Measurer` makes such
visits, here or, in its subclasses, elsewhere.

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
from ....base.torch_runtime import pick_device
from ...hardware.clocks import ClockSampler
from ...hardware.host_usage import wait_until_quiet
from ...recording.remote_store import AnyPath
from ...workload.any_workload import AnyWorkload
from ..configuration import Configuration, configuration_of
from ..machine import Machine, describe_machine
from ..processes import ChildProcess
from ..protocol import Protocol
from ..visits import Empty, Visit, VisitPlan
from .here import Here, LocalSteps, build_workload
from .site import ONE_VISIT, ROUND, Facts

_ROUNDS = 8  # that fit the time, with the starts of their processes
_START_S, _FIRST_STEPS = 1.5, 3.0  # of a process; of the first step of each size, in later ones

Start = Callable[[Sequence[int]], Any]  # starts a process that visits steps of these sizes
IN_ROUND = Facts(ROUND, runs_reference=True, waits=True)
# The first step of a process also loads the libraries' kernels and creates the optimizer's state.
IN_VISIT = Facts(ONE_VISIT, discards=1, samples_clocks=True)
_TRIAL = Protocol("trial", (1, 1), 0, (1, 1), 0.0, 0, None)  # one step after the discarded one


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
        self._find_starter, self._clock_s = find_starter, clock_s
        self._start: Start | None = None
        self._started_in_s = 0.0  # the last one; a compiled step compiles all its sizes first
        self._process: Any = None
        self._visited: set[int] = set()  # in the process
        self._count = 0  # of the processes that timed steps
        self._steps_s: dict[int, float] = {}  # the fastest timed step of each size, in their order

    def begin(self, batches: Sequence[int], protocol: Protocol, recording: AnyPath) -> None:
        """Run a step of the smallest size; see `Site`."""
        super().begin(batches, protocol, recording)
        self._sizes, self._protocol = len(batches), protocol
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
            self._process, self._visited = self._start(list(self._steps_s)), set()
            self._started_in_s = self._clock_s() - began_s
        wait_until_quiet()  # this process's threads
        timing = VisitPlan(how.protocol, profile=False, light=condition in self._light)
        result: Visit | Empty = self._process.call("visit", condition, timing)
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


class Measurer:
    """Measures visits, one at a time."""

    machine: Machine  # set by `describe`

    def describe(self, device: str) -> Machine | Empty:
        """Describe the machine and the device, or the reason why it cannot measure."""
        result: Machine | Empty = self._run("describe", device)
        if isinstance(result, Machine):
            self.machine = result
        return result

    def visit(self, configuration: Configuration, batch: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit, in a process of its own."""
        result: Visit | Empty = self._run("visit", configuration, batch, how)
        return result

    def fits(self, configuration: Configuration, batch: int) -> bool:
        """Whether a step of this batch size runs."""
        return isinstance(self.visit(configuration, batch, VisitPlan(_TRIAL)), Visit)

    def done(self) -> None:
        """Release what it holds: no more visits follow."""

    def stop(self) -> None:
        """From another thread: end the running call, and later ones, with a KeyboardInterrupt."""

    def _run(self, name: str, *arguments: Any) -> Any:
        """Run one of `_Functions` where it measures; returns its result or `Empty`."""
        raise NotImplementedError


class LocalMeasurer(Measurer):
    """Measures on this machine, each visit in its own process; a context manager that ends the
    running process.

    SIGINT reaches the waiting call by itself, so `stop` does nothing.
    """

    def __init__(self, while_waiting: Callable[[], None] = lambda: None) -> None:
        """Prepare to measure; an error of a function that is called twice a second ends
        the visit.
        """
        self._running: ChildProcess | None = None
        self._while_waiting = while_waiting

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.end()

    def pick(self, name: str | None) -> str | Empty:
        """Find a device of this machine by name; see `pick_device`."""
        device: str | Empty = self._run("pick", name)
        return device

    def visit(self, configuration: Configuration, batch: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit, and sample clocks meanwhile, also where its process takes no sample
        between steps.
        """
        with ClockSampler(configuration.device) as clocks:
            result: Visit | Empty = self._run("visit", configuration, batch, how, clocks=clocks)
        if isinstance(result, Empty):
            return result
        return replace(result, clocks=[*clocks.take(), *result.clocks])

    def _run(self, name: str, *arguments: Any, clocks: ClockSampler | None = None) -> Any:
        def wait() -> None:
            if clocks is not None:
                clocks.sample()
            self._while_waiting()

        self._running = ChildProcess(_Functions)
        result = self._running.call(name, *arguments, while_waiting=wait)
        self._running.end()
        self._running = None
        return result


class _Functions:
    """What a process of a visit runs."""

    pick = staticmethod(pick_device)
    describe = staticmethod(describe_machine)

    @staticmethod
    def visit(configuration: Configuration, batch: int, how: VisitPlan) -> Visit | Empty:
        workload = build_workload(configuration)
        workload.finds_peak = how.operators  # both once for each batch size
        return LocalSteps(workload, IN_VISIT).visit(batch, how)
