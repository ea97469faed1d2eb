"""What one experiment measured of one factor, from the rows of the table `experiments`.

Every round of an experiment runs each batch size unmodified and with each factor. The time of a batch size is the mean
of the faster half of its rounds, each with the median of its runs. Disturbed visits are set aside, as those of a sweep,
by factor: one that makes threads wait costs no other factor its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...base.words import Word
from ...profiling.recording.disturbed import SET_ASIDE, with_set_aside
from ...profiling.recording.experiments import Experiment, FactorFacts
from ..decompose.functionals import FIXED_COST
from ..decompose.statistics import (
    Estimate,
    Floats,
    Ints,
    effective_rounds,
    estimate,
    faster_half,
    filled,
    ratio_estimate,
    resample_rounds,
    saved_share,
    time_estimate,
    widened,
)

_LEAST_LEFT = 0.01  # of a time, where what is taken from it is a difference of times with noise


class Effect(Word):
    """What a factor does to its cause."""

    REMOVING = "removes it"
    PARTIAL = "removes a part of it"  # the factor confirms it and cannot refute it
    # Batch sizes run at nearly the same size, which removes every bend; a proof only if one gets faster.
    LEVELLING = "levels batch sizes"
    # The cause is brought about at the batch sizes without the anomaly, all but the largest: F' has the changed times
    # of these, and the largest one's unmodified. Confirmed if these slow down by what the anomaly is, not by more.
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


def times_of(rounds_ms: Floats) -> Floats:
    """Times over batch sizes, each the mean of the faster half of the rounds: of all rounds, then of each replicate.

    Of times of shape (rounds, batch sizes), NaN for a visit that is set aside; the result is of shape (1 + replicates,
    batch sizes). Equal rounds give equal replicates of all tables.
    """
    values = faster_half(rounds_ms, 0)
    drawn = faster_half(filled(rounds_ms[resample_rounds(len(rounds_ms))], values), 1)
    return np.vstack([values, widened(drawn, values, used_rounds(rounds_ms))])


def functional_of(times: Floats, weights: Floats, rounds: float, scale: float, minus: float = 0.0) -> Estimate:
    """A functional with its interval, less a number, from `times_of` or a difference of such times of the same rounds.

    `weights` are the coefficients by batch size, `rounds` is the effective number; a spread far below `scale` is
    rounding.
    """
    return estimate(float(times[0] @ weights) - minus, times[1:] @ weights - minus, rounds, scale)


def _by_batch(times: Floats, rounds: Ints) -> tuple[Estimate, ...]:
    """Every time with its interval, which never reaches 0, from the number of rounds of every batch size."""
    return tuple(time_estimate(float(time[0]), time[1:], used) for time, used in zip(times.T, rounds, strict=True))


def _gains(changed: Floats, unmodified: Floats, rounds: Ints) -> tuple[Estimate, ...]:
    """Shares of the time that the changed times save, by batch size; the rounds are of both, shape (2, batch sizes)."""
    # Of two or three rounds, widened replicates may be no times; then they say nothing.
    ratios = np.maximum(changed / unmodified, np.finfo(float).tiny)
    both = zip(np.log(ratios).T, rounds.T, strict=True)
    logs = (estimate(float(log[0]), log[1:], effective_rounds(used, np.ones(2)), 1.0) for log, used in both)
    return tuple(Estimate(saved_share(log.value), saved_share(log.high), saved_share(log.low), log.p) for log in logs)


def _ratios(
    unmodified_ms: pd.DataFrame, changed_ms: pd.DataFrame, starts: Mapping[int, int]
) -> tuple[tuple[float, ...], ...]:
    """Logarithms of T'/T of each start, with the times of the faster half of its rounds."""
    of_start = [starts.get(round_, 0) for round_ in unmodified_ms.index]
    sides = [
        np.array([faster_half(rounds.to_numpy(np.float64), 0) for _, rounds in table.groupby(of_start, sort=False)])
        for table in (changed_ms, unmodified_ms)
    ]
    return tuple(tuple(map(float, logs)) for logs in np.log(sides[0] / sides[1]))


