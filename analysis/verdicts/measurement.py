"""The measurement of one factor by one experiment, from the rows of the table `experiments`.

Every round of an experiment runs each batch size unmodified and with each factor. The time of a
batch size is the mean of the faster half of its rounds, each with the median of its runs; of
complete steps in several starts of the processes it is the mean over the starts. Where
complete steps have slow ones, with the factor or without, all steps count, as a program pays them.
Disturbed visits are set aside by factor, as in a sweep: a factor that makes threads wait costs no
other factor its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...base.words import Word
from ...profiling.attribution.step_pattern import have_slow_steps
from ...profiling.recording.disturbed import MOST_WAITING, SET_ASIDE, with_set_aside
from ...profiling.recording.experiments import Experiment, FactorFacts, Scope
from ..decompose.functionals import FIXED_COST
from ..decompose.statistics import (
    ALL_STEPS,
    FASTER_HALF,
    STATISTICS,
    Estimate,
    Floats,
    Ints,
    effective_rounds,
    estimate,
    fill_gaps,
    median_by_group,
    pool_variance,
    resample_rounds,
    share_estimate,
    share_of_log,
    widen,
)
from .contrast import REFUTED_BELOW, Removal, Times, pool_spreads, rest_of

_LEAST_LEFT = 0.01  # of a time, where what is taken from it is a difference of times with noise


class Effect(Word):
    """The effect of a factor on its cause."""

    REMOVING = "removes it"
    PARTIAL = "removes a part of it"  # the factor confirms it and cannot refute it
    # Batch sizes run at nearly the same size, which removes every bend; a proof only if one gets
    # faster.
    LEVELLING = "levels batch sizes"
    # The cause is brought about at the batch sizes without the anomaly, all but the largest: F' has
    # the changed times of these, and the largest one's unmodified. Confirmed if these slow down by
    # what the anomaly is, not by more.
    BRINGING = "brings it about"


def effect_of(facts: FactorFacts | None) -> Effect:
    """The effect of a factor on its cause, by its facts; a factor without facts removes it."""
    if facts is None:
        return Effect.REMOVING
    if facts.levels:
        return Effect.LEVELLING
    if facts.brings_about:
        return Effect.BRINGING
    return Effect.PARTIAL if facts.partial else Effect.REMOVING


def times_of(rounds_ms: Floats, statistic: str = FASTER_HALF) -> Times:
    """Times over batch sizes from rounds of one process, each a statistic of the rounds.

    Of times of shape (rounds, batch sizes), NaN for a visit that is set aside. Equal rounds give
    equal replicates of all tables.
    """
    take = STATISTICS[statistic]
    values, used = take(rounds_ms, 0), count_used(rounds_ms)
    drawn = take(fill_gaps(rounds_ms[resample_rounds(len(rounds_ms))], values), 1)
    if statistic == FASTER_HALF:
        drawn = widen(drawn, values, used)
    return Times(values, drawn, used, replicates=True)


def _times_of_starts(sides: Sequence[Floats], starts: Ints, statistic: str) -> list[Times]:
    """The same from starts of processes, by side: each start counts once, if no batch size of it is
    set aside whole.
    """
    numbers = np.unique(starts)
    by_start = []
    for rounds_ms in sides:
        times = [_time_of_start(rounds_ms[starts == number], statistic) for number in numbers]
        by_start.append(np.array(times))
    in_all_starts = ~np.isnan(np.sum(by_start, axis=0)).any(axis=1)
    blocks = np.full(by_start[0].shape[1], in_all_starts.sum())
    kept = (times[in_all_starts] for times in by_start)
    return [Times(times.mean(axis=0), times, blocks, replicates=False) for times in kept]


def _time_of_start(rounds_ms: Floats, statistic: str) -> Floats:
    """By batch size; NaN where all rounds are set aside."""
    is_timed = ~np.isnan(rounds_ms).all(axis=0)
    times = np.full(rounds_ms.shape[1], np.nan)
    times[is_timed] = STATISTICS[statistic](rounds_ms[:, is_timed], 0)
    return times


def _gains(unmodified: Times, changed: Times) -> tuple[Estimate, ...]:
    """Shares of the time that the changed times save, by batch size."""
    # Of two or three rounds, widen replicates may be no times; then they say nothing.
    logs = _log_ratios(changed.varied, unmodified.varied)
    if not unmodified.replicates:
        return tuple(share_estimate(of_batch, pool_variance([of_batch])) for of_batch in logs.T)
    values = _log_ratios(changed.value, unmodified.value)
    gains = []
    for place, value in enumerate(values.tolist()):
        blocks = [unmodified.blocks[place], changed.blocks[place]]
        rounds = effective_rounds(blocks, np.ones(2))
        gains.append(share_of_log(estimate(value, logs[:, place], rounds, 1.0)))
    return tuple(gains)


def _log_ratios(changed: Floats, unmodified: Floats) -> Floats:
    """Logarithms of changed times over unmodified ones; a time of 0, below the resolution of the
    clock, is as small as a number can be.
    """
    least = np.finfo(float).tiny
    return np.log(np.maximum(changed, least)) - np.log(np.maximum(unmodified, least))


class Side:
    """The runs of an experiment without a change, or with one factor, by round and batch size."""

    def __init__(self, rows: pd.DataFrame) -> None:
        """Number the rounds and the sizes of rows with a column `set_aside`."""
        self.rows = rows
        self.rounds, place = np.unique(_integers(rows["round"]), return_inverse=True)
        self.batches, self._size = np.unique(_integers(rows["batch"]), return_inverse=True)
        self._visit = place * len(self.batches) + self._size
        self._duration_ns = _numbers(rows["duration_ns"])
        self._is_aside = rows[SET_ASIDE].to_numpy(bool)

    def round_times(self, batches: Sequence[int], statistic: str = FASTER_HALF) -> Floats:
        """Time in ms of each round at some sizes, NaN without a run: the median of the runs, or the
        mean where T is the time of all steps.
        """
        take = _mean_by_visit if statistic == ALL_STEPS else median_by_group
        is_timed = ~np.isnan(self._duration_ns)
        times_ms = self._duration_ns[is_timed] / 1e6
        return self._at(take(times_ms, self._visit[is_timed], self._visits), batches)

    def without_aside(self, times_ms: Floats, batches: Sequence[int]) -> Floats:
        """All `round_times` of some sizes, with NaN where a visit is set aside."""
        aside = np.zeros(self._visits, bool)
        aside[self._visit] = self._is_aside
        return np.where(self._at(aside, batches), np.nan, times_ms)

    def has_slow_steps(self) -> bool:
        """Whether slow steps count at some size."""
        round_ = self.rows["round"].to_numpy(np.float64)
        for size in range(len(self.batches)):
            used = (self._size == size) & ~self._is_aside
            if have_slow_steps(self._duration_ns[used], round_[used]):
                return True
        return False

    def share_of_waiting_visits(self) -> float:
        """Share of the visits whose threads waited for a core, set aside or not; 0 where
        unknown.
        """
        if "run_queue_wait_ns" not in self.rows or self.rows.empty:
            return 0.0
        waits_ns = np.nan_to_num(_numbers(self.rows["run_queue_wait_ns"]))
        waited_ns = np.bincount(self._visit, waits_ns)
        together_ns = np.bincount(self._visit, np.nan_to_num(self._duration_ns))
        has_waited = waited_ns > MOST_WAITING * together_ns
        return float(has_waited[np.unique(self._visit)].mean())

    def mean_step_ns(self) -> float:
        """Mean time of a step, all sizes together and set aside or not."""
        return self._mean(self._duration_ns)

    def mean_wait_ns(self) -> float:
        """Mean time that its threads waited for a core, as `mean_step_ns`; 0 where unknown."""
        if "run_queue_wait_ns" not in self.rows:
            return 0.0
        return self._mean(np.nan_to_num(_numbers(self.rows["run_queue_wait_ns"])))

    def _mean(self, values: Floats) -> float:
        """The mean of the sizes' own means: each size counts once."""
        is_timed = ~np.isnan(values)
        steps = np.bincount(self._size[is_timed])
        sums = np.bincount(self._size[is_timed], values[is_timed])
        return float((sums[steps > 0] / steps[steps > 0]).mean()) if steps.any() else 0.0

    @property
    def _visits(self) -> int:
        return len(self.rounds) * len(self.batches)

    def _at(self, by_visit: npt.NDArray[Any], batches: Sequence[int]) -> npt.NDArray[Any]:
        table = by_visit.reshape(len(self.rounds), len(self.batches))
        return table[:, np.searchsorted(self.batches, batches)]


