"""Outcomes of experiments, computed from the rows of the table `experiments`.

Every round of an experiment runs each batch size as it is and with each factor. The time of a batch size is the mean of
the faster half of its rounds, each with the median of its runs. F is the functional of the times as they are, F' with
the factor, both of the same rounds. The share taken away is (F − F')/F.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...profiling.recording.experiments import Experiment, FactorFacts, Stage, experiments_of, factors_of
from ...profiling.recording.store import Recording
from ..decompose.functionals import FIXED_COST
from ..decompose.statistics import (
    LEVEL,
    MATERIAL,
    Estimate,
    estimate,
    faster_half,
    holm,
    ratio_estimate,
    resample_rounds,
    time_estimate,
    widened,
)

Floats = npt.NDArray[np.float64]
Claimed: TypeAlias = tuple[
    tuple[tuple[int, float], ...], str
]  # a functional, and a factor whose cause claims some of it

# A cause is confirmed if the interval of the share taken away lies above the first, and refuted below the second.
CONFIRMED_ABOVE = 1 / 2
REFUTED_BELOW = 1 / 5
# A factor that turns the functional round, to more than half its size, puts another bend in its place.
_MOST_TAKEN = 1.5
EARLY_LEVEL = 0.001  # of all tests at one look at an experiment that still runs
TOO_WIDE = "the interval is too wide"
ONLY_SCREENED = "only the screen of all changes shows it; fresh rounds have to confirm it"
TOO_SLOW = "it slows the other sizes by more than the anomaly"
OVERTAKEN = "it puts another bend in its place"
_IN_PART = "it takes away a part of the cause only"
LEVELLED = "it takes it away only by making other sizes slower"


class Verdict:
    """Verdicts on a cause, or on a factor."""

    CONFIRMED = "confirmed"  # the interval of the share taken away lies above 1/2
    REFUTED = "refuted"  # the interval lies below 1/5
    UNDECIDED = "undecided"
    UNTESTED = "untested"  # no experiment was made; a reason says why


class Reproduction:
    """Results of running a term alone."""

    REPRODUCES = "reproduces"
    PARTLY = "partly"
    NOT = "does not"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one factor in one experiment; or, without a factor, of what runs as it is.

    Attributes:
        experiment: the experiment.
        factor: name of the changed factor; None for the runs without a change.
        facts: description of the factor; None without a factor, or if the recording does not have it.
        rounds: number of rounds in which all batch sizes ran, both as they are and with the factor.
        batches: batch sizes of the experiment, increasing.
        times_ms: times as they are, by batch size; empty if nothing ran.
        changed_ms: times with the factor, by batch size; empty without a factor, or if it did not run.
        value: F in ms; None if it was not measured.
        changed: F' with the factor in ms; None without a factor, or if it did not run. For a factor that brings its
            cause about, the largest batch size is as it is in F'.
        removed: F − F' in ms; None as for `changed`.
        taken: share taken away, (F − F')/F; its interval is infinite where F may be 0. None as for `changed`.
        gains: share of the time saved by the factor, 1 − T'/T, by batch size; empty as `changed_ms`.
        verdict: see `Verdict`; without a factor, untested.
        reason: reason for an undecided or untested verdict, as a clause without a full stop; None otherwise.
        changed_results: differences, if the factor changes the results beyond rounding; else None.
    """

    experiment: Experiment
    factor: str | None
    facts: FactorFacts | None
    rounds: int
    batches: tuple[int, ...]
    times_ms: tuple[Estimate, ...]
    changed_ms: tuple[Estimate, ...]
    value: Estimate | None
    changed: Estimate | None
    removed: Estimate | None
    taken: Estimate | None
    gains: tuple[Estimate, ...]
    verdict: str
    reason: str | None = None
    changed_results: str | None = None

    @property
    def brings_about(self) -> bool:
        """Whether the factor brings its cause about, see `FactorFacts`.

        Then F' has the changed times of all batch sizes but the largest, whose time is the unmodified one. The factor
        confirms if these slow down by what the anomaly is, not by more.
        """
        return self.facts is not None and self.facts.brings_about

    @property
    def partial(self) -> bool:
        """Whether the factor removes a part of its cause only, see `FactorFacts`."""
        return self.facts is not None and self.facts.partial

    @property
    def gain_index(self) -> int:
        """Index of the batch size at which a gain counts: the smallest for a fixed cost, else the largest."""
        return 0 if self.experiment.functional_kind == FIXED_COST else -1

    @property
    def gain(self) -> Estimate | None:
        """Share of the time saved at the batch size that counts; None if the factor did not run."""
        return self.gains[self.gain_index] if self.gains else None


