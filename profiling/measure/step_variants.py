"""Experiments on complete steps: unprofiled steps with one factor changed at a time, in interleaved rounds.

Each variant runs in a process of its own, which stays until the end; so do the steps as they are. Every round visits
every variant and batch size once, in an order that changes, and only one process works at a time. Variants that do not
fit the memory together take turns in groups, each with rounds of its own and the steps as they are in all of them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..errors import CurvescopeError
from ..recording.experiments import TIME_IS_UP, Experiment, FactorFacts, record_experiment
from ..recording.store import Recording, RecordingWriter, columns_of
from . import experiment as loop
from .configuration import Configuration, configuration_of
from .experiment import Empty, Progress, StepRow
from .protocol import EXPERIMENT
from .step_factors import STEP_FACTORS
from .step_factors.factor import StepFactor, Target
from .step_worker import Number, Ready, StepWorker

MOST_AT_ONCE = 6  # variants beside the steps as they are: enough to share their rounds, few enough for the memory
_MARGIN = 1.25  # memory of a variant, in peaks of the steps as they are: split, padded and compiled steps take more
_NOTED_SHARE = 1.1  # of the memory of the steps as they are: a variant that takes more is noted
_LEAST_START_S = 10.0
_START_FACTOR = 3.0  # time for the start of a variant, as a factor on that of the steps as they are
# A visit is at most five steps, and the start of a worker one step of each batch size. A visit that takes so many times
# as long as the start hangs.
_LEAST_VISIT_S, _VISIT_SHARE = 120.0, 20.0
# Largest difference of results that counts as rounding, relative. Gradients of fp32 differ by 1e-5 between libraries,
# of 16-bit formats by their 2^-8. A user's step may use any precision.
_ROUNDING = {"fp32": 1e-3}
_ROUNDING_ELSE = 2e-2


def run_step(
    recording: Recording,
    experiment: Experiment,
    writer: RecordingWriter,
    report: Callable[[Progress], object] = lambda _: None,
    clock_s: Callable[[], float] = time.monotonic,
    start: Callable[[Target, str | None], StepWorker] = StepWorker,
    enough: Callable[[Sequence[StepRow]], bool] = lambda _: False,
) -> Experiment:
    """Run an experiment on complete steps and record its timed steps.

    Args:
        recording: recording whose steps are changed; its `recording.json` says how to build them.
        experiment: the experiment, with scope `step`.
        writer: writer that extends the recording.
        report: function that receives the progress after every visit.
        clock_s: clock of the time limit, which includes the start of the workers.
        start: function that starts the worker of a factor, or of the steps as they are for None.
        enough: whether its rows so far decide it; asked after every round beyond the minimum.

    Returns:
        The experiment as recorded: factors that could not be changed, changed results and notes are filled in.

    Raises:
        CurvescopeError: the recording cannot be written.
        KeyboardInterrupt: passed on; the timed steps so far are recorded.
    """
    try:
        configuration = configuration_of(recording.meta)
    except CurvescopeError as error:
        done = replace(experiment, untested=dict.fromkeys(experiment.factors, str(error)), done=True)
        record_experiment(writer, done)
        return done
    full_bytes = _full_bytes(recording, configuration, experiment.batches[-1])
    target = Target(configuration, experiment.batches, full_bytes)
    run = _Run(recording, experiment, target, writer, report, clock_s, start, enough)
    try:
        run.run()
        return run.record(done=not run.late)
    except BaseException:
        run.record(done=False)
        raise
    finally:
        run.end()


class _TooLateError(Exception):
    """A worker did not answer within its time."""


class _Run:
    """One experiment while it runs."""

    def __init__(
        self,
        recording: Recording,
        experiment: Experiment,
        target: Target,
        writer: RecordingWriter,
        report: Callable[[Progress], object],
        clock_s: Callable[[], float],
        start: Callable[[Target, str | None], StepWorker],
        enough: Callable[[Sequence[StepRow]], bool],
    ) -> None:
        self._recording, self._experiment, self._target, self._writer = recording, experiment, target, writer
        self._report, self._clock_s, self._start_worker, self._enough = report, clock_s, start, enough
        self._began_s = clock_s()
        self._workers: dict[str | None, StepWorker] = {}
        self._ready: dict[str | None, Ready] = {}
        self._start_s: dict[str | None, float] = {}  # duration of the first steps
        self.late = False  # whether the deadline left fewer rounds than the minimum
        self._untested: dict[str, str] = dict(experiment.untested)
        self._changed: dict[str, str] = dict(experiment.changed_results)
        self._facts: list[FactorFacts] = []
        self._notes: list[str] = list(experiment.notes)
        self._rows: list[StepRow] = []  # of the round that runs
        self._timed: dict[str | None, list[StepRow]] = {}  # all rows, by factor
        rows = recording.arrow("experiments", ["experiment", "round"]).to_pylist()
        earlier = [row["round"] for row in rows if row["experiment"] == experiment.number]
        self._next_round = max(earlier, default=-1) + 1
        self._protocol = replace(EXPERIMENT, rounds=experiment.rounds)

    def run(self) -> None:
        """Run all factors that can be changed."""
        waiting = self._possible()
        if self._experiment.factors and not waiting:
            return
        if (failed := self._start(None)) is not None:
            if self.late:
                self._untested.update(dict.fromkeys(waiting, TIME_IS_UP))
                return
            self._untested.update(dict.fromkeys(waiting, f"the steps as they are failed: {failed}"))
            self._notes.append(f"The steps as they are failed: {failed}.")
            return
        first = True
        while (waiting or first) and not self._stopped:
            if self._left_s() <= 0:
                self.late = True
                break
            first = False
            before = len(waiting)
            group = self._start_group(waiting)
            self._run_rounds(math.ceil(len(waiting) / max(1, before - len(waiting))))
            for name in group:
                if name in self._workers:
                    self._workers.pop(name).end()
                    self._check_effect(name)
        for name in self._experiment.factors:
            if name not in self._timed:
                self._untested.setdefault(name, TIME_IS_UP if self.late else "the steps as they are failed")
        self._compare_with_sweep()

    def record(self, *, done: bool) -> Experiment:
        """Write the rows and the entry of the experiment as it is now."""
        self._write_rows()
        known = self._experiment.factors
        now = replace(
            self._experiment,
            untested={name: self._untested[name] for name in known if name in self._untested},
            changed_results={name: self._changed[name] for name in known if name in self._changed},
            notes=tuple(dict.fromkeys(self._notes)),
            done=done,
        )
        record_experiment(self._writer, now, self._facts)
        return now

    def end(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    @property
    def _stopped(self) -> bool:
        """Whether the steps as they are can no longer run."""
        return None not in self._workers

    def _possible(self) -> list[str]:
        """The factors that can be changed, as far as is known before a worker starts."""
        possible = []
        for name in self._experiment.factors:
            if name not in STEP_FACTORS:
                self._untested[name] = "it is no factor of complete steps"
                continue
            factor: StepFactor = STEP_FACTORS[name](self._target)
            self._facts.append(factor.facts)
            if (why := factor.reason_against()) is not None:
                self._untested[name] = why
            else:
                possible.append(name)
        return possible

    def _start_group(self, waiting: list[str]) -> list[str]:
        """Start the workers of as many factors as fit together; takes them, and those that fail, from `waiting`."""
        group: list[str] = []
        while waiting and len(group) < MOST_AT_ONCE:
            if (short := self._memory_short()) is not None:
                if not group:  # no other group will have more
                    self._untested.update(dict.fromkeys(waiting, short))
                    waiting.clear()
                break
            name = waiting.pop(0)
            if (failed := self._start(name)) is not None:
                self._untested[name] = failed
            else:
                group.append(name)
                self._compare_results(name)
                self._compare_memory(name)
        return group

    def _memory_short(self) -> str | None:
        """The reason why no further worker fits the memory; None if one does or the memory is unknown."""
        peak, available = self._ready[None].peak_bytes, self._workers[None].available_bytes()
        if peak is None or available is None or _MARGIN * peak <= available:
            return None
        return (
            f"a further process of these steps needs {_MARGIN * peak / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available"
        )

    def _start(self, name: str | None) -> str | None:
        """Start the worker of a factor and warm it up; returns the reason if that failed."""
        limit_s = self._experiment.time_limit_s
        elapsed_s = self._clock_s() - self._began_s
        # Compiling takes minutes on large networks; half of the time is left for the rounds.
        least_s = max(_LEAST_START_S, _START_FACTOR * self._start_s.get(None, 0.0))
        longest_s = math.inf if limit_s is None else max(least_s, (limit_s - elapsed_s) / 2)
        longest_s = min(longest_s, self._left_s())
        if longest_s <= 0:
            self.late = True
            return TIME_IS_UP
        self._report(Progress(elapsed_s, max(elapsed_s, limit_s or 0.0), f"starting {name or 'the steps as they are'}"))
        worker = self._workers[name] = self._start_worker(self._target, name)
        why = f"its first steps took more than {longest_s:.0f} s of the time limit"
        try:
            ready = worker.warm_up(self._refuse_after(longest_s))
            if isinstance(ready, Ready):
                self._ready[name] = ready
                self._start_s[name] = self._clock_s() - self._began_s - elapsed_s
                if not ready.quiet:
                    self._notes.append(
                        "Threads of waiting processes keep the cores busy and disturb the times: set "
                        "OMP_WAIT_POLICY=passive."
                    )
                return None
            why = _clause(ready)
        except _TooLateError:
            pass
        self._workers.pop(name).end()
        return why

    def _left_s(self) -> float:
        """Time until the deadline."""
        deadline_s = self._experiment.deadline_s
        return math.inf if deadline_s is None else deadline_s - (self._clock_s() - self._began_s)

    def _refuse_after(self, seconds: float) -> Callable[[], None]:
        """A function that refuses to wait any longer once the seconds are over."""
        until_s = self._clock_s() + seconds

        def refuse() -> None:
            if self._clock_s() > until_s:
                raise _TooLateError

        return refuse

    def _compare_memory(self, name: str) -> None:
        """Note a variant whose process takes more memory."""
        usual, now = self._ready[None].peak_bytes, self._ready[name].peak_bytes
        if usual is not None and now is not None and now > _NOTED_SHARE * usual:
            self._notes.append(
                f"The first steps took {now / 1e9:.2f} GB of memory with {name}, {usual / 1e9:.2f} GB as they are."
            )

    def _compare_results(self, name: str) -> None:
        """Compare the results of a variant's first steps with those of the steps as they are."""
        factor = STEP_FACTORS[name](self._target)
        if (changed := factor.changed_results()) is not None:
            self._changed[name] = changed
            return
        rounding = _ROUNDING.get(self._target.configuration.precision or "", _ROUNDING_ELSE)
        unchanged, results = self._ready[None], self._ready[name].results
        far = {batch: _difference(numbers, results.get(batch, ())) for batch, numbers in unchanged.results.items()}
        batch = max(far, key=lambda one: far[one], default=None)
        if batch is None or far[batch] <= rounding:
            return
        if unchanged.draws:
            self._notes.append(f"The steps draw random numbers, and {name} draws others: results were not compared.")
        else:
            self._changed[name] = f"the result of a step of batch {batch} differs by {far[batch]:.2g} of its size"

    def _run_rounds(self, groups_left: int) -> None:
        """Run rounds over the workers that run now.

        Args:
            groups_left: number of groups that follow, which share the time left.
        """
        elapsed_s, limit_s = self._clock_s() - self._began_s, self._experiment.time_limit_s
        first_round, left_s = self._next_round, self._left_s()
        rounds = loop.Experiment(
            [(name, batch) for name in self._workers for batch in self._target.batches],
            lambda condition, round_: self._visit(*condition, first_round + round_),
            self._experiment.rounds,
            None if limit_s is None else (limit_s - elapsed_s) / (groups_left + 1),
            left_s / (groups_left + 1),
            finished=lambda condition: self._stopped or condition[0] not in self._workers,
            precise=lambda: self._enough([row for name in self._workers for row in self._timed.get(name, ())]),
            begin_round=self._begin_round,
            label=lambda condition: f"{condition[0] or 'as it is'}, batch {condition[1]}",
            report=lambda progress: self._report_rounds(progress, elapsed_s),
            clock_s=self._clock_s,
        ).run()
        self.late |= rounds < self._experiment.rounds[0] and not self._stopped

    def _begin_round(self) -> None:
        self._write_rows()
        self._next_round += 1

    def _report_rounds(self, progress: Progress, before_s: float) -> None:
        elapsed_s = progress.elapsed_s + before_s
        expected_s = max(progress.expected_s + before_s, self._experiment.time_limit_s or 0.0)
        self._report(Progress(elapsed_s, expected_s, progress.doing))

    def _visit(self, name: str | None, batch: int, round_: int) -> None:
        """Visit one variant; one that fails ends, and the others continue."""
        if name not in self._workers:  # it ended in this round
            return
        longest_s = max(_LEAST_VISIT_S, _VISIT_SHARE * self._start_s[name])
        try:
            timed = self._workers[name].visit(batch, self._protocol, self._refuse_after(longest_s))
        except _TooLateError:
            timed = Empty("failed", f"its steps took more than {longest_s:.0f} s")
        if isinstance(timed, Empty):
            self._workers.pop(name).end()
            why = f"batch {batch}: {_clause(timed)}"
            if name is not None:
                self._untested[name] = why
                return
            self._notes.append(f"The steps as they are failed at {why}.")
            lost = [factor for factor in self._workers if factor is not None]
            self._untested.update(dict.fromkeys(lost, f"the steps as they are failed at {why}"))
            return
        key = {"experiment": self._experiment.number, "factor": name, "batch": batch, "round": round_}
        rows = [{**key, "index": index, **row} for index, row in enumerate(timed)]
        self._rows += rows
        self._timed.setdefault(name, []).extend(rows)

    def _check_effect(self, name: str) -> None:
        """Take a factor for untested if its change did not take effect."""
        unchanged, changed = (self._timed.get(one, []) for one in (None, name))
        if (why := STEP_FACTORS[name](self._target).without_effect(unchanged, changed)) is not None:
            self._untested[name] = why

    def _write_rows(self) -> None:
        if self._rows:
            self._writer.write("experiments", columns_of(self._rows))
        self._rows = []

    def _compare_with_sweep(self) -> None:
        """Note batch sizes whose steps as they are take another time than in the sweep.

        They do if no round of the one reaches the times of the other: with five rounds here and six there, 1 in 231
        comparisons says so by chance.
        """
        columns = ["batch", "round", "duration_ns", "profiled"]
        swept = [row for row in self._recording.arrow("steps", columns).to_pylist() if not row["profiled"]]
        for batch in self._target.batches:
            now, then = _medians(self._timed.get(None, []), batch), _medians(swept, batch)
            if not now or not then or (min(now) <= max(then) and min(then) <= max(now)):
                continue
            share = statistics.median(now) / statistics.median(then) - 1
            self._notes.append(
                f"Batch {batch}: the steps as they are take {abs(share):.0%} {'more' if share > 0 else 'less'} time "
                "than when the sweep ran."
            )


