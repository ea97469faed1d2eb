"""Experiments on complete steps: unprofiled steps with one factor changed at a time, in interleaved
rounds.

Each variant runs in a process of its own, which stays until the end; so do the unmodified steps.
Every round visits every variant and batch size once, in an order that changes. Only one process
works at a time. Variants that do not fit the memory together run in groups. Each has rounds of its
own, with the unmodified steps in all. Where the memory does not hold even two processes, they take
turns with it. In each round, each starts anew, visits every batch size and ends.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..base.errors import CurvescopeError
from ..profiling.hardware.memory_usage import empty_cache
from ..profiling.measure.configuration import configuration_of
from ..profiling.measure.loop import Progress
from ..profiling.measure.protocol import EXPERIMENT, Protocol
from ..profiling.measure.visits import FAILED, Empty, StepRow, Visit, VisitPlan
from ..profiling.recording.experiment_entries import record_experiment
from ..profiling.recording.experiments import TIME_IS_UP, Experiment, Stage
from ..profiling.recording.store import Recording, RecordingWriter
from .factor import Target
from .factors import step_change
from .program_worker import ProgramWorker
from .recorded_steps import target_of
from .replay.operator_kinds import on_cuda
from .runner import Condition, Row, Runner, Watch
from .step_worker import Number, Ready, StepWorker

# variants beside the unmodified steps: enough to share their rounds, few enough for the memory
MOST_AT_ONCE = 6
_LEAST_STARTS = 2  # of processes, where an experiment wants several
ENOUGH_STARTS = 5  # of processes, that an experiment takes though it becomes longer than usual
_STARTS_TO_DECIDE = 3  # of processes, after which an experiment may end because it is decided
# memory of a variant, in peaks of the unmodified steps: split, padded and compiled steps take more
MARGIN = 1.25
_NOTED_SHARE = 1.1  # of the memory of the unmodified steps: a variant that takes more is noted
_LEAST_START_S = 10.0
_START_FACTOR = 3.0  # time for the start of a variant, as a factor on that of the unmodified steps
# A visit is at most five steps, and the start of a worker one step of each batch size. A visit that
# takes so many times as long as the start hangs.
_LEAST_VISIT_S, _VISIT_SHARE = 120.0, 20.0
# Largest difference of results that counts as rounding, relative. Gradients of fp32 differ by 1e-5
# between libraries, of 16-bit formats by their 2^-8. A user's step may use any precision.
_ROUNDING = {"fp32": 1e-3}
_ROUNDING_ELSE = 2e-2
# First visits of starts discard so many numbers of steps in turn, where a step fills a visit: what
# the heap keeps differs from step to step, in the same order after each start.
_PHASES = 3
_SWEPT = ["batch", "round", "duration_ns", "profiled"]  # columns of the sweep's steps
_UNMODIFIED = "unmodified steps"
_FAILED = f"the {_UNMODIFIED} failed"
_TURNS = (
    "Processes took turns with the memory, which holds one of them: each started anew for every "
    "round."
)


def run_step(
    recording: Recording,
    experiment: Experiment,
    writer: RecordingWriter,
    watch: Watch | None = None,
    start: Callable[[Target, str | None], Worker] | None = None,
) -> Experiment:
    """Run an experiment on complete steps and record its timed steps, see `Runner.run`.

    `start` starts a worker; the default starts the recorded steps or program.
    """
    try:
        configuration = configuration_of(recording.meta)
    except CurvescopeError as error:
        done = replace(
            experiment, untested=dict.fromkeys(experiment.factors, str(error)), done=True
        )
        record_experiment(writer, done)
        return done
    empty_cache(configuration.device)  # of terms that ran in this process
    runner = StepRunner(experiment, writer, watch or Watch(), configuration.device)
    start = start or (StepWorker if configuration.program is None else ProgramWorker)
    runner.prepare(recording, target_of(recording, configuration, experiment.batches), start)
    return runner.run()


Worker = StepWorker | ProgramWorker


class _TooLateError(Exception):
    """A worker did not answer within its time."""


class StepRunner(Runner):
    """An experiment on complete steps, each variant in a process of its own."""

    def prepare(
        self, recording: Recording, target: Target, start: Callable[[Target, str | None], Worker]
    ) -> None:
        """Take the steps that it runs."""
        self._target, self._start_worker = target, start
        self._workers: dict[str | None, Worker] = {}
        self._running: set[str | None] = set()  # the variants that get visits
        self._first_group: list[str] = []  # what started together with the unmodified steps before
        self._turns = False  # whether one process at a time has the memory
        self._ready: dict[str | None, Ready] = {}
        self._start_s: dict[str | None, float] = {}  # duration of the first steps
        self._starts_left = 1
        self._visited: set[str | None] = set()  # the variants that had a visit after their start
        self._late = False  # whether the deadline left fewer rounds than the minimum
        self._protocol = replace(EXPERIMENT, rounds=self.experiment.rounds)
        self._is_program = target.configuration.program is not None
        self._swept = [row for row in recording.rows("steps", _SWEPT) if not row["profiled"]]

    def measure(self) -> bool:
        """Run all factors that can be changed, after each start; returns whether the time was
        enough for two.
        """
        possible = self.possible()
        if self.experiment.factors and not possible:
            return True
        try:
            return self._measure_starts(possible)
        finally:
            self._compare_with_sweep()

    def _measure_starts(self, possible: list[str]) -> bool:
        took_s = 0.0
        for start in itertools.count():
            began_s = self.elapsed_s
            waiting = [name for name in possible if name not in self.untested]
            if start and not (self._has_time_for(start, took_s) and (waiting or not possible)):
                break
            self._starts_left = max(self.experiment.starts - start, 1)
            enough = self._measure_started(waiting)
            if not enough:
                return start >= _LEAST_STARTS
            self.end()
            if start + 1 >= _STARTS_TO_DECIDE and self.watch.enough(self.rows):
                break
            took_s = self.elapsed_s - began_s
        return True

    def _has_time_for(self, start: int, took_s: float) -> bool:
        """Whether a further start is made: the plan allows more of them where they take less than
        expected.
        """
        planned, limit_s = self.experiment.starts, self.experiment.time_limit_s
        if start < min(planned, _LEAST_STARTS):
            return True
        if limit_s is None:
            return start < planned
        fixed = self.experiment.stage == Stage.SCREEN
        most = planned if fixed else max(planned, ENOUGH_STARTS)
        return start < most and self.elapsed_s + took_s <= limit_s

    def _measure_started(self, waiting: list[str]) -> bool:
        """Run factors in groups that fit the memory; returns whether the time was enough."""
        self._launch([None, *(name for name in self._first_group if name in waiting)])
        if (failed := self._start(None)) is not None:
            if not self._late:
                self.untested.update(dict.fromkeys(waiting, f"{_FAILED}: {failed}"))
                self.notes.append(f"The {_UNMODIFIED} failed: {failed}.")
            return not self._late
        first = True
        while (waiting or first) and not self._is_stopped:
            if self.left_s <= 0:
                self._late = True
                break
            first = False
            before = len(waiting)
            group = self._start_group(waiting)
            # which share the time left
            groups_left = math.ceil(len(waiting) / max(1, before - len(waiting)))
            conditions = [
                (name, batch) for name in (None, *group) for batch in self._target.batches
            ]
            # What comes first after starts is slow, while the machine recovers: each time it is
            # something else.
            seed = None if self._turns else self._starts_left
            rounds = self.run_rounds(conditions, 1 / (groups_left + 1) / self._starts_left, seed)
            self._late |= rounds < self.experiment.rounds[0] and not self._is_stopped
            for name in group:
                if name in self._running:
                    self._end(name)
                    if (
                        why := step_change(name).without_effect(self.ran(None), self.ran(name))
                    ) is not None:
                        self.untested[name] = why
        if not self._late:
            lost = [name for name in self.experiment.factors if not self.ran(name)]
            self.untested = dict.fromkeys(lost, _FAILED) | self.untested
        return not self._late

    def end(self) -> None:
        for name in [*self._workers]:
            self._end(name)
        self._running.clear()

    def _end(self, name: str | None) -> None:
        self._running.discard(name)
        if (worker := self._workers.pop(name, None)) is not None:
            worker.end()

    def entry(self, *, done: bool) -> Experiment:
        peaks = {name or "": ready.peak_bytes for name, ready in self._ready.items()}
        return replace(
            super().entry(done=done),
            setup_s={name or "": round(seconds, 1) for name, seconds in self._start_s.items()},
            memory_bytes={name: peak for name, peak in peaks.items() if peak is not None},
        )

    def is_finished(self, condition: Condition) -> bool:
        return self._is_stopped or condition[0] not in self._running

    def group(self, condition: Condition) -> Condition | str | None:
        """Where one process at a time has the memory, it visits all batch sizes at once."""
        return condition[0] if self._turns else condition

    def rows_to_decide(self) -> list[Row]:
        return [row for row in self.rows if row["factor"] in self._running]

    def expected_s(self, condition: Condition) -> float:
        """Of a first visit: as long as one of the unmodified steps took in the sweep."""
        batch = condition[1]
        step_s = self._swept_s(batch)
        steps = self._protocol.discarded_steps + self._protocol.steps_of_visit(
            batch, round(1e9 * step_s)
        )
        return steps * step_s

    def _swept_s(self, batch: int) -> float:
        return statistics.median(_medians(self._swept, batch) or [0.0]) / 1e9

    def _protocol_of(self, name: str | None, batch: int) -> Protocol:
        """How a visit measures; see `_PHASES`."""
        first = name not in self._visited
        self._visited.add(name)
        filled = self._protocol.is_filled_by(1e9 * self._swept_s(batch))
        if not (first and filled) or len(self._target.batches) > 1 or self._is_program:
            return self._protocol
        further = (self.experiment.starts - self._starts_left) % _PHASES
        return replace(self._protocol, discarded_steps=self._protocol.discarded_steps + further)

    def reason_against(self, name: str) -> str | None:
        return step_change(name).reason_against(self._target)

    def visit(self, condition: Condition) -> Visit | Empty:
        """Visit one variant, in its process."""
        name, batch = condition
        if name not in self._workers:
            for other in [*self._workers]:
                self._workers.pop(other).end()
            if (failed := self._start(name)) is not None:
                self._late |= self.left_s <= 0
                return Empty(FAILED, failed)
        longest_s = min(max(_LEAST_VISIT_S, _VISIT_SHARE * self._start_s[name]), self.left_s)
        how = VisitPlan(self._protocol_of(name, batch), profile=False)
        try:
            with step_change(name).around(self._target):
                return self._workers[name].visit(batch, how, self._refuse_after(longest_s))
        except _TooLateError:
            self._late |= self.left_s <= 0
            return Empty(FAILED, f"its steps took more than {longest_s:.0f} s")
        except CurvescopeError as error:
            return Empty(FAILED, str(error))

    def drop(self, condition: Condition, empty: Empty) -> None:
        """End a variant that failed; the others continue."""
        name, batch = condition
        if self._late:  # it took longer than those before it, so the rounds end here
            self._running.clear()
            return
        self._end(name)
        why = f"batch {batch}: {_clause(empty)}"
        if name is not None:
            self.untested[name] = why
            return
        self.notes.append(f"The {_UNMODIFIED} failed at {why}.")
        lost = [factor for factor in self._running if factor is not None]
        self.untested.update(dict.fromkeys(lost, f"{_FAILED} at {why}"))

    @property
    def _is_stopped(self) -> bool:
        return None not in self._running

    def _start_group(self, waiting: list[str]) -> list[str]:
        """Start the workers of as many factors as fit together; takes them, and those that fail,
        from `waiting`.

        If none fits beside the unmodified steps, all get turns with the memory.
        """
        group: list[str] = []
        self._launch(waiting[: self._room()])
        while waiting and len(group) < MOST_AT_ONCE:
            if waiting[0] not in self._workers and self._memory_is_short():
                if not group:
                    self._turns = True
                    self.notes.append(_TURNS)
                    group += waiting
                    waiting.clear()
                    self._running.update(group)
                break
            name = waiting.pop(0)
            if (failed := self._start(name)) is not None:
                self.untested[name] = failed
            else:
                group.append(name)
        self._first_group = self._first_group or ([] if self._turns else [*group])
        return group

    def _launch(self, names: Iterable[str | None]) -> None:
        """Start processes before waiting for any: they build their steps at the same time, each on
        a core.

        A GPU has one context after the other, and a program runs at each visit.
        """
        if self._is_program or self._turns or on_cuda(self.device):
            return
        for name in names:
            self._worker(name)

    def _worker(self, name: str | None) -> Worker:
        """The process of a variant; a new one where none has started."""
        if name not in self._workers:
            self._workers[name] = self._start_worker(self._target, name)
        return self._workers[name]

    def _room(self) -> int:
        """How many further workers fit the memory beside those that run."""
        peak, available = self._ready[None].peak_bytes, self._workers[None].available_bytes()
        if not peak or available is None:
            return MOST_AT_ONCE
        return min(max(math.floor(available / peak - MARGIN) + 1, 0), MOST_AT_ONCE)

    def _memory_is_short(self) -> bool:
        """Whether no further worker fits the memory; False if the memory is unknown."""
        return self._room() == 0

    def _start(self, name: str | None) -> str | None:
        limit_s, elapsed_s = self.experiment.time_limit_s, self.elapsed_s
        # Compiling takes minutes on large networks; half of the time is left for the rounds.
        least_s = max(_LEAST_START_S, _START_FACTOR * self._start_s.get(None, 0.0))
        longest_s = math.inf if limit_s is None else max(least_s, (limit_s - elapsed_s) / 2)
        longest_s = min(longest_s, self.left_s)
        if self.left_s <= self._start_s.get(name, 0.0):
            self._late = True
            self._end(name)
            return TIME_IS_UP
        self.watch.report(
            Progress(elapsed_s, max(elapsed_s, limit_s or 0.0), f"starting {name or _UNMODIFIED}")
        )
        worker = self._worker(name)
        why = f"its first steps took more than {longest_s:.0f} s of the time limit"
        try:
            ready = worker.warm_up(self._refuse_after(longest_s))
            if isinstance(ready, Ready):
                is_new = name not in self._ready
                self._ready[name] = ready
                self._start_s[name] = self.elapsed_s - elapsed_s
                self._running.add(name)
                self._visited.discard(name)
                if is_new and name is not None:
                    self._compare_results(name)
                    self._compare_memory(name)
                if not ready.quiet:
                    self.notes.append(
                        "Threads of waiting processes keep the cores busy and disturb the times: "
                        "set OMP_WAIT_POLICY=passive."
                    )
                return None
            why = _clause(ready)
        except _TooLateError:
            pass
        self._end(name)
        return why

    def _refuse_after(self, seconds: float) -> Callable[[], None]:
        until_s = self.elapsed_s + seconds

        def refuse() -> None:
            if self.elapsed_s > until_s:
                raise _TooLateError

        return refuse

    def _compare_memory(self, name: str) -> None:
        usual, now = self._ready[None].peak_bytes, self._ready[name].peak_bytes
        if usual is not None and now is not None and now > _NOTED_SHARE * usual:
            self.notes.append(
                f"The first steps took {now / 1e9:.2f} GB of memory with {name}, {usual / 1e9:.2f} "
                "GB unmodified."
            )

    def _compare_results(self, name: str) -> None:
        if (changed := step_change(name).changed_results(self._target)) is not None:
            self.changed_results[name] = changed
            return
        rounding = _ROUNDING.get(self._target.configuration.precision or "", _ROUNDING_ELSE)
        unmodified, results = self._ready[None], self._ready[name].results
        far = {
            batch: _difference(numbers, results.get(batch, ()))
            for batch, numbers in unmodified.results.items()
        }
        batch = max(far, key=lambda size: far[size], default=None)
        if batch is None or far[batch] <= rounding:
            return
        if unmodified.draws:
            self.notes.append(
                f"The steps draw random numbers, and {name} draws others: results were not "
                "compared."
            )
        else:
            what = f"the result of a step of batch {batch}"
            self.changed_results[name] = f"{what} differs by {far[batch]:.2g} of its size"

    def _compare_with_sweep(self) -> None:
        """Note batch sizes whose unmodified steps take another time than in the sweep.

        They do if no round of the one reaches the times of the other. With five rounds here and six
        there, 1 in 231 comparisons says so by chance.
        """
        for batch in self._target.batches:
            now, then = _medians(self.ran(None), batch), _medians(self._swept, batch)
            if not now or not then or (min(now) <= max(then) and min(then) <= max(now)):
                continue
            share = statistics.median(now) / statistics.median(then) - 1
            self.notes.append(
                f"Batch {batch}: the unmodified steps take {abs(share):.0%} "
                f"{'more' if share > 0 else 'less'} time than when the sweep ran."
            )


def _medians(rows: Iterable[StepRow], batch: int) -> list[float]:
    by_round: dict[int, list[int]] = {}
    for row in rows:
        if row["batch"] == batch:
            by_round.setdefault(row["round"], []).append(row["duration_ns"])
    return [float(statistics.median(times)) for times in by_round.values()]


def _difference(numbers: tuple[Number, ...], others: tuple[Number, ...]) -> float:
    if len(numbers) != len(others):
        return math.inf
    return max(
        (_relative(first, other) for first, other in zip(numbers, others, strict=True)), default=0.0
    )


def _relative(first: Number, other: Number) -> float:
    (value, scale), (changed, _) = first, other
    if value == changed or (math.isnan(value) and math.isnan(changed)):
        return 0.0
    difference = abs(value - changed) / scale if scale else math.inf
    return math.inf if math.isnan(difference) else difference


def _clause(empty: Empty) -> str:
    return empty.detail if empty.why == FAILED else f"{empty.why} ({empty.detail})"