def round_medians(rows: pd.DataFrame) -> pd.DataFrame:
    """Median time in ms of each round, a column per batch size."""
    times = rows["duration_ns"].astype("float64") / 1e6
    return times.groupby([rows["round"].astype("int64"), rows["batch"].astype("int64")]).median().unstack()


def used_times(medians: pd.DataFrame, rows: pd.DataFrame) -> Floats:
    """Times over rounds and batch sizes, of some or all `round_medians` of the rows; NaN where a visit is set aside."""
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
    rounds: int = 0  # number of rounds in which all batch sizes ran, both unmodified and with the factor
    batches: tuple[int, ...] = ()  # batch sizes of the experiment, increasing
    times_ms: tuple[Estimate, ...] = ()  # unmodified times, by batch size; empty if nothing ran
    # times with the factor, by batch size; empty without a factor, or if it did not run
    changed_ms: tuple[Estimate, ...] = ()
    value: Estimate | None = None  # F in ms; None if it was not measured
    # F' with the factor in ms; None without a factor, or if it did not run. For a factor that brings its cause about,
    # the largest batch size is unmodified in F'
    changed: Estimate | None = None
    removed: Estimate | None = None  # F − F' in ms; None as for `changed`
    # share removed, (F − F')/F; its interval is infinite where F may be 0. None as for `changed`
    taken: Estimate | None = None
    # share of the time saved by the factor, 1 − T'/T, by batch size; empty as `changed_ms`
    gains: tuple[Estimate, ...] = ()
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
        """Index of the batch size at which a gain counts: the smallest for a fixed cost, else the largest."""
        return 0 if self.experiment.functional_kind == FIXED_COST else -1

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


class Runs(NamedTuple):
    """The times behind the share that a factor removes, see `times_of` and `functional_of`."""

    unmodified: Floats
    counted: Floats  # times behind F'
    weights: Floats
    rounds: float
    scale: float

    def p_values(self, least: float, most: float, claim: float | None = None) -> tuple[float, float]:
        """One-sided p of a share removed of at most `least`, and of one of at least `most`.

        The share is one of F, or of what a cause claims, in ms.
        """
        of_all = float(self.unmodified[0] @ self.weights) if claim is None else 0.0
        direction = float(np.sign(of_all if claim is None else claim))
        tests = []
        for share, sign in ((least, direction), (most, -direction)):
            beyond = (1.0 if claim is not None else 1 - share) * self.unmodified - self.counted
            limit = 0.0 if claim is None else share * claim * sign
            tests.append(functional_of(beyond, sign * self.weights, self.rounds, self.scale, limit))
        first, second = (test.p / 2 if test.value > 0 else 1 - test.p / 2 for test in tests)
        return first, second

    def removed(self) -> tuple[Estimate, Estimate]:
        """F − F' in ms, and its share of F."""
        both = self.unmodified - self.counted, self.unmodified
        values, replicates = [float(t[0] @ self.weights) for t in both], [t[1:] @ self.weights for t in both]
        share = ratio_estimate((values[0], values[1]), (replicates[0], replicates[1]), self.rounds, self.scale)
        return functional_of(both[0], self.weights, self.rounds, self.scale), share


def measure(
    experiment: Experiment, rows: pd.DataFrame, facts: Mapping[str, FactorFacts]
) -> Iterator[tuple[Measurement, Runs | None]]:
    """What an experiment with one functional measured: without a factor, then of each, with the times behind it."""
    unmodified = rows["factor"].isna()
    for factor in (None, *experiment.factors):
        compared = with_set_aside(rows[unmodified | (rows["factor"] == factor)])
        # Of the members of a group one ran, and counted its own time.
        compared = compared.assign(duration_ns=compared["duration_ns"] * experiment.members)
        yield _measure(experiment, factor, facts.get(factor or ""), compared)