def outcomes(recording: Recording, known: Sequence[Outcome] = ()) -> tuple[Outcome, ...]:
    """The outcome of every factor of every experiment in a recording, in the order of the experiments.

    An experiment that tests several functionals has outcomes for each of them. The first one of each functional is that
    without a factor.

    Args:
        recording: the recording.
        known: outcomes of the same recording at an earlier time; those of finished experiments still hold.
    """
    experiments = experiments_of(recording.meta)
    if not experiments:
        return ()
    rows = recording.frame("experiments", ("experiment", "factor", "batch", "round", "duration_ns"))
    found: list[Outcome] = []
    for experiment in experiments:
        before = [outcome for outcome in known if outcome.experiment.number == experiment.number]
        tests = list(experiment.by_functional())
        if experiment.done and tests == [outcome.experiment for outcome in before if outcome.factor is None]:
            found += before
            continue
        facts, own = factors_of(recording.meta, experiment.scope), rows[rows["experiment"] == experiment.number]
        for one in tests:
            found += outcomes_of(one, own, facts, found)
    return tuple(found)


def outcomes_of(
    experiment: Experiment, rows: pd.DataFrame, facts: Mapping[str, FactorFacts], earlier: Sequence[Outcome] = ()
) -> list[Outcome]:
    """The outcomes of one experiment: without a factor, then of each factor.

    Args:
        experiment: the experiment.
        rows: its rows of the table `experiments`.
        facts: facts on the factors, by name.
        earlier: outcomes of earlier experiments; Holm's correction counts the factors that they tried on fresh rounds,
            not those of screens, which confirm nothing.
    """
    measured = list(_measured(experiment, rows, facts))
    tried = {one.outcome.factor for one in measured if one.outcome.taken} | {
        one.factor
        for one in earlier
        if one.taken and one.experiment.stage != Stage.SCREEN and subject(one.experiment) == subject(experiment)
    }
    # Factors that had fresh rounds before, and have none here, have p = 1.
    p_values = [one.p_less for one in measured if one.outcome.taken]
    adjusted = iter(holm([*p_values, *[1.0] * (len(tried) - len(p_values))]))
    return [_judged(one.outcome, next(adjusted)) if one.outcome.taken else one.outcome for one in measured]


def settled(
    experiment: Experiment,
    rows: pd.DataFrame,
    claims: Mapping[Claimed, float] = MappingProxyType({}),
    facts: Mapping[str, FactorFacts] = MappingProxyType({}),
) -> bool:
    """Whether more rounds of an experiment are not worth their time: every share is far from undecided.

    A look at the rounds so far is a test of its own. At its strict level, some looks add next to nothing to the error
    of the last one, which keeps its level (Haybittle, Brit. J. Radiology 44 (1971); Peto et al., Brit. J. Cancer 34
    (1976)).

    Args:
        experiment: an experiment that runs.
        rows: its rows of the table `experiments` so far.
        claims: what the causes of factors of complete steps claim of a functional, in its unit, see `proof.prove_step`;
            other factors are judged by the share that they take away.
        facts: facts on the factors, by name.
    """
    found = [one for test in experiment.by_functional() for one in _measured(test, rows, facts, claims)]
    tested = [one for one in found if one.outcome.taken is not None]
    level = EARLY_LEVEL / max(len(tested), 1)
    return bool(tested) and all(min(one.p_less, one.p_more) < level for one in tested)


