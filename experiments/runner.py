"""Base of experiments on terms and on complete steps: interleaved rounds, rows, and the entry."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..profiling.measure.loop import Loop, Progress
from ..profiling.measure.stopping import Complete, StoppingRule, Until
from ..profiling.measure.visits import Empty, Look, Visit
from ..profiling.recording.experiment_entries import part_of, record_experiment
from ..profiling.recording.experiments import TIME_IS_UP, Experiment, Scope
from ..profiling.recording.store import RecordingWriter, columns_of
from .factor import Factor
from .factors import factor_of

Condition: TypeAlias = tuple[str | None, int]  # name of the factor, or None for none; batch size
Row: TypeAlias = dict[str, Any]  # of the table `experiments`


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Who follows an experiment while it runs."""

    # function that receives the progress after every visit
    report: Callable[[Progress], object] = lambda _: None
    clock_s: Callable[[], float] = time.monotonic
    # asked of the rows after every round
    enough: Callable[[Sequence[Mapping[str, Any]]], bool] = lambda _: False


@dataclass
class Runner(ABC):
    """One experiment while it runs; subclasses make the visits."""

    experiment: Experiment
    writer: RecordingWriter
    watch: Watch
    device: str  # device of what runs, `cpu` or `cuda:N`
    rows: list[Row] = field(default_factory=list, init=False)
    untested: dict[str, str] = field(default_factory=dict, init=False)  # why, by name
    changed_results: dict[str, str] = field(default_factory=dict, init=False)  # how, by name
    # further observations; one sentence each
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.began_s = self.watch.clock_s()
        self.notes += self.experiment.notes
        self._written = 0  # number of the rows that are recorded
        self._visit_s: dict[Condition, float] = {}  # of the last visit, in any start
        self._time_is_up = False  # whether a visit did not fit the time any more

    @abstractmethod
    def measure(self) -> bool:
        """Make all rounds; returns whether the experiment ran to its end, with the minimum number
        of rounds.
        """

    @abstractmethod
    def visit(self, condition: Condition) -> Visit | Empty:
        """Visit one condition, at the site of its factor."""

    @abstractmethod
    def drop(self, condition: Condition, empty: Empty) -> None:
        """Note why a condition has no measurement, and end what cannot go on without it."""

    @abstractmethod
    def is_finished(self, condition: Condition) -> bool:
        """Whether a condition gets no more visits."""

    def group(self, condition: Condition) -> Hashable:
        """Group of a condition, whose conditions each round visits one after the other."""
        return condition

    @abstractmethod
    def end(self) -> None:
        """Free what the experiment holds, and note its results besides times."""

    @abstractmethod
    def reason_against(self, name: str) -> str | None:
        """The reason why a factor that fits the device cannot be changed; None if none is known."""

    def expected_s(self, condition: Condition) -> float:  # noqa: ARG002 - of a first visit
        """Seconds that a first visit of a condition is expected to take; 0 where
        nothing says it.
        """
        return 0.0

    def fits(self, condition: Condition) -> bool:
        """Whether a visit ends before the deadline; after one that does not, no other is made."""
        expected_s = self._visit_s.get(condition) or self.expected_s(condition)
        self._time_is_up |= expected_s > self.left_s
        return not self._time_is_up

    def rows_to_decide(self) -> Sequence[Row]:
        """The rows that say whether more rounds are worth their time."""
        return self.rows

    def run(self) -> Experiment:
        """Run the experiment and record it with the factors that could not be changed; rows are
        kept whatever happens.
        """
        done = False
        try:
            done = self.measure()
        finally:
            self.end()
            self.write()
            recorded = self.entry(done=done)
            factors = [_factor(name, recorded.scope) for name in recorded.factors]
            facts = [factor.facts(recorded.scope, self.device) for factor in factors if factor]
            record_experiment(self.writer, recorded, facts)
        return recorded

    @property
    def elapsed_s(self) -> float:
        """Seconds since the experiment began."""
        return self.watch.clock_s() - self.began_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        deadline_s = self.experiment.deadline_s
        return math.inf if deadline_s is None else deadline_s - self.elapsed_s

    def possible(self) -> list[str]:
        """The factors that can be changed, as far as is known; the others are untested."""
        scope, names = self.experiment.scope, self.experiment.factors
        for name in names:
            factor = _factor(name, scope)
            if factor is None:
                steps = "terms" if scope == Scope.TERM else "complete steps"
                why: str | None = f"there is no such factor of {steps}"
            else:
                why = factor.refusal(self.device) or self.reason_against(name)
            if why is not None:
                self.untested[name] = why
        return [name for name in names if name not in self.untested]

    def run_rounds(
        self, conditions: Sequence[Condition], share: float = 1.0, seed: int | None = None
    ) -> int:
        """Make rounds over conditions after those so far, in a share of the time left.

        Returns how many it made to their end.

        `seed` is as of `Loop`.
        """
        elapsed_s = self.elapsed_s
        first = max((row["round"] for row in self.rows), default=-1) + 1

        def visit(condition: Condition, round_: int) -> None:
            self._time_visit(condition, first + round_)

        def end_of(limit_s: float | None) -> float | None:
            return None if limit_s is None else elapsed_s + share * (limit_s - elapsed_s)

        limit_s = end_of(self.experiment.time_limit_s)
        deadline_s = end_of(self.experiment.deadline_s)
        rule = Complete[Condition](self.experiment.rounds, limit_s, deadline_s)
        rounds = Loop(
            conditions=conditions,
            visit=visit,
            rule=_InTime(Until(rule, self.watch.enough), self),
            finished=self.is_finished,
            group=self.group,
            seed=seed,
            begin_round=self.write,
            rows=self.rows_to_decide,
            label=_label,
            report=self.watch.report,
            elapsed_s=elapsed_s,
            clock_s=self.watch.clock_s,
        ).run()
        return rounds - self._time_is_up

    def _time_visit(self, condition: Condition, round_: int) -> None:
        began_s = self.elapsed_s
        if not self.is_finished(condition):  # an earlier visit of the round may have ended it
            result = self.visit(condition)
            if isinstance(result, Empty):
                self.drop(condition, result)
            else:
                self._add(condition, round_, result.unprofiled)
        self._visit_s[condition] = self.elapsed_s - began_s

    def _add(self, condition: Condition, round_: int, timed: Iterable[Row]) -> None:
        """Add the rows of a visit, which lack the columns of the experiment."""
        name, batch = condition
        key = {"experiment": self.experiment.number, "factor": name}
        for index, row in enumerate(timed):
            self.rows.append({**key, "batch": batch, "round": round_, "index": index, **row})

    def ran(self, name: str | None) -> list[Row]:
        """The rows of a factor so far."""
        return [row for row in self.rows if row["factor"] == name]

    def write(self) -> None:
        """Record the rows since the last call."""
        if new := self.rows[self._written :]:
            part = part_of(self.experiment.number, new[-1]["round"])
            self.writer.write("experiments", columns_of(new), part)
            self._written = len(self.rows)

    def drop_unwritten(self, name: str) -> None:
        """Remove the rows of a factor that are not recorded yet."""
        unwritten = self.rows[self._written :]
        self.rows[self._written :] = [row for row in unwritten if row["factor"] != name]

    def entry(self, *, done: bool) -> Experiment:
        """The experiment as recorded; `done` is whether it ran to its end."""
        names = self.experiment.factors
        if not done:
            ran = {row["factor"] for row in self.rows}
            late = [name for name in names if name not in ran]
            self.untested = dict.fromkeys(late, TIME_IS_UP) | self.untested
        return replace(
            self.experiment,
            untested=_in_order(self.untested, names),
            changed_results=_in_order(self.changed_results, names),
            notes=tuple(dict.fromkeys(self.notes)),
            done=done,
        )


class _InTime(StoppingRule[Condition]):
    """The rounds of another rule, as far as the visits of a runner fit the time."""

    def __init__(self, rule: StoppingRule[Condition], runner: Runner) -> None:
        super().__init__(least=rule.least, time_limit_s=rule.time_limit_s)
        self._rule, self._runner = rule, runner

    def next_round(self, look: Look[Condition]) -> Sequence[Condition] | None:
        return None if self._runner._time_is_up else self._rule.next_round(look)

    def fits(self, condition: Condition) -> bool:
        return self._runner.fits(condition)


def _factor(name: str, scope: str) -> Factor | None:
    factor = factor_of(name)
    if factor is None:
        return None
    change = factor.term if scope == Scope.TERM else factor.step
    return factor if change else None


def _label(condition: Condition) -> str:
    name, batch = condition
    return f"{name or 'unmodified'}, batch {batch}"


def _in_order(entries: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: entries[name] for name in names if name in entries}