def _integers(column: pd.Series[Any]) -> Ints:
    return np.asarray(column, np.int64)


def _numbers(column: pd.Series[Any]) -> Floats:
    return np.asarray(column.to_numpy(np.float64, na_value=np.nan), np.float64)


def _mean_by_visit(values: Floats, visit: Ints, visits: int) -> Floats:
    """Means of each visit; NaN of none."""
    counts = np.bincount(visit, minlength=visits)
    sums = np.bincount(visit, values, minlength=visits)
    means = np.full(visits, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _statistic_of(experiment: Experiment, sides: Sequence[Side]) -> str:
    """The statistic of its times: the mean of all where complete steps of a side have slow ones."""
    if experiment.scope != Scope.STEP:
        return FASTER_HALF
    return ALL_STEPS if any(side.has_slow_steps() for side in sides) else FASTER_HALF


def count_used(times_ms: Floats) -> Any:
    """Number of rounds of every batch size that are not set aside."""
    return np.count_nonzero(~np.isnan(times_ms), axis=0)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The measurement of one factor by an experiment; without a factor, of the unmodified runs."""

    experiment: Experiment  # the experiment
    factor: str | None  # name of the changed factor; None for the runs without a change
    # description of the factor; None without a factor, or if the recording does not have it
    facts: FactorFacts | None = None
    # number of rounds in which all batch sizes ran, both unmodified and with the factor
    rounds: int = 0
    starts: int = 0  # number of starts of the processes in which they did
    batches: tuple[int, ...] = ()  # batch sizes of the experiment, increasing
    times_ms: tuple[Estimate, ...] = ()  # unmodified times, by batch size; empty if nothing ran
    # times with the factor, by batch size; empty without a factor, or if it did not run
    changed_ms: tuple[Estimate, ...] = ()
    value: Estimate | None = None  # F in ms; None if it was not measured
    # F' with the factor in ms; None without a factor, or if it did not run. For a factor that
    # brings its cause about, the largest batch size is unmodified in F'
    changed: Estimate | None = None
    # F − F' in ms, at one speed, see `contrast`; its interval is infinite with one start of
    # processes. None as for `changed`
    removed: Estimate | None = None
    # share removed, (F − F')/F; its interval is infinite where F may be 0. None as for `changed`
    taken: Estimate | None = None
    # one-sided p of a share of at most a fifth; None as for `changed`
    p_little: float | None = None
    freedom: float = 0.0  # degrees of freedom of `removed`; 0 without an interval
    # share of the time saved by the factor, 1 − T'/T, by batch size; empty as `changed_ms`
    gains: tuple[Estimate, ...] = ()
    # whether it saves what other work costs: many unmodified visits waited for a core, and with the
    # factor few did
    beside_work: bool = False
    # logarithm of T'/T, by batch size, for each start of the processes; empty as `changed_ms`
    ratios: tuple[tuple[float, ...], ...] = ()

    @property
    def effect(self) -> Effect:
        """The effect of the factor on its cause."""
        return effect_of(self.facts)

    @property
    def can_refute(self) -> bool:
        """Whether it says something against the cause if the factor removes nothing."""
        return self.facts is None or not self.facts.partial

    @property
    def why_not(self) -> str | None:
        """Reason, if it did not run."""
        if self.rounds:
            return None
        missing = "it did not run" if self.experiment.done else "the experiment did not reach it"
        return self.experiment.untested.get(self.factor or "", missing)

    @property
    def gain_index(self) -> int:
        """Index of the batch size at which a gain counts: the smallest for a fixed cost, else the
        one that is slow, which the sign of the value tells.
        """
        if self.experiment.functional_kind == FIXED_COST or self.value is None:
            return 0
        sign = float(np.sign(self.value.value))
        weights = dict(self.experiment.functional)
        slow = max(self.batches, key=lambda batch: sign * weights.get(batch, 0.0))
        return self.batches.index(slow)

    @property
    def saved_ms(self) -> float:
        """Part of F that the factor removes by making batch sizes faster."""
        sign = float(np.sign(self.value.value)) if self.value else 0.0
        weights = dict(self.experiment.functional)
        saved_ms = 0.0
        for batch, before, after in zip(self.batches, self.times_ms, self.changed_ms, strict=True):
            weight = max(sign * weights.get(batch, 0.0), 0.0)
            saved_ms += weight * max(before.value - after.value, 0.0)
        return saved_ms

    @property
    def gain(self) -> Estimate | None:
        """Share of the time saved at the batch size that counts; None if the factor did not run."""
        return self.gains[self.gain_index] if self.gains else None


def compare_rows(experiment: Experiment, rows: pd.DataFrame) -> list[list[Side]]:
    """The unmodified runs of an experiment, alone and beside the runs of each factor: the same for
    all its functionals.
    """
    unmodified = rows["factor"].isna().to_numpy()
    compared = []
    for factor in (None, *experiment.factors):
        changed = (rows["factor"] == factor).to_numpy(bool, na_value=False)
        both = with_set_aside(rows[unmodified | changed])
        # Of the members of a group one ran, and counted its own time.
        both = both.assign(duration_ns=both["duration_ns"] * experiment.members)
        is_changed = changed[unmodified | changed]
        sides = [Side(both[~is_changed])]
        if factor is not None:
            sides.append(Side(both[is_changed]))
        compared.append(sides)
    return compared


def measure(
    experiment: Experiment, compared: Sequence[Sequence[Side]], facts: Mapping[str, FactorFacts]
) -> Iterator[tuple[Measurement, Removal | None]]:
    """The measurements of an experiment with one functional: without a factor, then of each, with
    the times behind it.
    """
    comparisons = []
    for factor, sides in zip((None, *experiment.factors), compared, strict=True):
        comparisons.append(_compare(experiment, factor, facts.get(factor or ""), sides))
    removals = [comparison.removal() for comparison in comparisons]
    together = iter(pool_spreads([removal for removal in removals if removal is not None]))
    for comparison, own in zip(comparisons, removals, strict=True):
        removal = None if own is None else next(together)
        yield comparison.measurement(removal), removal


@dataclass(frozen=True)
class _Comparison:
    """The times of one factor beside the unmodified ones, or these alone."""

    experiment: Experiment
    factor: str | None
    facts: FactorFacts | None
    rounds: int = 0  # in which all sizes ran
    batches: tuple[int, ...] = ()
    # unmodified times, then those with the factor; empty if nothing ran
    shown: Sequence[Times] = ()
    judged: Sequence[Times] = ()  # the same, of complete steps by start of the processes
    beside_work: bool = False  # see `Measurement`

    @property
    def effect(self) -> Effect:
        """The effect of the factor on its cause."""
        return effect_of(self.facts)

    @cached_property
    def weights(self) -> Floats | None:
        """The functional by batch size; None if there is none, or if some of its sizes did not
        run.
        """
        coefficients = dict(self.experiment.functional)
        if not coefficients or not coefficients.keys() <= set(self.batches):
            return None
        return np.array([coefficients.get(batch, 0.0) for batch in self.batches])

    def removal(self) -> Removal | None:
        """The functional of both sides; None without one, or without a factor."""
        if self.weights is None or self.factor is None:
            return None
        kind, coefficients = self.experiment.functional_kind, dict(self.experiment.functional)
        rest = rest_of(kind, coefficients, self.batches)
        changed = self._take_changed(self.judged)
        return Removal.of(self.judged[0], changed, self.weights, rest)

    def measurement(self, removal: Removal | None) -> Measurement:
        """The measurement, with the removal by the factor."""
        subject = Measurement(experiment=self.experiment, factor=self.factor, facts=self.facts)
        if not self.shown:
            return subject
        measured: dict[str, Any] = {
            "rounds": self.rounds,
            "starts": 1 if self.judged[0].replicates else len(self.judged[0].varied),
            "batches": self.batches,
            "times_ms": self.shown[0].by_batch(),
        }
        if self.weights is not None:
            measured["value"] = self.shown[0].total(self.weights)
        if self.factor is not None:
            measured |= self._gain()
        if removal is not None:
            measured |= self._measure_removal(removal)
        return replace(subject, **measured)

    def _take_changed(self, sides: Sequence[Times]) -> Times:
        """The changed times; where a factor brings its cause about, the times of the largest batch
        size stay as they are.
        """
        if self.effect != Effect.BRINGING:
            return sides[-1]
        largest = max(batch for batch, _ in self.experiment.functional)
        return sides[-1].with_times_of(sides[0], np.array(self.batches) == largest)

    def _gain(self) -> dict[str, Any]:
        """The savings by the factor."""
        unmodified, changed = self.judged[0], self.judged[-1]
        gain: dict[str, Any] = {
            "changed_ms": self.shown[-1].by_batch(),
            "gains": _gains(unmodified, changed),
            "beside_work": self.beside_work,
        }
        if not unmodified.replicates:
            logs = np.log(changed.varied / unmodified.varied)
            gain["ratios"] = tuple(tuple(map(float, start)) for start in logs)
        return gain

    def _measure_removal(self, removal: Removal) -> dict[str, Any]:
        """The part of the functional that the factor removes."""
        assert self.weights is not None
        removed, taken = removal.estimate_removal()
        p_little, _ = removal.p_values(REFUTED_BELOW, REFUTED_BELOW)
        return {
            "changed": self._take_changed(self.shown).total(self.weights),
            "removed": removed,
            "taken": taken,
            "p_little": p_little,
            "freedom": removal.spread.freedom,
        }


_MANY_WAIT = 1 / 3  # of the unmodified visits
_LEAST_AVOIDED = 0.5  # waits, of the time saved: threads that spin wait as long beside each


def _saves_waits(unmodified: Side, changed: Side) -> bool:
    """Whether a factor may save only the waits for a core of a machine with other work.

    The waits that it avoids are then at least half of the time that it saves.
    """
    time_ns, changed_time_ns = unmodified.mean_step_ns(), changed.mean_step_ns()
    waits_ns, changed_waits_ns = unmodified.mean_wait_ns(), changed.mean_wait_ns()
    saved_ns = time_ns - changed_time_ns
    avoided_ns = waits_ns - changed_waits_ns
    many_wait = unmodified.share_of_waiting_visits() >= _MANY_WAIT
    return many_wait and avoided_ns > 0 and avoided_ns >= _LEAST_AVOIDED * saved_ns


def _starts(rows: pd.DataFrame, rounds: Sequence[int]) -> Ints:
    """The start of processes that each round belongs to: the process of its unmodified steps.

    All processes of an experiment start together.
    """
    processes: dict[int, int] = {}
    if "process" in rows:
        unmodified = rows[rows["factor"].isna() & rows["process"].notna()]
        for round_, process in zip(unmodified["round"], unmodified["process"], strict=True):
            processes[int(round_)] = int(process)
    return np.array([processes.get(round_, 0) for round_ in rounds], np.int64)


# Of a functional that an experiment also tests, where the waves are of other batch sizes.
_NO_WAVE = "no recorded grid of a kernel says at which batch sizes the last wave of its own is full"


def _by_size(times: Times, experiment: Experiment) -> list[Times]:
    """Times of the batch sizes, from the times of all runs, and these without the empty part of the
    last wave of blocks.
    """
    sizes, batches = experiment.unmodified, experiment.batches
    empty = np.zeros((len(sizes), len(batches)))
    for wave in experiment.waves:
        for size, cost in wave.cost().items():
            if size in sizes and wave.batch in batches:
                empty[sizes.index(size), batches.index(wave.batch)] = cost
    own = [sizes.index(batch) for batch in batches]
    # An empty part costs something: where the times say less than nothing, blocks do not run in
    # waves.
    costs = times.value @ empty > 0

    def without(values: Floats) -> Floats:
        usual = values[..., own]
        return np.asarray(np.maximum(usual - values @ empty * costs, _LEAST_LEFT * usual))

    unmodified = replace(
        times, value=times.value[own], varied=times.varied[:, own], blocks=times.blocks[own]
    )
    filled = replace(unmodified, value=without(times.value), varied=without(times.varied))
    return [unmodified, filled]


class _Rounds(NamedTuple):
    """The rounds in which every wanted size ran on all sides."""

    sizes: tuple[int, ...]
    numbers: list[int]
    times_ms: list[Floats]  # by side, shape (rounds, sizes); NaN for a visit that is set aside


def _compare(
    experiment: Experiment, factor: str | None, facts: FactorFacts | None, sides: Sequence[Side]
) -> _Comparison:
    """Compare one factor of an experiment with the unmodified runs."""
    if facts is not None and facts.by_size:
        return _compare_sizes(experiment, str(factor), facts, sides[:1])
    statistic = _statistic_of(experiment, sides)
    ran = _find_rounds(experiment.batches, sides, statistic)
    if ran is None or (factor or "") in experiment.untested:
        return _Comparison(experiment, factor, facts)
    shown, judged = _take_times(experiment, ran, sides[0], statistic)
    beside_work = factor is not None and _saves_waits(*sides)
    return _Comparison(
        experiment, factor, facts, len(ran.numbers), ran.sizes, shown, judged, beside_work
    )


def _compare_sizes(
    experiment: Experiment, factor: str, facts: FactorFacts, sides: Sequence[Side]
) -> _Comparison:
    """Compare sizes as they ran with the same without the empty part of their last wave of blocks,
    which unmodified runs of further sizes tell.
    """
    waves = {wave.batch for wave in experiment.waves}
    if not waves & dict(experiment.functional).keys():
        untested = {**experiment.untested, factor: _NO_WAVE}
        return _Comparison(replace(experiment, untested=untested), factor, facts)
    statistic = _statistic_of(experiment, sides)
    ran = _find_rounds(experiment.unmodified, sides, statistic)
    if ran is None or factor in experiment.untested or ran.sizes != experiment.unmodified:
        return _Comparison(experiment, factor, facts)
    shown, _ = _take_times(experiment, ran, sides[0], statistic)
    both = _by_size(shown[0], experiment)
    return _Comparison(experiment, factor, facts, len(ran.numbers), experiment.batches, both, both)


def _find_rounds(wanted: Sequence[int], sides: Sequence[Side], statistic: str) -> _Rounds | None:
    """The rounds that count; None if there is none."""
    sizes = tuple(size for size in wanted if all(size in side.batches for side in sides))
    if not sizes:
        return None
    tables = [side.round_times(sizes, statistic) for side in sides]
    complete = [~np.isnan(table).any(axis=1) for table in tables]
    each = zip(sides, complete, strict=True)
    numbers = reduce(np.intersect1d, [side.rounds[whole] for side, whole in each])
    if not len(numbers):
        return None
    times_ms = []
    for side, table in zip(sides, tables, strict=True):
        times_ms.append(side.without_aside(table, sizes)[np.searchsorted(side.rounds, numbers)])
    return _Rounds(sizes, numbers.tolist(), times_ms)


def _take_times(
    experiment: Experiment, ran: _Rounds, unmodified: Side, statistic: str
) -> tuple[Sequence[Times], Sequence[Times]]:
    """The times of every side, as they are shown and as they are judged.

    Complete steps are judged by start of the processes, and shown so where there are several.
    """
    judged: Sequence[Times] = ()
    if experiment.scope == Scope.STEP:
        judged = _times_of_starts(ran.times_ms, _starts(unmodified.rows, ran.numbers), statistic)
        if len(judged[0].varied) > 1:
            return judged, judged
    shown = [times_of(rounds_ms, statistic) for rounds_ms in ran.times_ms]
    return shown, judged or shown