class _Measured(NamedTuple):
    """An outcome without a verdict.

    Attributes:
        outcome: the outcome.
        p_less: one-sided p of its share taken away being at most the least that confirms, see `confirmed_above`.
        p_more: the same of at least 1/5.
    """

    outcome: Outcome
    p_less: float = 1.0
    p_more: float = 1.0


def _measured(
    experiment: Experiment,
    rows: pd.DataFrame,
    facts: Mapping[str, FactorFacts],
    claims: Mapping[Claimed, float] = MappingProxyType({}),
) -> Iterator[_Measured]:
    """What an experiment measured: without a factor, then of each factor."""
    as_is = round_medians(rows[rows["factor"].isna()])
    for name in (None, *experiment.factors):
        changed = None if name is None else round_medians(rows[rows["factor"] == name])
        known = facts.get(name or "")
        by_share = known is not None and (known.brings_about or known.partial)
        claim = None if by_share else claims.get((experiment.functional, name or ""))
        yield _outcome(experiment, name, known, as_is, changed, claim)


@dataclass(frozen=True)
class Times:
    """Times over batch sizes, each the mean of the faster half of the rounds, with replicates of the rounds.

    Attributes:
        values: times in ms, shape (batch sizes,).
        replicates: the same of each replicate, shape (replicates, batch sizes).
        rounds: number of rounds.
    """

    values: Floats
    replicates: Floats
    rounds: int

    @classmethod
    def of(cls, rounds_ms: Floats) -> Times:
        """The times of some rounds, shape (rounds, batch sizes); equal rounds give equal replicates of all tables."""
        rounds = len(rounds_ms)
        values, drawn = faster_half(rounds_ms, 0), faster_half(rounds_ms[resample_rounds(rounds)], 1)
        return cls(values, widened(drawn, values, rounds), rounds)

    def times(self, factor: float) -> Times:
        """All times, multiplied by a number."""
        return replace(self, values=factor * self.values, replicates=factor * self.replicates)

    def minus(self, other: Times) -> Times:
        """The difference from times of the same rounds."""
        return replace(self, values=self.values - other.values, replicates=self.replicates - other.replicates)

    def where(self, kept: npt.NDArray[np.bool_], other: Times) -> Times:
        """These times, but at some batch sizes those of others."""
        values, replicates = (
            np.where(kept, *pair) for pair in ((other.values, self.values), (other.replicates, self.replicates))
        )
        return replace(self, values=values, replicates=replicates)

    def by_batch(self) -> tuple[Estimate, ...]:
        """Every time with its interval, which never reaches 0."""
        each = zip(self.values, self.replicates.T, strict=True)
        return tuple(time_estimate(float(value), drawn, self.rounds) for value, drawn in each)

    def functional(self, weights: Floats, scale: float, minus: float = 0.0) -> Estimate:
        """A functional with its interval.

        Args:
            weights: its coefficients, shape (batch sizes,).
            scale: size of the numbers behind it; a spread far below it is rounding.
            minus: number to take from it.
        """
        return estimate(float(self.values @ weights) - minus, self.replicates @ weights - minus, self.rounds, scale)

    def gains(self, as_is: Times) -> tuple[Estimate, ...]:
        """Shares of the time that these save against others, by batch size."""
        logs = np.log(self.values / as_is.values), np.log(self.replicates / as_is.replicates)
        found = [estimate(float(log), drawn, self.rounds, 1.0) for log, drawn in zip(logs[0], logs[1].T, strict=True)]
        return tuple(
            Estimate(1 - float(np.exp(one.value)), 1 - float(np.exp(one.high)), 1 - float(np.exp(one.low)), one.p)
            for one in found
        )


def subject(experiment: Experiment) -> tuple[object, ...]:
    """What an experiment tests: its scope, term and functional."""
    return experiment.scope, experiment.layer, experiment.phase, experiment.functional


def round_medians(rows: pd.DataFrame) -> pd.DataFrame:
    """Median time in ms of each round, a column per batch size."""
    times = rows["duration_ns"].astype("float64") / 1e6
    return times.groupby([rows["round"].astype("int64"), rows["batch"].astype("int64")]).median().unstack()


