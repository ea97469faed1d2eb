"""The experiment loop: conditions measured in interleaved rounds, and the rows that their visits add to a recording.

Every round visits every condition, so that slow drift of the machine touches all conditions alike. The first round
takes the conditions in their order (an interrupted run is whole up to a condition); later rounds are shuffled with a
fixed seed, so that a resumed run has the same rounds. Each visit takes unprofiled and profiled steps, in every round:
drift is then the same in both, and their difference is the profiling overhead alone.

Sweeps, scaling runs and benchmarks say what a condition is and how one visit of it is made. The loop needs neither.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from ..attribution.events import StepRows
from ..attribution.range_names import INPUT_PHASE, PHASE_RANGE
from ..recording.store import Recording, RecordingWriter, columns_of

SEED = 0
C = TypeVar("C", bound=Hashable)
StepRow = dict[str, Any]  # a row of the `steps` table


@dataclass(frozen=True)
class Empty:
    """Why a condition has no measurement.

    Attributes:
        why: out of memory, killed or failed.
        detail: message of the library or the system.
    """

    why: str
    detail: str


@dataclass(frozen=True)
class Visit:
    """The steps of one visit.

    Attributes:
        unprofiled: columns of the `steps` table for each unprofiled step, without those that `VisitWriter` fills in.
        profiled: rows of each profiled step, which has one window.
        profile_fits: False if a profiled step did not fit the memory beside the profiler.
        clocks: rows of the `clocks` table.
    """

    unprofiled: list[StepRow]
    profiled: list[StepRows] = field(default_factory=list)
    profile_fits: bool = True
    clocks: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """Seconds that a run has taken and is expected to take in all, and what runs now."""

    elapsed_s: float
    expected_s: float
    doing: str


@dataclass(frozen=True)
class Experiment(Generic[C]):
    """Conditions, and when to visit each.

    Attributes:
        conditions: what is measured, in the order of the first round.
        visit: makes and records one visit of a condition in a round, counted from 0.
        rounds: least and most rounds; None for no most: until every condition is finished.
        time_limit_s: after the least rounds, no round starts that is not expected to end within it; None: no limit.
        finished: whether a condition needs no more visits, e.g. because it does not fit the memory.
        visited: whether a resumed run has the visit of a condition in a round.
        precise: whether the steps so far are enough; asked after each round beyond the least.
        group: conditions of one group stay together, in their order, where rounds are shuffled.
        begin_round: runs before the first visit of a round that has any.
        label: name of a condition in progress reports.
        report: receives the progress after every visit.
        elapsed_s: seconds that earlier starts of a resumed run took.
        clock_s: the clock of the time limit.
    """

    conditions: Sequence[C]
    visit: Callable[[C, int], object]
    rounds: tuple[int, int | None]
    time_limit_s: float | None = None
    finished: Callable[[C], bool] = lambda _: False
    visited: Callable[[C, int], bool] = lambda _, __: False
    precise: Callable[[], bool] = lambda: False
    group: Callable[[C], Hashable] = lambda condition: condition
    begin_round: Callable[[], object] = lambda: None
    label: Callable[[C], str] = str
    report: Callable[[Progress], object] = lambda _: None
    elapsed_s: float = 0.0
    clock_s: Callable[[], float] = time.monotonic

    def run(self) -> int:
        """Make the visits that are missing.

        Returns:
            Number of rounds that are whole.
        """
        (least, most), limit_s = self.rounds, math.inf if self.time_limit_s is None else self.time_limit_s
        began_s, done = self.clock_s() - self.elapsed_s, 0
        visit_s: dict[C, float] = {}  # the last visit of each condition says what the next one will take

        def expected_s(conditions: Iterable[C]) -> float:
            return sum(visit_s.get(condition, 0.0) for condition in conditions)

        for round_, order in zip(range(most) if most is not None else count(), self._orders(), strict=False):
            unfinished = [condition for condition in order if not self.finished(condition)]
            missing = [condition for condition in unfinished if not self.visited(condition, round_)]
            in_time = self.clock_s() - began_s + expected_s(missing) <= limit_s
            if not unfinished or (missing and round_ >= least and (not in_time or self.precise())):
                break
            if missing:
                self.begin_round()
            for index, condition in enumerate(missing):
                visit_began_s = self.clock_s()
                self.visit(condition, round_)
                now_s = self.clock_s()
                visit_s[condition], elapsed_s = now_s - visit_began_s, now_s - began_s
                left_s = expected_s(missing[index + 1 :]) + expected_s(visit_s) * max(least - round_ - 1, 0)
                doing = f"round {round_ + 1}, {self.label(condition)}"
                self.report(Progress(elapsed_s, max(elapsed_s + left_s, self.time_limit_s or 0.0), doing))
            done = round_ + 1
        return done

    def _orders(self) -> Iterator[list[C]]:
        """The order of each round, without end."""
        groups: dict[Hashable, list[C]] = {}
        for condition in self.conditions:
            groups.setdefault(self.group(condition), []).append(condition)
        order = list(groups.values())
        shuffled = random.Random(SEED)  # noqa: S311 - an order of measurement, no secret
        while True:
            yield [condition for group in order for condition in group]
            order = list(groups.values())
            shuffled.shuffle(order)


class VisitWriter:
    """Adds visits to one recording, which may hold some of them from an earlier start.

    A visit is one part of each table, under one name; the part of `steps` is written last and makes the visit count.

    Attributes:
        writer: of the recording.
        steps: rows of the `steps` table so far.
        next_step: number of the next step.
    """

    def __init__(self, writer: RecordingWriter, mode: str) -> None:
        """Read the visits that the recording has.

        Args:
            writer: of the recording.
            mode: what a step runs, e.g. training.
        """
        self.writer, self._mode = writer, mode
        before = Recording(writer.path, dict(writer.meta))
        self._visited = {part.stem for part in before.parts("steps")}
        self.steps: list[StepRow] = before.arrow("steps").to_pylist() if self._visited else []
        self.next_step = max((row["step"] for row in self.steps), default=-1) + 1

    def has(self, batch: int, round_: int) -> bool:
        """Whether an earlier start recorded that visit."""
        return part_of_visit(batch, round_) in self._visited

    def write(self, batch: int, round_: int, visit: Visit) -> None:
        """Record one visit.

        Args:
            batch: value of the column `batch`.
            round_: number of the round, from 0.
            visit: its steps.

        Raises:
            CurvescopeError: the recording cannot be written.
        """
        begun, kernels, ranges = len(self.steps), [], []
        for row in visit.unprofiled:
            self._add(batch, round_, begun, row, profiled=False)
        for profile in visit.profiled:
            (start_ns, duration_ns), *_ = profile.windows
            window = {"start_ns": start_ns, "duration_ns": duration_ns}
            step = self._add(batch, round_, begun, window, profiled=True)
            kernels += [{**row, "step": step} for row in profile.kernels]
            ranges += [_input_range(*window, step) for window in profile.inputs]
            for name, number in profile.lost.items():
                self.writer.count_lost(name, number)
        self.writer.count_lost("profiles_out_of_memory", int(not visit.profile_fits))
        tables = {"kernels": kernels, "ranges": ranges, "clocks": visit.clocks, "steps": self.steps[begun:]}
        for table, rows in tables.items():
            self.writer.write(table, columns_of(rows), part_of_visit(batch, round_))

    def _add(self, batch: int, round_: int, begun: int, row: StepRow, *, profiled: bool) -> int:
        """Add a step to the visit whose first one has index `begun` of `steps`, and return its number."""
        step, index = self.next_step, len(self.steps) - begun
        place = {"step": step, "batch": batch, "round": round_, "index": index}
        self.steps.append({**place, "mode": self._mode, "profiled": profiled, **row})
        self.next_step += 1
        return step


def part_of_visit(batch: int, round_: int) -> str:
    """Name of the parts that one visit adds to the tables."""
    return f"b{batch:07d}_r{round_:05d}"


def _input_range(start_ns: int, duration_ns: int, step: int) -> dict[str, Any]:
    return {
        "name": PHASE_RANGE + INPUT_PHASE,
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "kind": "push_pop",
        "step": step,
        "source": "torch",
    }
