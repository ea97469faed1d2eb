"""What one experiment measured of one factor, from the rows of the table `experiments`.

Every round of an experiment runs each batch size unmodified and with each factor. The time of a
batch size is the mean of the faster half of its rounds, each with the median of its runs; of
complete steps in several starts of the processes it is the mean over the starts. Where complete
steps have slow ones, with the factor or without, their time is that of all steps: a change saves
what is paid. Disturbed visits
are set aside, as those of a sweep, by factor: one that makes threads wait costs no other factor
its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ...base.words import Word
from ...profiling.attribution.step_pattern import have_slow_steps
from ...profiling.recording.disturbed import MOST_WAITING, SET_ASIDE, with_set_aside
from ...profiling.recording.experiments import Experiment, FactorFacts, Scope
from ..decompose.functionals import FIXED_COST, OUTLIER
from ..decompose.statistics import (
    ALL_STEPS,
    FASTER_HALF,
    STATISTICS,
    Estimate,
    Floats,
    Ints,
    effective_rounds,
    estimate,
    filled,
    pooled_variance,
    resample_rounds,
    saved_share,
    share_estimate,
    widened,
)
from .contrast import REFUTED_BELOW, Removal, Times, pooled, rest_of

_LEAST_LEFT = 0.01  # of a time, where what is taken from it is a difference of times with noise


class Effect(Word):
    """What a factor does to its cause."""

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
    """What a factor does to its cause, by its facts; a factor without facts removes it."""
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
    values, used = take(rounds_ms, 0), used_rounds(rounds_ms)
    drawn = take(filled(rounds_ms[resample_rounds(len(rounds_ms))], values), 1)
    if statistic == FASTER_HALF:
        drawn = widened(drawn, values, used)
    return Times(values, drawn, used, replicates=True)


def _times_of_starts(sides: Sequence[Floats], starts: Ints, statistic: str) -> list[Times]:
    """The same from starts of processes, by side: each start counts once, if no batch size of it is
    set aside whole.
    """
    numbers = np.unique(starts)
    by_start = [
        np.array([_time_of_start(rounds_ms[starts == number], statistic) for number in numbers])
        for rounds_ms in sides
    ]
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
    # Of two or three rounds, widened replicates may be no times; then they say nothing.
    logs = _log_ratios(changed.varied, unmodified.varied)
    if not unmodified.replicates:
        return tuple(share_estimate(of_batch, pooled_variance([of_batch])) for of_batch in logs.T)
    values = _log_ratios(changed.value, unmodified.value)
    blocks = np.array([unmodified.blocks, changed.blocks])
    both = zip(values, logs.T, blocks.T, strict=True)
    ratios = (
        estimate(float(value), log, effective_rounds(used, np.ones(2)), 1.0)
        for value, log, used in both
    )
    return tuple(
        Estimate(saved_share(log.value), saved_share(log.high), saved_share(log.low), log.p)
        for log in ratios
    )


def _log_ratios(changed: Floats, unmodified: Floats) -> Floats:
    """Logarithms of changed times over unmodified ones; a time of 0, below the resolution of the
    clock, is as small as a number can be.
    """
    least = np.finfo(float).tiny
    return np.log(np.maximum(changed, least)) - np.log(np.maximum(unmodified, least))


def round_times(rows: pd.DataFrame, statistic: str = FASTER_HALF) -> pd.DataFrame:
    """Time in ms of each round, a column per batch size: the median of its runs, or their mean
    where T is that of all steps.
    """
    times = rows["duration_ns"].astype("float64") / 1e6
    grouped = times.groupby([rows["round"].astype("int64"), rows["batch"].astype("int64")])
    return (grouped.mean() if statistic == ALL_STEPS else grouped.median()).unstack()


def _statistic_of(experiment: Experiment, sides: Sequence[pd.DataFrame]) -> str:
    """The statistic of its times: of complete steps that of all, where one side has slow steps."""
    if experiment.scope != Scope.STEP:
        return FASTER_HALF
    visits = (
        rows.loc[~rows[SET_ASIDE], ["duration_ns", "round"]].to_numpy(np.float64)
        for side in sides
        for _, rows in side.groupby("batch")
    )
    return ALL_STEPS if any(have_slow_steps(*rows.T) for rows in visits) else FASTER_HALF


def used_times(medians: pd.DataFrame, rows: pd.DataFrame) -> Floats:
    """Times over rounds and batch sizes, of some or all `round_times` of the rows; NaN where a
    visit is set aside.
    """
    aside = rows.groupby(["round", "batch"])[SET_ASIDE].first().unstack()
    used = medians.mask(aside.loc[medians.index, medians.columns].astype(bool))
    return np.asarray(used, np.float64)


def used_rounds(times_ms: Floats) -> Any:
    """Number of rounds of every batch size that are not set aside."""
    return np.count_nonzero(~np.isnan(times_ms), axis=0)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one experiment measured of one factor; or, without a factor, of what runs unmodified."""

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
        """What the factor does to its cause."""
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
        """Index of the batch size at which a gain counts: the smallest for a fixed cost, the
        outlier of one, else the largest.
        """
        kind = self.experiment.functional_kind
        if kind == OUTLIER:
            slow = max(self.experiment.functional, key=lambda weighted: weighted[1])[0]
            return self.batches.index(slow)
        return 0 if kind == FIXED_COST else -1

    @property
    def gain(self) -> Estimate | None:
        """Share of the time saved at the batch size that counts; None if the factor did not run."""
        return self.gains[self.gain_index] if self.gains else None

    @property
    def saved_ms(self) -> float:
        """Part of F that the factor removes by making batch sizes faster."""
        sign = float(np.sign(self.value.value)) if self.value else 0.0
        weights = dict(self.experiment.functional)
        times = zip(self.batches, self.times_ms, self.changed_ms, strict=True)
        return sum(
            max(sign * weights.get(batch, 0.0), 0.0) * max(unmodified.value - changed.value, 0.0)
            for batch, unmodified, changed in times
        )


