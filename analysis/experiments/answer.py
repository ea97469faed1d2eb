"""Answers: for each anomaly and the fixed cost of a step, what it is, where, why, what to do, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...profiling.recording.store import Recording
from ..decompose.functionals import Functional
from ..decompose.statistics import Estimate
from .outcome import Outcome
from .shape import Shape

if TYPE_CHECKING:
    from ..decompose.anomalies import Diagnosis


@dataclass(frozen=True)
class Remedy:
    """Something to do, with its measured gain.

    Attributes:
        factor: name of the factor that helped.
        what: an instruction, e.g. "run fc6 forward through oneDNN".
        how: how a user sets it; None if `what` says it.
        batch: batch size of the gain: the largest of the experiment, for a fixed cost the smallest.
        term_gain: share of the term's time saved at that batch size; None if it was not run alone.
        step_gain: share of the complete step saved at that batch size; None if it was not measured on the step.
        step_gains: the same at every batch size of the experiment, as (batch size, gain); empty as for `step_gain`.
        changed_results: what differs, if it changes the results beyond rounding; else None.
    """

    factor: str
    what: str
    how: str | None
    batch: int
    term_gain: Estimate | None
    step_gain: Estimate | None
    step_gains: tuple[tuple[int, Estimate], ...] = ()
    changed_results: str | None = None


@dataclass(frozen=True)
class Evidence:
    """The experiments on one term of an anomaly, or on the complete step.

    Attributes:
        label: label of the term; "the step" for complete steps.
        share: the term's share in the step, in the functional's unit; None for the complete step.
        alone: the term alone, without a change; None if it was not run. For the complete step, the step as it is.
        reproduction: see `outcome.Reproduction`; None for the complete step, or if it was not run alone.
        shape: shape of the curve on a finer grid; None if it was not run.
        factors: one outcome per factor, the decisive one: the last of those that were confirmed or refuted on fresh
            rounds, else the last; confirmed ones first.
    """

    label: str
    share: Estimate | None
    alone: Outcome | None
    reproduction: str | None
    shape: Shape | None
    factors: tuple[Outcome, ...]


@dataclass(frozen=True)
class Answer:
    """The answer on one anomaly, or on the fixed cost.

    Attributes:
        functional: the anomaly.
        value: its value and interval.
        what: name of the anomaly with its value, e.g. "The bend at 4 (−28.9 ms)".
        where: label of the term that makes most of it; None if no term does.
        cause: the largest confirmed cause, else the largest that the recording suggests; None without any.
        verdict: verdict on that cause, see `outcome.Verdict`.
        why: the cause as a clause, e.g. "MKL's product; through oneDNN the bend is gone"; None without a cause.
        taken: share that the decisive factor takes away; None if nothing was tested.
        remedy: what to do; None if no remedy was measured.
        how_sure: verdict and interval, e.g. "confirmed, 83 % taken away, 71 to 95 %".
        sentence: all of this in one or two sentences.
        evidence: experiments behind it, by term, the largest first.
    """

    functional: Functional
    value: Estimate
    what: str
    where: str | None
    cause: str | None
    verdict: str
    why: str | None
    taken: Estimate | None
    remedy: Remedy | None
    how_sure: str
    sentence: str
    evidence: tuple[Evidence, ...]


def answers(diagnosis: Diagnosis, recording: Recording) -> tuple[Answer, ...]:
    """The answer on every explained anomaly, the largest first, and last on the fixed cost, if it is significant."""
    raise NotImplementedError
