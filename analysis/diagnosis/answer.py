"""Last stage of a diagnosis: for each anomaly and the fixed cost of a step, the experiments on its
causes, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from ...profiling.recording.axis import Axis
from ...profiling.recording.experiments import (
    PADDED_BATCH,
    FactorFacts,
    Stage,
    choose_multiple,
    pad,
)
from ...profiling.recording.store import Recording
from ..causes import Anomaly, CauseTotal, Intervention
from ..causes.context import Recorded, weights_of
from ..decompose.curve import Curve
from ..decompose.statistics import Estimate
from ..decompose.terms import Share, Terms
from ..verdicts.outcome import Outcome
from ..verdicts.proof import about, decisive, find_isolated, reproduces
from ..verdicts.rule import LEAST_SAVING, LEAST_TERM_SAVING, refutes_padding
from ..verdicts.savings import Saving
from ..verdicts.shape import Shape, shape
from .estimate import Estimates
from .explanation import (
    THE_STEP,
    Explanation,
    Padding,
    Remedy,
    TermEvidence,
    find_intervention,
    find_leading,
)
from .remedies import Remedies, find_remedies, insert_names

_FRESH = (Stage.CONFIRM, Stage.REMEDY)


@dataclass(frozen=True)
class Grounds:
    """What all answers of a diagnosis rest on."""

    outcomes: Sequence[Outcome]
    remedies: Remedies
    curve: Curve
    axis: Axis
    weights: tuple[str, ...]  # parameters that the products of a step multiply by
    terms: Terms | None  # None if no step was profiled
    grids: pd.DataFrame  # runs of experiments, where one was on a finer grid; else empty

    @classmethod
    def of(
        cls,
        outcomes: Sequence[Outcome],
        recorded: Recorded,
        estimates: Estimates,
        recording: Recording | None,
    ) -> Grounds:
        """The grounds of a diagnosis with these outcomes."""
        curve, terms = estimates
        weights = weights_of(recorded.operands)
        remedies = find_remedies(outcomes, weights, curve.times_ms)
        has_grid = any(outcome.experiment.stage == Stage.GRID for outcome in outcomes)
        grids = pd.DataFrame()
        if recording and has_grid:
            grids = recording.frame("experiments")
        return cls(outcomes, remedies, curve, recorded.axis, weights, terms, grids)

    @property
    def trains(self) -> bool:
        """Whether a step has a backward pass."""
        return self.terms is not None and any(key.phase == "backward" for key in self.terms.keys)


def answer(anomaly: Anomaly, causes: tuple[CauseTotal, ...], grounds: Grounds) -> Explanation:
    """The answer on an anomaly, from its causes and the experiments on it."""
    evidence = tuple(_list_evidence(anomaly, grounds))
    leading = find_leading(anomaly.value, causes)
    remedy = None
    if leading is not None:
        remedy = find_remedy(anomaly, find_intervention(leading), evidence, grounds)
    return Explanation(
        functional=anomaly.functional,
        value=anomaly.value,
        terms=anomaly.terms,
        also=anomaly.also,
        causes=causes,
        axis=grounds.axis,
        evidence=evidence,
        remedy=remedy,
    )


def _list_evidence(anomaly: Anomaly, grounds: Grounds) -> Iterator[TermEvidence]:
    """The experiments on each term, the largest first, then those on complete steps."""
    for share in sorted(anomaly.shares, key=lambda share: -abs(share.value.value)):
        tests = about(grounds.outcomes, anomaly.functional, share)
        if tests:
            yield _collect_evidence(share, tests, grounds)
    tests = about(grounds.outcomes, anomaly.functional, None)
    if tests:
        yield _collect_evidence(None, tests, grounds)


def _collect_evidence(
    share: Share | None, tests: Sequence[Outcome], grounds: Grounds
) -> TermEvidence:
    """The experiments on one term; on complete steps without one."""
    unmodified = [test for test in tests if test.factor is None]
    isolated = find_isolated(tests) or unmodified[0]
    factors = tuple(sorted(decisive(tests).values(), key=_by_verdict))
    last_shape = _find_shape(unmodified, grounds)
    if share is None:
        return TermEvidence(THE_STEP, None, isolated, None, last_shape, factors)
    agrees = reproduces(tests, share)
    return TermEvidence(share.label, share.value, isolated, agrees, last_shape, factors)


def _find_shape(unmodified: Sequence[Outcome], grounds: Grounds) -> Shape | None:
    """The shape of the curve on the last finer grid; None if none was measured."""
    for test in reversed(unmodified):
        if test.experiment.stage == Stage.GRID and test.value and len(grounds.grids):
            rows = grounds.grids[grounds.grids["experiment"] == test.experiment.number]
            return shape(test, rows, grounds.axis)
    return None


def _by_verdict(outcome: Outcome) -> tuple[int, float]:
    return outcome.verdict.rank, -(outcome.taken.value if outcome.taken else 0.0)


class _Gain(NamedTuple):
    """The saving of a change where it counts, and the least saving to be worth a word."""

    share: Estimate
    least: float
    whole_ms: float
    of_step: bool

    @property
    def size(self) -> tuple[bool, float]:
        """A gain of the complete step counts more than any of a term; else the saved time, ms."""
        return self.of_step, self.share.value * self.whole_ms


def find_remedy(
    anomaly: Anomaly,
    tests: Intervention | None,
    evidence: Sequence[TermEvidence],
    grounds: Grounds,
) -> Remedy | None:
    """What helped most: on complete steps if that was measured, in any experiment, else on the
    largest term.

    `tests` is the experiment of the cause that leads: on terms only its factors count.
    """
    on_steps = {saving.factor: saving for saving in grounds.remedies.savings if saving.fresh}
    candidates: list[tuple[tuple[bool, float], Remedy]] = []
    for term in evidence:
        for outcome in term.factors:
            factor, facts = outcome.factor, outcome.facts
            if factor is None or facts is None or facts.remedy is None:
                continue
            if not outcome.gains or outcome.experiment.stage not in _FRESH:
                continue
            saving = on_steps.get(factor)
            if saving is None and tests and factor not in (*tests.term, *tests.step):
                continue
            gain = _find_gain(outcome, saving, grounds.curve)
            padding = _find_padding(anomaly, term.label, outcome, grounds)
            if gain is None or _is_refuted(padding, outcome, term):
                continue
            remedy = _describe_remedy(anomaly, term, outcome, facts, saving, grounds)
            if padding is not None:
                what = f"pad {term.label} from {remedy.batch} to {padding.to}"
                remedy = replace(remedy, what=what, padding=padding)
            candidates.append((gain.size, remedy))
    if candidates:
        return max(candidates, key=lambda item: item[0])[1]
    return None


def _find_gain(outcome: Outcome, saving: Saving | None, curve: Curve) -> _Gain | None:
    """The gain of a change by which it is advised; None if it is not proven, or too small."""
    at = outcome.gain_index
    batch = outcome.batches[at]
    term_ms = outcome.times_ms[at].value
    counts = _Gain(outcome.gains[at], LEAST_TERM_SAVING, term_ms, of_step=False)
    step_gain = _gain_at(saving, batch)
    if saving is not None and step_gain is not None:
        # What the table of savings calls undecided is no advice either.
        if batch not in saving.proven:
            return None
        step_ms = curve.at(batch).time_ms.value
        counts = _Gain(step_gain, LEAST_SAVING, step_ms, of_step=True)
    if counts.share.low > 0 and counts.share.value >= counts.least:
        return counts
    return None


def _find_padding(
    anomaly: Anomaly, where: str, outcome: Outcome, grounds: Grounds
) -> Padding | None:
    """The size that a padded batch runs as where its gain is; None of another factor."""
    if outcome.factor != PADDED_BATCH:
        return None
    batch = outcome.batches[outcome.gain_index]
    to = pad(batch, choose_multiple(outcome.experiment.batches))
    if where == THE_STEP:
        times = [grounds.curve.times_ms.get(size) for size in (batch, to)]
    elif grounds.terms is not None:
        key = anomaly.key_of(where)
        times = [grounds.terms.time_ms(key, size) for size in (batch, to)]
    else:
        times = []
    known = [time_ms for time_ms in times if time_ms is not None]
    return Padding(to, (known[0], known[1]) if len(known) == 2 else None)


def _is_refuted(padding: Padding | None, outcome: Outcome, term: TermEvidence) -> bool:
    """Whether a batch is padded to its own size, or to one that the sweep measured as no faster."""
    if padding is None:
        return False
    if padding.times_ms is None:
        return padding.to == outcome.batches[outcome.gain_index]
    least = LEAST_SAVING if term.share is None else LEAST_TERM_SAVING
    return refutes_padding(*padding.times_ms, least)


def _gain_at(saving: Saving | None, batch: int) -> Estimate | None:
    """The share of a complete step saved at a batch size; None if it was not measured."""
    if saving is None:
        return None
    return dict(saving.gains).get(batch)


def _describe_remedy(
    anomaly: Anomaly,
    term: TermEvidence,
    outcome: Outcome,
    facts: FactorFacts,
    saving: Saving | None,
    grounds: Grounds,
) -> Remedy:
    """The change of an outcome as something to do."""
    at, where = outcome.gain_index, term.label
    batch = outcome.batches[at]
    how = facts.how_training if grounds.trains else None
    changed = saving.changed_results if saving else None
    remedy = facts.remedy or ""
    weights = _weights_in(anomaly, where, grounds)
    return Remedy(
        factor=str(outcome.factor),
        where=where,
        what=remedy.format(where=where),
        how=insert_names(how or facts.how, weights),
        batch=batch,
        term_gain=None if term.share is None else outcome.gains[at],
        step_gain=_gain_at(saving, batch),
        step_gains=saving.gains if saving else (),
        changed_results=outcome.changed_results or changed,
    )


def _weights_in(anomaly: Anomaly, where: str, grounds: Grounds) -> tuple[str, ...]:
    """The parameters that the products of a term, or of the step, multiply by."""
    if where == THE_STEP:
        return grounds.weights
    for case in anomaly.cases:
        if case.share.label == where:
            return case.operands(case.after).weights
    return ()
