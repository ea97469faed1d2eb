"""The loop: conditions measured in interleaved rounds, and the rows that their visits add to a
recording.

Every round visits every condition, so that slow drift of the machine touches all alike. The first
round takes them in the order of the rule, unless a seed is given; others are shuffled with a fixed
seed, so that a resumed run has the same rounds. What does not fit the time any more is not visited.
A visit takes unprofiled and profiled steps: drift is the same in both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, Generic

from ...base.masking import mask_text
from ..attribution.events import split_copies
from ..attribution.range_names import INPUT_PHASE, PHASE_RANGE
from ..hardware.clocks import reasons_of_visit
from ..recording.schema import OPERATOR_MODE
from ..recording.store import Recording, RecordingWriter, columns_of
from .stopping import StoppingRule
from .visits import Condition, Empty, Look, StepRow, Visit

SEED = 0
_INPUT = {"name": PHASE_RANGE + INPUT_PHASE, "kind": "push_pop", "source": "torch"}


@dataclass(frozen=True)
class Progress:
    """Progress of a run."""

    elapsed_s: float
    expected_s: float  # of the complete run
    doing: str
    # rows of `steps` so far; empty where a run has none, or does not tell
    steps: Sequence[StepRow] = ()
    # what the time allows of the run, as a clause; None while it is unknown
    allows: str | None = None


@dataclass(frozen=True, kw_only=True)
class Loop(Generic[Condition]):
    """Conditions, and the rules for visiting them."""

    conditions: Sequence[Condition]  # a rule may add to them between rounds
    # makes and records one visit in a round, counted from 0
    visit: Callable[[Condition, int], object]
    rule: StoppingRule[Condition]
    finished: Callable[[Condition], bool] = lambda _: False  # e.g. what does not fit the memory
    visited: Callable[[Condition, int], bool] = lambda _, __: False  # by an earlier start
    # stays together, in its order, when rounds are shuffled
    group: Callable[[Condition], Hashable] = lambda condition: condition
    seed: int | None = None  # of the order; None: the first round takes the conditions in theirs
    begin_round: Callable[[], object] = lambda: None  # before its first visit
    rows: Callable[[], Sequence[StepRow]] = lambda: ()  # of all steps so far, for the rule
    label: Callable[[Condition], str] = str  # of a condition in progress
    report: Callable[[Progress], object] = lambda _: None  # receives the progress after every visit
    elapsed_s: float = 0.0  # of earlier starts of a resumed run
    clock_s: Callable[[], float] = time.monotonic

    def run(self) -> int:
        """Make the missing visits; returns the number of rounds that were made to their end."""
        began_s = self.clock_s() - self.elapsed_s
        done = 0
        visit_s: dict[Condition, float] = {}
        for round_, order in zip(count(), self._orders(), strict=False):
            unfinished = [condition for condition in order if not self.finished(condition)]
            missing = [condition for condition in unfinished if not self.visited(condition, round_)]
            chosen: Sequence[Condition] = ()
            if missing:
                elapsed_s = self.clock_s() - began_s
                look = Look(
                    round_=round_,
                    elapsed_s=elapsed_s,
                    conditions=missing,
                    visit_s=visit_s,
                    rows=self.rows,
                )
                chosen = self.rule.next_round(look) or ()
            if not unfinished or (missing and not chosen):
                break
            if missing:
                self.begin_round()
            for index, condition in enumerate(chosen):
                if not self.rule.fits(condition):
                    continue
                visit_began_s = self.clock_s()
                self.visit(condition, round_)
                now_s = self.clock_s()
                visit_s[condition] = now_s - visit_began_s
                elapsed_s = now_s - began_s
                left_s = sum(visit_s.get(later, 0.0) for later in chosen[index + 1 :])
                left_s += sum(visit_s.values()) * max(self.rule.least - round_ - 1, 0)
                expected_s = max(elapsed_s + left_s, self.rule.time_limit_s or 0.0)
                if (longest_s := self.rule.longest_s) is not None:
                    expected_s = longest_s
                doing = f"round {round_ + 1}, {self.label(condition)}"
                self.report(Progress(elapsed_s, expected_s, doing, allows=self.rule.allows))
            done = round_ + 1
        return done

    def _orders(self) -> Iterator[list[Condition]]:
        """The order of each round, endlessly."""
        shuffled = random.Random(self.seed or SEED)  # noqa: S311 - an order of measurement, no secret
        for round_ in count():
            groups: dict[Hashable, list[Condition]] = {}
            for condition in self.conditions:
                groups.setdefault(self.group(condition), []).append(condition)
            order = list(groups.values())
            if round_ or self.seed is not None:
                shuffled.shuffle(order)
            yield [condition for group in order for condition in group]


class VisitWriter:
    """Adds visits to one recording, which may contain visits of an earlier start.

    A visit is one part file of each table, under one name. The part of `steps` is written last and
    completes the visit.
    """

    def __init__(self, writer: RecordingWriter, mode: str) -> None:
        """Read the visits of the recording."""
        self.writer = writer
        self._mode = mode
        recording = Recording(writer.path, dict(writer.meta))
        self._visited = {part.stem for part in recording.parts("steps")}
        self._with_operators = set(recording.arrow("operators", ["batch"])["batch"].to_pylist())
        self.steps: list[StepRow] = recording.arrow("steps").to_pylist() if self._visited else []
        self.next_step = max((row["step"] for row in self.steps), default=-1) + 1

    def has(self, batch: int, round_: int) -> bool:
        """Whether the recording contains this visit from an earlier start."""
        return part_of_visit(batch, round_) in self._visited

    def has_operators(self, batch: int) -> bool:
        """Whether the recording contains the operators of a step of this batch size: a later
        visit's are left out.
        """
        return batch in self._with_operators

    def write(self, batch: int, round_: int, visit: Visit) -> None:
        """Record one visit of a round, counted from 0."""
        first = len(self.steps)
        kernels = []
        ranges = []
        calls = []
        once: dict[str, Sequence[dict[str, Any]]] = {}  # rows of one step for each batch size
        reasons: StepRow = {}
        if visit.clocks and visit.unprofiled:
            last = visit.unprofiled[-1]
            end_ns = last["start_ns"] + last["duration_ns"]
            reasons = reasons_of_visit(visit.clocks, visit.unprofiled[0]["start_ns"], end_ns)
        for row in visit.unprofiled:
            self._add(batch, round_, first, {**row, **reasons}, profiled=False)
        for profile in visit.profiled:
            (start_ns, duration_ns), *_ = profile.windows
            window = {"start_ns": start_ns, "duration_ns": duration_ns}
            step = self._add(batch, round_, first, window, profiled=True)
            kernels += [{**row, "step": step} for row in profile.kernels]
            calls += [{**row, "step": step} for row in profile.api_calls]
            ranges += [
                {**_INPUT, "start_ns": start_ns, "duration_ns": duration_ns, "step": step}
                for start_ns, duration_ns in profile.inputs
            ]
            if not self.has_operators(batch) and profile.operators:
                once = {"operators": profile.operators, "lines": visit.lines, "peaks": visit.peak}
                self._with_operators.add(batch)
            for name, number in profile.lost.items():
                self.writer.count_lost(name, number)
        self.writer.count_lost("profiles_out_of_memory", int(not visit.profile_fits))
        if visit.warning is not None and not self.writer.meta.get(
            "warnings"
        ):  # the first stands for all
            self.writer.update(warnings=[visit.warning])
        if visit.layer_classes and "layer_classes" not in self.writer.meta:
            self.writer.update(layer_classes=visit.layer_classes)
        if visit.frameworks and "frameworks" not in self.writer.meta:
            threads = visit.framework_threads
            self.writer.update(frameworks=visit.frameworks, framework_threads=threads)
        self._note_setup(batch, visit.setup_ns)
        tables = {name: [{"batch": batch, **row} for row in rows] for name, rows in once.items()}
        tables |= {"api_calls": calls, "ranges": ranges}
        # A copy that is benched is the problem, and has its work.
        tables["kernels"], tables["memory"] = split_copies(kernels, self._mode != OPERATOR_MODE)
        tables["clocks"] = visit.clocks
        tables["marks"] = [
            {"batch": batch, "round": round_, "index": index, **row}
            for index, rows in enumerate(visit.marked)
            for row in rows
        ]
        for table, rows in {**tables, "steps": self.steps[first:]}.items():
            self.writer.write(table, columns_of(rows), part_of_visit(batch, round_))

    def _note_setup(self, batch: int, setup_ns: int | None) -> None:
        """Note how long a step took to make and to run first; the longest visit did both."""
        setups_s = self.writer.meta.get("setup_s", {})
        if setup_ns is None or setup_ns / 1e9 <= setups_s.get(str(batch), 0.0):
            return
        self.writer.update(setup_s={**setups_s, str(batch): round(setup_ns / 1e9, 3)})

    def write_unmeasured(self, batch: int, round_: int, empty: Empty) -> None:
        """Record that a batch size could not be measured; this replaces an earlier entry of the
        batch size.
        """
        empty = replace(empty, detail=mask_text(empty.detail))
        others = [entry for entry in self.writer.meta["unmeasured"] if entry["batch"] != batch]
        self.writer.update(unmeasured=[*others, {"batch": batch, "round": round_, **asdict(empty)}])

    def _add(self, batch: int, round_: int, first: int, row: StepRow, *, profiled: bool) -> int:
        """Add a step to the visit whose first step is `steps[first]`; returns its number."""
        key = {
            "step": self.next_step,
            "batch": batch,
            "round": round_,
            "index": len(self.steps) - first,
        }
        self.steps.append({**key, "mode": self._mode, "profiled": profiled, **row})
        self.next_step += 1
        return self.next_step - 1


def part_of_visit(batch: int, round_: int) -> str:
    """Name of the part files of one visit."""
    return f"b{batch:07d}_r{round_:05d}"
