"""Outcomes of experiments: the measurement of each factor, with its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TypeAlias

import pandas as pd

from ...profiling.recording.disturbed import EXPERIMENT_COUNTERS
from ...profiling.recording.experiment_entries import parts_without
from ...profiling.recording.experiments import (
    Experiment,
    FactorFacts,
    Scope,
    Stage,
    experiments_of,
    factors_of,
)
from ...profiling.recording.store import Recording, as_frame
from .contrast import REFUTED_BELOW
from .measurement import Measurement, compare_rows, measure
from .rule import Decision, decide, ends_early, goes_by_claim, least_share, p_of
from .words import Verdict

# What the causes of factors of complete steps claim of a functional, in its unit, by its
# coefficients and the factor.
Claims: TypeAlias = Mapping[tuple[tuple[tuple[int, float], ...], str], float]


@dataclass(frozen=True, kw_only=True)
class Outcome(Measurement):
    """A measurement with its verdict."""

    verdict: Verdict  # verdict on the factor's cause, see `rule.decide`; untested without a factor
    # reason for an undecided or untested verdict, as a clause without a full stop; None otherwise
    reason: str | None = None
    # differences, if the factor changes the results beyond rounding; else None
    changed_results: str | None = None

    @classmethod
    def of(cls, measured: Measurement, decision: Decision) -> Outcome:
        """The outcome of a measurement."""
        return cls(
            **{field.name: getattr(measured, field.name) for field in fields(Measurement)},
            verdict=decision.verdict,
            reason=decision.reason,
            changed_results=measured.experiment.changed_results.get(measured.factor or ""),
        )


def measurements(
    recording: Recording, known: Sequence[Measurement] = ()
) -> tuple[Measurement, ...]:
    """What the experiments of a recording measured of every factor, in the order of the
    experiments.

    An experiment that tests several functionals has measurements for each of them. The first one of
    each functional is that without a factor. Of `known`, measurements at an earlier time, the ones
    of finished experiments still hold.
    """
    experiments = experiments_of(recording.meta)
    if not experiments:
        return ()
    columns = (
        "experiment",
        "factor",
        "batch",
        "round",
        "duration_ns",
        "process",
        *EXPERIMENT_COUNTERS,
    )
    finished = {}
    for experiment in experiments:
        if before := _find_finished(experiment, known):
            finished[experiment.number] = before
    parts = parts_without(recording, finished)
    rows = as_frame(recording.arrow("experiments", columns, parts))
    made: list[Measurement] = []
    for experiment in experiments:
        if experiment.number in finished:
            made += finished[experiment.number]
            continue
        facts = factors_of(recording.meta, experiment.scope)
        own = compare_rows(experiment, rows[rows["experiment"] == experiment.number])
        for test in experiment.by_functional():
            made += [measured for measured, _ in measure(test, own, facts)]
    return tuple(made)


def _find_finished(experiment: Experiment, known: Sequence[Measurement]) -> list[Measurement]:
    """The known measurements of an experiment that ran to its end; empty if some are missing."""
    before = [measured for measured in known if measured.experiment.number == experiment.number]
    tested = [measured.experiment for measured in before if measured.factor is None]
    is_whole = experiment.done and list(experiment.by_functional()) == tested
    return before if is_whole else []


def judge_terms(measured: Sequence[Measurement]) -> dict[int, Outcome]:
    """The outcomes of experiments on terms, by their place in the measurements.

    No cause has claimed anything of complete steps yet, so the tests of these are in the family by
    their shares of the anomaly.
    """
    p_values = [p_of(each, None) for each in measured]
    outcomes = {}
    for index, each in enumerate(measured):
        if each.experiment.scope == Scope.TERM:
            decision = decide(each, None, _family(index, measured, p_values))
            outcomes[index] = Outcome.of(each, decision)
    return outcomes


def judge_steps(
    measured: Sequence[Measurement], on_terms: Mapping[int, Outcome], claims: Claims
) -> tuple[Outcome, ...]:
    """The outcome of every measurement: those on terms, and those on complete steps by what causes
    claim.

    Verdicts of experiments come from here and from `judge_terms` only.
    """
    claimed = [claim_on(each, claims) for each in measured]
    p_values = [p_of(each, claim) for each, claim in zip(measured, claimed, strict=True)]
    outcomes = []
    for index, (each, claim) in enumerate(zip(measured, claimed, strict=True)):
        outcome = on_terms.get(index)
        if outcome is None:
            decision = decide(each, claim, _family(index, measured, p_values))
            outcome = Outcome.of(each, decision)
        outcomes.append(outcome)
    return tuple(outcomes)


def _family(index: int, measured: Sequence[Measurement], p_values: Sequence[float]) -> list[float]:
    """P of one test, then of all others of the recording on fresh rounds: they are one family.

    Screens confirm nothing, and are not in it.
    """
    fresh = [
        place
        for place, each in enumerate(measured)
        if each.taken is not None and each.experiment.stage != Stage.SCREEN
    ]
    return [p_values[index], *(p_values[other] for other in fresh if other != index)]


def claim_on(measured: Measurement, claims: Claims) -> float | None:
    """What the cause of a factor of complete steps claims; None for a term, and without a claim."""
    experiment = measured.experiment
    if experiment.scope != Scope.STEP:
        return None
    return claims.get((experiment.functional, measured.factor or ""))


def is_settled(
    experiment: Experiment,
    rows: pd.DataFrame,
    claims: Claims = MappingProxyType({}),
    facts: Mapping[str, FactorFacts] = MappingProxyType({}),
) -> bool:
    """Whether more rounds of an experiment that runs are not worth their time, see
    `rule.ends_early`.

    Factors without a claim of their cause are judged by the share that they remove.
    """
    tests = []
    compared = compare_rows(experiment, rows)
    for test in experiment.by_functional():
        for each, removal in measure(test, compared, facts):
            if removal is not None:
                claim = claim_on(each, claims) if goes_by_claim(each.effect) else None
                least = least_share(each.effect, test.functional_kind)
                tests.append(removal.p_values(least, REFUTED_BELOW, claim))
    return ends_early(tests)


def subject(experiment: Experiment) -> tuple[object, ...]:
    """What an experiment tests: its scope, term and functional."""
    return experiment.scope, experiment.layer, experiment.phase, experiment.functional