def _outcome(
    experiment: Experiment,
    factor: str | None,
    facts: FactorFacts | None,
    as_is: pd.DataFrame,
    changed: pd.DataFrame | None,
    claim: float | None = None,
) -> _Measured:
    """An outcome without Holm's correction."""
    reason = experiment.untested.get(factor or "")
    results = experiment.changed_results.get(factor or "")
    tables = [as_is] if changed is None else [as_is, changed]
    batches = tuple(b for b in experiment.batches if all(b in table for table in tables))
    both = [table[list(batches)].dropna() for table in tables]
    rounds = sorted(set.intersection(*(set(table.index) for table in both))) if batches else []
    if reason or not rounds:
        reason = reason or ("it did not run" if experiment.done else "the experiment did not reach it")
        nothing = Outcome(
            experiment, factor, facts, 0, (), (), (), None, None, None, None, (), Verdict.UNTESTED, reason, results
        )
        return _Measured(nothing)
    times = [Times.of(table.loc[rounds].to_numpy(np.float64)) for table in both]
    of_batch = [one.by_batch() for one in times]
    value = removed = remaining = taken = None
    p_less, p_more = 1.0, 1.0
    if {b for b, _ in experiment.functional} <= set(batches):
        of_functional = dict(experiment.functional)
        weights = np.array([of_functional.get(b, 0.0) for b in batches])
        scale = float(np.abs(weights * times[0].values).max())
        value = times[0].functional(weights, scale)
        if changed is not None:
            counted = times[1]
            if facts is not None and facts.brings_about:
                counted = counted.where(np.array(batches) == max(of_functional), times[0])
            remaining = counted.functional(weights, scale)
            removed, taken = _taken(times[0], counted, weights, scale)
            least = confirmed_above(facts is not None and facts.partial, experiment.functional_kind)
            p_less, p_more = _p_values(times[0], counted, weights, scale, least, claim)
    outcome = Outcome(
        experiment,
        factor,
        facts,
        len(rounds),
        batches,
        of_batch[0],
        () if changed is None else of_batch[1],
        value,
        remaining,
        removed,
        taken,
        () if changed is None else times[1].gains(times[0]),
        Verdict.UNTESTED if changed is None else Verdict.UNDECIDED,
        None,
        results,
    )
    levels = facts is not None and facts.levels and changed is not None and value is not None
    if levels and _saved(outcome) < CONFIRMED_ABOVE:
        outcome = replace(outcome, reason=LEVELLED)
    return _Measured(outcome, p_less, p_more)


def _taken(as_is: Times, changed: Times, weights: Floats, scale: float) -> tuple[Estimate, Estimate]:
    """F − F' and the share taken away."""
    removed = as_is.minus(changed)
    of_all = [float(one.values @ weights) for one in (removed, as_is)]
    replicates = [one.replicates @ weights for one in (removed, as_is)]
    share = ratio_estimate((of_all[0], of_all[1]), (replicates[0], replicates[1]), as_is.rounds, scale)
    return removed.functional(weights, scale), share


def _p_values(
    as_is: Times, changed: Times, weights: Floats, scale: float, least: float, claim: float | None
) -> tuple[float, float]:
    """One-sided p of the share taken away being at most the least that confirms, and of its being at least 1/5.

    The share is one of F, or of what a cause claims.
    """
    found, direction = [], float(np.sign(as_is.values @ weights if claim is None else claim))
    for threshold, sign in ((least, direction), (REFUTED_BELOW, -direction)):
        if claim is None:
            one = as_is.times(1 - threshold).minus(changed).functional(sign * weights, scale)
        else:
            beyond = threshold * abs(claim) * sign * direction
            one = as_is.minus(changed).functional(sign * weights, scale, beyond)
        found.append(one.p / 2 if one.value > 0 else 1 - one.p / 2)
    return found[0], found[1]