def _full_bytes(recording: Recording, configuration: Configuration, largest: int) -> dict[int, int]:
    """Memory with which the steps of each batch size are as full as those of the largest, see `Target`."""
    capacity = configuration.memory_limit_bytes or (recording.meta.get("device") or {}).get("memory_bytes")
    peaks: dict[int, int] = {}
    for row in recording.arrow("steps", ["batch", "peak_memory_bytes", "profiled"]).to_pylist():
        if row["peak_memory_bytes"] and not row["profiled"]:
            peaks[row["batch"]] = max(peaks.get(row["batch"], 0), row["peak_memory_bytes"])
    if capacity is None or largest not in peaks:
        return {}
    return {batch: round(capacity * peak / peaks[largest]) for batch, peak in peaks.items()}


def _medians(rows: Iterable[StepRow], batch: int) -> list[float]:
    """Median time of each round of a batch size, ns."""
    by_round: dict[int, list[int]] = {}
    for row in rows:
        if row["batch"] == batch:
            by_round.setdefault(row["round"], []).append(row["duration_ns"])
    return [float(statistics.median(times)) for times in by_round.values()]


def _difference(numbers: tuple[Number, ...], others: tuple[Number, ...]) -> float:
    """Largest difference of two results, relative to their scale; infinite if they have different forms."""
    if len(numbers) != len(others):
        return math.inf
    return max((_relative(one, other) for one, other in zip(numbers, others, strict=True)), default=0.0)


def _relative(one: Number, other: Number) -> float:
    (value, scale), (changed, _) = one, other
    if value == changed or (math.isnan(value) and math.isnan(changed)):
        return 0.0
    difference = abs(value - changed) / scale if scale else math.inf
    return math.inf if math.isnan(difference) else difference


def _clause(empty: Empty) -> str:
    """The reason of a failure as a clause."""
    return empty.detail if empty.why == "failed" else f"{empty.why} ({empty.detail})"
