"""The rule: when an experiment confirms a cause, and when it refutes one.

An experiment runs the step or the term by turns with a change and without it. It measures the share
that the change removes: of the anomaly, or of the part that the recording suggests for the cause. A
cause is *confirmed* where this share lies above one half, and is certainly above one fifth. Certain
is a one-sided p below 2 %, after Holm's correction over all changes that the recording tried. A
cause is *refuted* where the share's 95 % interval lies below one fifth. Else it is *undecided*.
Complete steps need several starts of the processes, each of which counts once. A change that makes
every batch size faster alike removes nothing.

No verdict is made anywhere else. How that share is measured: `contrast`. How often such verdicts
are right: docs/internals/evidence.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ...profiling.recording.experiments import Scope, Stage
from ..decompose.functionals import FIXED_COST
from ..decompose.statistics import LEVEL, MATERIAL, Estimate, at_most, holm
from .contrast import REFUTED_BELOW
from .measurement import Effect, Measurement
from .words import Reproduction, Verdict

CONFIRMED_ABOVE = 1 / 2  # what removes more than half of an effect is its main cause: no two can
_MOST_REMOVED = 1.5  # beyond it, the factor turns the anomaly round, to more than half its size
# What a saving is worth, as a share of a step's time, from the least to the most.
LEAST_SAVING = 0.01  # proven on fresh rounds, or beyond other changes; less is no change's worth
SCREENED_SAVING = MATERIAL  # seen once, in a screen or on a term: worth fresh rounds of the step
LEAST_UNKNOWN_SAVING = 0.03  # not ruled out: a change that saves less gets no further starts
LEAST_TERM_SAVING = 0.05  # of a term's own time, for an answer to name the change of the term
LARGE_SAVING = 0.1  # or loss: it decides alone, whatever share of the anomaly the change removes
# One-sided, of all causes of a recording: of 100 recordings at most 2 make a false claim.
CLAIM_LEVEL = 0.02
# The same of all savings; stricter, as with five starts of processes that have one of two speeds a
# level of 2 % let 2.6 of 100 make one.
SAVING_LEVEL = 0.015
EARLY_LEVEL = 0.001  # of all tests at one look at an experiment that still runs
TOO_WIDE = "the interval is too wide"
A_PART = "it removes less than half"
ONE_ROUND = "a single round has no interval"
ONE_START = "processes differ, and this change ran in a single start of them"
UNKNOWN_SIZE = "without the factor, nothing can be distinguished from 0"
ONLY_SCREENED = "only the screen of all changes shows it; fresh rounds have to confirm it"
TOO_SLOW = "it slows the other batch sizes by more than the anomaly"
OVERTAKEN = "it replaces the anomaly by another one"
LEVELLED = "it removes the anomaly only by slowing other batch sizes"

_Test = TypeVar("_Test", bound=Hashable)


def refutes_padding(alone_ms: float, padded_ms: float, least: float) -> bool:
    """Whether the size that a batch is padded to takes too long to save the share `least`."""
    return padded_ms > (1 - least) * alone_ms


class Decision(NamedTuple):
    """A verdict, with the reason for an undecided or untested one as a clause without a full stop;
    else None.
    """

    verdict: Verdict
    reason: str | None = None


def decide(measured: Measurement, claim: float | None, family: Sequence[float]) -> Decision:
    """Decide on the cause that a factor tests.

    Args:
        measured: what one factor changed in one experiment.
        claim: amount in ms that the cause claims of the functional, with its sign; None, or where
            that says nothing of the factor, see `goes_by_claim`: all of it.
        family: `p_of` this test, then of all others of the recording on fresh rounds.
    """
    share, effect = share_of(measured, claim), measured.effect
    if share is None:
        return Decision(
            Verdict.UNDECIDED if measured.changed_ms else Verdict.UNTESTED, measured.why_not
        )
    if share.high < REFUTED_BELOW:
        if measured.can_refute:
            return Decision(Verdict.REFUTED)
        return Decision(Verdict.UNDECIDED, "it removes a part of the cause only")
    reason = None
    least = least_share(effect, measured.experiment.functional_kind)
    if measured.rounds < 2:
        reason = ONE_ROUND
    elif measured.experiment.scope == Scope.STEP and measured.starts < 2:
        reason = ONE_START
    elif not math.isfinite(share.low):
        reason = UNKNOWN_SIZE
    elif _overtakes(measured):
        reason = TOO_SLOW if effect == Effect.BRINGING else OVERTAKEN
    elif share.value <= least or not _is_significant(family) or _may_turn(measured):
        narrow = A_PART if share.high <= least else TOO_WIDE
        reason = LEVELLED if _levels(measured, claim) else narrow
    elif effect == Effect.PARTIAL and not _is_material(measured):
        reason = "what it removes may be under 2 % of the step"
    # A screen tries many factors and shows some by luck; its rounds suggested the factor, and
    # cannot confirm it too.
    elif measured.experiment.stage == Stage.SCREEN:
        reason = ONLY_SCREENED
    elif _levels(measured, claim):
        reason = LEVELLED
    return Decision(Verdict.UNDECIDED if reason else Verdict.CONFIRMED, reason)


def share_of(measured: Measurement, claim: float | None) -> Estimate | None:
    """The share that a factor removes of the functional, or of what its cause claims; None if it
    did not run.

    A claim is an estimate without an interval.
    """
    removed = measured.removed
    if claim is None or removed is None or not goes_by_claim(measured.effect):
        return measured.taken
    ends = sorted((removed.low / claim, removed.high / claim))
    return Estimate(removed.value / claim, ends[0], ends[1], removed.p)


def p_of(measured: Measurement, claim: float | None) -> float:
    """One-sided p of a share of at most one fifth, see `share_of`; 1 if that is not known."""
    if measured.p_little is None or measured.removed is None:
        return 1.0
    if claim is None or not goes_by_claim(measured.effect):
        return measured.p_little
    share = share_of(measured, claim)
    assert share is not None
    return at_most(share, REFUTED_BELOW, measured.freedom)


def _is_significant(family: Sequence[float]) -> bool:
    """Whether the interval lies above one fifth, among all tests of a recording."""
    return holm(family)[0] < CLAIM_LEVEL


def _may_turn(measured: Measurement) -> bool:
    """Whether a factor that brings its cause about may slow the other batch sizes by far more than
    the anomaly.
    """
    taken = measured.taken
    return measured.effect == Effect.BRINGING and taken is not None and taken.high >= _MOST_REMOVED


def goes_by_claim(effect: Effect) -> bool:
    """Whether a factor of complete steps is judged by its cause's claim; else always by its share
    of the anomaly.
    """
    return effect not in (Effect.BRINGING, Effect.PARTIAL)


def least_share(effect: Effect, kind: str) -> float:
    """The share above which a factor with this effect confirms its cause, of a functional of this
    kind.

    Of the fixed cost, a factor that removes a part of its cause shows how much the cause makes at
    least. That is enough where any other factor would not be refuted, if it is material. Of
    anything else the host's work, the same at all batch sizes, makes a part only by chance.
    """
    return REFUTED_BELOW if effect == Effect.PARTIAL and kind == FIXED_COST else CONFIRMED_ABOVE


def _levels(measured: Measurement, claim: float | None) -> bool:
    """Whether a factor that runs batch sizes at nearly one size makes none faster, see
    `makes_faster`.
    """
    return measured.effect == Effect.LEVELLING and not makes_faster(measured, claim)


def makes_faster(measured: Measurement, claim: float | None = None) -> bool:
    """Whether a factor makes the slow batch sizes faster, by at least half of the claim, or else
    of F.
    """
    f = measured.value.value if measured.value else 0.0
    return measured.saved_ms >= CONFIRMED_ABOVE * abs(f if claim is None else claim)


def _overtakes(measured: Measurement) -> bool:
    """Whether F' is another anomaly; an excess under 0 is a fixed cost, if the larger batch size
    became faster.
    """
    f, taken = measured.value.value if measured.value else 0.0, measured.taken
    fixed = (
        measured.experiment.functional_kind == "excess"
        and f > 0
        and measured.saved_ms > CONFIRMED_ABOVE * f
    )
    beyond = taken is not None and math.isfinite(taken.low) and taken.value > _MOST_REMOVED
    return beyond and (measured.effect == Effect.BRINGING or not fixed)


def _is_material(measured: Measurement) -> bool:
    """Whether a factor removes more than a smallest effect of the step, by the near end of its
    interval.
    """
    removed, size_ms = measured.removed, measured.times_ms[measured.gain_index].value
    return removed is not None and min(abs(removed.low), abs(removed.high)) >= MATERIAL * size_ms


def saving_family(gains: Mapping[_Test, Estimate]) -> dict[_Test, float]:
    """One-sided p of every saving of complete steps that was measured on fresh rounds, adjusted by
    Holm over all.
    """
    one_sided = {
        test: gain.p / 2 if gain.value > 0 else 1 - gain.p / 2 for test, gain in gains.items()
    }
    return dict(zip(one_sided, holm(list(one_sided.values())), strict=True))


def saves(gain: Estimate, adjusted: float) -> bool:
    """Whether a saving on fresh rounds is proven at a batch size; `adjusted` is its p from
    `saving_family`.
    """
    return gain.low > 0 and gain.value >= LEAST_SAVING and adjusted < SAVING_LEVEL


def decide_saving(gains: Sequence[Estimate], proven: Sequence[object]) -> Verdict:
    """Whether a change of complete steps saves something, by shares saved and batch sizes where
    that is proven.
    """
    if proven:
        return Verdict.CONFIRMED
    if not gains:
        return Verdict.UNTESTED
    return Verdict.REFUTED if all(gain.high < MATERIAL for gain in gains) else Verdict.UNDECIDED


def ends_early(tests: Sequence[tuple[float, float]]) -> bool:
    """Whether every test of an experiment that still runs is far from undecided: one-sided p to
    confirm and to refute.

    Looks at so strict a level (Bonferroni) add next to nothing to the error of the last one, which
    keeps its level (Haybittle, Brit. J. Radiology 44 (1971); Peto et al., Brit. J. Cancer 34
    (1976)).
    """
    return bool(tests) and all(min(p_values) < EARLY_LEVEL / len(tests) for p_values in tests)


def reproduction(share: Estimate, isolated: Estimate) -> Reproduction:
    """Whether a term in isolation shows its share of the anomaly in the step; a term that does not
    proves nothing.
    """
    size, low, high = (
        abs(share.value),
        *sorted(np.sign(share.value) * np.array([isolated.low, isolated.high])),
    )
    if isolated.p < LEVEL and low > 0:
        # A share that is hardly known does not make a small measurement all of it.
        is_close = abs(isolated.value) >= size / 2 and share.low <= isolated.value <= share.high
        return Reproduction.REPRODUCES if low >= size / 2 or is_close else Reproduction.PARTLY
    return Reproduction.NOT if high < size / 2 else Reproduction.UNDECIDED