def compared_rows(experiment: Experiment, rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The unmodified runs of an experiment, alone and with those of each factor: the same for all
    its functionals.
    """
    unmodified = rows["factor"].isna()
    measured = []
    for factor in (None, *experiment.factors):
        compared = with_set_aside(rows[unmodified | (rows["factor"] == factor)])
        # Of the members of a group one ran, and counted its own time.
        measured.append(compared.assign(duration_ns=compared["duration_ns"] * experiment.members))
    return measured


def measure(
    experiment: Experiment, compared: Sequence[pd.DataFrame], facts: Mapping[str, FactorFacts]
) -> Iterator[tuple[Measurement, Removal | None]]:
    """What an experiment with one functional measured: without a factor, then of each, with the
    times behind it.
    """
    factors = (None, *experiment.factors)
    measured = [
        _measure(experiment, factor, facts.get(factor or ""), rows)
        for factor, rows in zip(factors, compared, strict=True)
    ]
    together = iter(pooled([removal for _, removal in measured if removal is not None]))
    for measurement, removal in measured:
        yield (measurement, None) if removal is None else _with_removal(measurement, next(together))


def _with_removal(measured: Measurement, removal: Removal) -> tuple[Measurement, Removal]:
    removed, taken = removal.removed()
    p_little, _ = removal.p_values(REFUTED_BELOW, REFUTED_BELOW)
    freedom = removal.spread.freedom
    return replace(
        measured, removed=removed, taken=taken, p_little=p_little, freedom=freedom
    ), removal


_MANY_WAIT = 1 / 3  # of the unmodified visits


def _saves_waits(unmodified: pd.DataFrame, changed: pd.DataFrame) -> bool:
    """Whether what a factor saves may be the waits for a core of a machine with other work."""
    waits, waits_left = (_share_of_waiting_visits(rows) for rows in (unmodified, changed))
    return waits >= _MANY_WAIT and waits_left < waits / 2


def _share_of_waiting_visits(rows: pd.DataFrame) -> float:
    """Share of the visits whose threads waited for a core, set aside or not; 0 where unknown."""
    if "run_queue_wait_ns" not in rows or rows.empty:
        return 0.0
    columns = ["run_queue_wait_ns", "duration_ns"]
    visits = rows[columns].astype("Float64").groupby([rows["batch"], rows["round"]]).sum()
    waited = visits["run_queue_wait_ns"] > MOST_WAITING * visits["duration_ns"]
    return float(waited.fillna(False).mean())


def _starts(rows: pd.DataFrame, rounds: Sequence[int]) -> Ints:
    """The start of processes that each round belongs to: the process of its unmodified steps.

    All processes of an experiment start together.
    """
    processes: dict[int, int] = {}
    if "process" in rows:
        unmodified = rows.loc[rows["factor"].isna() & rows["process"].notna(), ["round", "process"]]
        processes = {
            int(round_): int(process) for round_, process in unmodified.itertuples(index=False)
        }
    return np.array([processes.get(round_, 0) for round_ in rounds], np.int64)


# Of a functional that an experiment also tests, where the waves are of other batch sizes.
_NO_WAVE = "no recorded grid of a kernel says at which batch sizes the last wave of its own is full"


def _by_size(times: Times, experiment: Experiment) -> list[Times]:
    """Times of the batch sizes, from those of all runs, and these without the empty part of the
    last wave of blocks.
    """
    sizes, waves = experiment.unmodified, {wave.batch: wave.cost() for wave in experiment.waves}
    empty = np.array(
        [[waves.get(batch, {}).get(size, 0.0) for batch in experiment.batches] for size in sizes]
    )
    own = [sizes.index(batch) for batch in experiment.batches]
    # An empty part costs something: where the times say less than nothing, blocks do not run in
    # waves.
    costs = times.value @ empty > 0

    def without(values: Floats) -> Floats:
        usual = values[..., own]
        return np.asarray(
            np.maximum(usual - values @ empty * costs, _LEAST_LEFT * usual), np.float64
        )

    unmodified = replace(
        times, value=times.value[own], varied=times.varied[:, own], blocks=times.blocks[own]
    )
    return [
        unmodified,
        replace(unmodified, value=without(times.value), varied=without(times.varied)),
    ]


def _measure(
    experiment: Experiment, factor: str | None, facts: FactorFacts | None, rows: pd.DataFrame
) -> tuple[Measurement, Removal | None]:
    by_size = facts is not None and facts.by_size
    if (
        by_size
        and not {wave.batch for wave in experiment.waves} & dict(experiment.functional).keys()
    ):
        untested = {**experiment.untested, str(factor): _NO_WAVE}
        experiment = replace(experiment, untested=untested)
    changes = factor is not None and not by_size
    of_sides = [rows[rows["factor"].isna()], *([rows[rows["factor"] == factor]] if changes else [])]
    statistic = _statistic_of(experiment, of_sides)
    tables = [round_times(of_side, statistic) for of_side in of_sides]
    wanted = experiment.unmodified if by_size else experiment.batches
    sizes = tuple(b for b in wanted if all(b in table for table in tables))
    batches = tuple(b for b in sizes if b in experiment.batches)
    complete = [table[list(sizes)].dropna() for table in tables]
    rounds = sorted(set.intersection(*(set(table.index) for table in complete))) if batches else []
    if not rounds or (factor or "") in experiment.untested or (by_size and sizes != wanted):
        return Measurement(experiment=experiment, factor=factor, facts=facts), None
    both = zip(complete, of_sides, strict=True)
    rounds_ms = [used_times(table.loc[rounds], of_side) for table, of_side in both]
    judged = None
    if experiment.scope == Scope.STEP:
        judged = _times_of_starts(rounds_ms, _starts(rows, rounds), statistic)
    several = judged is not None and len(judged[0].varied) > 1
    alone = (times_of(of_side, statistic) for of_side in rounds_ms)
    shown = judged if judged and several else list(alone)
    judged = judged or shown
    if by_size:
        shown = judged = _by_size(shown[0], experiment)
    measured = Measurement(
        experiment=experiment,
        factor=factor,
        facts=facts,
        rounds=len(rounds),
        starts=1 if judged[0].replicates else len(judged[0].varied),
        batches=batches,
        times_ms=shown[0].by_batch(),
    )
    if factor is not None:
        gains = _gains(judged[0], judged[-1])
        measured = replace(
            measured,
            changed_ms=shown[-1].by_batch(),
            gains=gains,
            beside_work=_saves_waits(*of_sides) if changes else False,
        )
        if not judged[0].replicates:
            ratios = np.log(judged[-1].varied / judged[0].varied)
            measured = replace(measured, ratios=tuple(tuple(map(float, start)) for start in ratios))
    coefficients = dict(experiment.functional)
    if not coefficients or not coefficients.keys() <= set(batches):
        return measured, None
    weights = np.array([coefficients.get(b, 0.0) for b in batches])
    measured = replace(measured, value=shown[0].total(weights))
    if factor is None:
        return measured, None
    if measured.effect == Effect.BRINGING:
        largest = np.array(batches) == max(coefficients)
        shown, judged = ([of[0], of[-1].with_times_of(of[0], largest)] for of in (shown, judged))
    measured = replace(measured, changed=shown[-1].total(weights))
    rest = rest_of(experiment.functional_kind, coefficients, batches)
    return measured, Removal.of(judged[0], judged[-1], weights, rest)