def _starts(rows: pd.DataFrame) -> dict[int, int]:
    """The process of the unmodified steps in each round: all processes of an experiment start together."""
    if "process" not in rows:
        return {}
    unmodified = rows.loc[rows["factor"].isna() & rows["process"].notna(), ["round", "process"]]
    return {int(round_): int(process) for round_, process in unmodified.itertuples(index=False)}


def _by_size(times: Any, experiment: Experiment) -> tuple[Floats, Floats]:
    """Times of the batch sizes, from those of all runs, and these without the empty part of the last wave of blocks."""
    sizes, waves = experiment.unmodified, {wave.batch: wave.cost() for wave in experiment.waves}
    all_times = np.asarray(times, np.float64)
    empty = np.array([[waves.get(batch, {}).get(size, 0.0) for batch in experiment.batches] for size in sizes])
    unmodified = all_times[:, [sizes.index(batch) for batch in experiment.batches]]
    return unmodified, np.maximum(unmodified - all_times @ empty, _LEAST_LEFT * unmodified)


def _measure(
    experiment: Experiment, factor: str | None, facts: FactorFacts | None, rows: pd.DataFrame
) -> tuple[Measurement, Runs | None]:
    by_size = facts is not None and facts.by_size
    changes = factor is not None and not by_size
    of_sides = [rows[rows["factor"].isna()], *([rows[rows["factor"] == factor]] if changes else [])]
    tables = [round_medians(of_side) for of_side in of_sides]
    wanted = experiment.unmodified if by_size else experiment.batches
    sizes = tuple(b for b in wanted if all(b in table for table in tables))
    batches = tuple(b for b in sizes if b in experiment.batches)
    complete = [table[list(sizes)].dropna() for table in tables]
    rounds = sorted(set.intersection(*(set(table.index) for table in complete))) if batches else []
    if not rounds or (factor or "") in experiment.untested or (by_size and sizes != wanted):
        return Measurement(experiment=experiment, factor=factor, facts=facts), None
    used = [used_times(table.loc[rounds], of_side) for table, of_side in zip(complete, of_sides, strict=True)]
    counts = [used_rounds(times_ms) for times_ms in used]
    unmodified, changed = times_of(used[0]), times_of(used[-1])
    if by_size:
        unmodified, changed = _by_size(unmodified, experiment)
        complete = [pd.DataFrame(times, rounds, batches) for times in _by_size(complete[0].loc[rounds], experiment)]
        counts = [counts[0][[sizes.index(batch) for batch in batches]]] * 2
    measured = Measurement(
        experiment=experiment,
        factor=factor,
        facts=facts,
        rounds=len(rounds),
        batches=batches,
        times_ms=_by_batch(unmodified, counts[0]),
        changed_ms=() if factor is None else _by_batch(changed, counts[-1]),
        gains=() if factor is None else _gains(changed, unmodified, np.array(counts)),
        ratios=() if factor is None else _ratios(complete[0].loc[rounds], complete[-1].loc[rounds], _starts(rows)),
    )
    coefficients = dict(experiment.functional)
    if not coefficients or not coefficients.keys() <= set(batches):
        return measured, None
    weights = np.array([coefficients.get(b, 0.0) for b in batches])
    sizes = weights * unmodified[0]
    scale = float(np.abs(sizes).max())
    rounds_of_value = effective_rounds(counts[0], sizes)
    measured = replace(measured, value=functional_of(unmodified, weights, rounds_of_value, scale))
    if factor is None:
        return measured, None
    if measured.effect == Effect.BRINGING:
        changed = np.where(np.array(batches) == max(coefficients), unmodified, changed)
    rounds_of_both = effective_rounds(np.array(counts), np.array([sizes, weights * changed[0]]))
    runs = Runs(unmodified, changed, weights, rounds_of_both, scale)
    removed, share = runs.removed()
    rest = functional_of(changed, weights, effective_rounds(counts[-1], weights * changed[0]), scale)
    return replace(measured, changed=rest, removed=removed, taken=share), runs