def confirmed_above(partial: bool, kind: str) -> float:
    """Least share taken away that confirms a factor's cause.

    Of the fixed cost, a factor that takes away a part of its cause shows how much the cause makes at least. That is
    enough where any other factor would not be refuted, if it is material. Of anything else the host's work, the same at
    all batch sizes, makes a part only by chance.

    Args:
        partial: whether the factor removes a part of its cause only.
        kind: kind of the functional.
    """
    return REFUTED_BELOW if partial and kind == FIXED_COST else CONFIRMED_ABOVE


def _judged(outcome: Outcome, p_adjusted: float) -> Outcome:
    """The outcome with its verdict.

    Args:
        outcome: an outcome with a share taken away.
        p_adjusted: p of that share being at most the least that confirms, one-sided, adjusted for the factors tried.
    """
    taken = outcome.taken
    if taken is None:
        return outcome
    verdict, reason, brings = Verdict.UNDECIDED, outcome.reason, outcome.brings_about
    if taken.high < REFUTED_BELOW:
        verdict, reason = (Verdict.UNDECIDED, _IN_PART) if outcome.partial else (Verdict.REFUTED, None)
    elif outcome.rounds < 2:
        reason = "a single round has no interval"
    elif not np.isfinite(taken.low):
        reason = "without the factor, nothing can be distinguished from 0"
    elif taken.value > _MOST_TAKEN and (brings or not _leaves_a_fixed_cost(outcome)):
        reason = OVERTAKEN if not brings else TOO_SLOW
    elif (
        taken.low <= confirmed_above(outcome.partial, outcome.experiment.functional_kind)
        or p_adjusted >= LEVEL / 2
        or (brings and taken.high >= _MOST_TAKEN)
    ):
        reason = reason or TOO_WIDE
    elif outcome.partial and not _is_material(outcome):
        reason = "what it takes away may be under 2 % of the step"
    elif outcome.experiment.stage == Stage.SCREEN:
        reason = ONLY_SCREENED
    elif reason is None:
        verdict = Verdict.CONFIRMED
    return replace(outcome, verdict=verdict, reason=reason)


def _leaves_a_fixed_cost(outcome: Outcome) -> bool:
    """Whether a factor takes an excess away by making the larger batch size faster: below 0 it is a fixed cost."""
    if outcome.experiment.functional_kind != "excess" or outcome.value is None or outcome.value.value <= 0:
        return False
    return _saved(outcome) > CONFIRMED_ABOVE


def _is_material(outcome: Outcome) -> bool:
    """Whether a factor takes away more than a smallest effect of the step, by the near end of its interval."""
    removed, size_ms = outcome.removed, outcome.times_ms[outcome.gain_index].value
    return removed is not None and min(abs(removed.low), abs(removed.high)) >= MATERIAL * size_ms


def _saved(outcome: Outcome) -> float:
    """Share of the functional that a factor takes away by making batch sizes faster."""
    value = outcome.value.value if outcome.value else 0.0
    weights = dict(outcome.experiment.functional)
    saved_ms = 0.0
    for batch, as_is, changed in zip(outcome.batches, outcome.times_ms, outcome.changed_ms, strict=True):
        weight = float(np.sign(value)) * weights.get(batch, 0.0)
        saved_ms += max(weight, 0.0) * max(as_is.value - changed.value, 0.0)
    return saved_ms / abs(value) if value else 0.0


def reproduction(share: Estimate, alone: Estimate) -> str:
    """Whether a term alone shows its share of an anomaly; see `Reproduction`.

    Args:
        share: the term's share in the step.
        alone: the functional of the term alone.
    """
    size, low, high = (abs(share.value), *sorted(np.sign(share.value) * np.array([alone.low, alone.high])))
    if alone.p < LEVEL and low > 0:
        # A share that is hardly known does not make a small measurement all of it.
        known = abs(alone.value) >= size / 2 and share.low <= alone.value <= share.high
        whole = low >= size / 2 or known
        return Reproduction.REPRODUCES if whole else Reproduction.PARTLY
    return Reproduction.NOT if high < size / 2 else Reproduction.UNDECIDED
