"""Outcomes of experiments: what was measured of each factor, with its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TypeAlias

import pandas as pd

from ...profiling.recording.disturbed import EXPERIMENT_COUNTERS
from ...profiling.recording.experiments import Experiment, FactorFacts, Stage, experiments_of, factors_of
from ...profiling.recording.store import Recording
from .measurement import Measurement, Runs, measure
from .rule import REFUTED_BELOW, Decision, confirmed_above, decide, ends_early, goes_by_claim
from .words import Verdict

# What the causes of factors of complete steps claim of a functional, in its unit, by its coefficients and the factor.
Claims: TypeAlias = Mapping[tuple[tuple[tuple[int, float], ...], str], float]


@dataclass(frozen=True, kw_only=True)
class Outcome(Measurement):
    """A measurement with its verdict."""

    verdict: Verdict  # verdict on the factor's cause, see `rule.decide`; untested without a factor
    # reason for an undecided or untested verdict, as a clause without a full stop; None otherwise
    reason: str | None = None
    changed_results: str | None = None  # differences, if the factor changes the results beyond rounding; else None

    @classmethod
    def of(cls, measured: Measurement, decision: Decision) -> Outcome:
        """The outcome of a measurement."""
        return cls(
            **{field.name: getattr(measured, field.name) for field in fields(Measurement)},
            verdict=decision.verdict,
            reason=decision.reason,
            changed_results=measured.experiment.changed_results.get(measured.factor or ""),
        )


def outcomes(recording: Recording, known: Sequence[Outcome] = ()) -> tuple[Outcome, ...]:
    """The outcome of every factor of every experiment in a recording, in the order of the experiments.

    An experiment that tests several functionals has outcomes for each of them. The first one of each functional is that
    without a factor. Of `known`, outcomes at an earlier time, those of finished experiments still hold.
    """
    experiments = experiments_of(recording.meta)
    if not experiments:
        return ()
    columns = ("experiment", "factor", "batch", "round", "duration_ns", "process", *EXPERIMENT_COUNTERS)
    rows = recording.frame("experiments", columns)
    made: list[Outcome] = []
    for experiment in experiments:
        before = [outcome for outcome in known if outcome.experiment.number == experiment.number]
        tests = list(experiment.by_functional())
        if experiment.done and tests == [outcome.experiment for outcome in before if outcome.factor is None]:
            made += before
            continue
        facts = factors_of(recording.meta, experiment.scope)
        for test in tests:
            made += outcomes_of(test, rows[rows["experiment"] == experiment.number], facts, made)
    return tuple(made)


def outcomes_of(
    experiment: Experiment, rows: pd.DataFrame, facts: Mapping[str, FactorFacts], earlier: Sequence[Outcome] = ()
) -> list[Outcome]:
    """The outcomes of one experiment, by the share removed: without a factor, then of each factor.

    The family of tests has the factors that `earlier` experiments tried on fresh rounds, not those of screens, which
    confirm nothing.
    """
    measured = list(measure(experiment, rows, facts))
    p_values = {each.factor: _p_values(each, runs)[0] for each, runs in measured if runs}
    before = {
        outcome.factor
        for outcome in earlier
        if outcome.taken
        and outcome.experiment.stage != Stage.SCREEN
        and subject(outcome.experiment) == subject(experiment)
    }
    # Factors that had fresh rounds before, and have none here, have p = 1.
    absent = [1.0] * len(before - p_values.keys())
    families = {
        name: [p, *(other for beside, other in p_values.items() if beside != name), *absent]
        for name, p in p_values.items()
    }
    return [Outcome.of(each, decide(each, None, families.get(each.factor, ()))) for each, _ in measured]


def settled(
    experiment: Experiment,
    rows: pd.DataFrame,
    claims: Claims = MappingProxyType({}),
    facts: Mapping[str, FactorFacts] = MappingProxyType({}),
) -> bool:
    """Whether more rounds of an experiment that runs are not worth their time, see `rule.ends_early`.

    Factors without a claim of their cause are judged by the share that they remove.
    """
    measured = [each for test in experiment.by_functional() for each in measure(test, rows, facts)]
    return ends_early(
        [
            _p_values(each, runs, claims.get((each.experiment.functional, each.factor or "")))
            for each, runs in measured
            if runs
        ]
    )


def _p_values(measured: Measurement, runs: Runs, claim: float | None = None) -> tuple[float, float]:
    """One-sided p of the tests that confirm and refute."""
    least = confirmed_above(measured.effect, measured.experiment.functional_kind)
    return runs.p_values(least, REFUTED_BELOW, claim if goes_by_claim(measured.effect) else None)


def subject(experiment: Experiment) -> tuple[object, ...]:
    """What an experiment tests: its scope, term and functional."""
    return experiment.scope, experiment.layer, experiment.phase, experiment.functional
