"""One functional explained, as data: its terms and causes, and of an anomaly or a fixed cost the
answer, which is what leads, where, what to do, and the experiments behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ...profiling.recording.axis import Axis
from ..causes import NOT_SIGNIFICANT, UNEXPLAINED, CauseTotal, Intervention, interventions_with
from ..causes.case import Anomaly
from ..decompose.functionals import CANCELS
from ..decompose.statistics import LEVEL, Estimate
from ..verdicts.outcome import Outcome
from ..verdicts.shape import Shape
from ..verdicts.words import Reproduction, Verdict

_LEAST_LEADING = 0.1  # of an anomaly; a smaller cause does not lead the answer
_IN_ONE_TERM = 0.8  # of a cause that complete steps confirm, from which its largest term is named
THE_STEP = "the step"


class Drawn:
    """The text that a notebook shows as HTML and `print` as text, once `analysis.render` has
    registered how.
    """

    _html: ClassVar[Callable[[Any], str] | None] = None
    _text: ClassVar[Callable[[Any], str]] = repr

    @classmethod
    def draw_by(
        cls, html: Callable[[Any], str] | None, text: Callable[[Any], str] | None = None
    ) -> None:
        """Register how objects of this class are drawn."""
        cls._html = None if html is None else staticmethod(html)
        cls._text = staticmethod(text or repr)

    def __str__(self) -> str:
        return type(self)._text(self)

    def _repr_html_(self) -> str | None:
        draw = type(self)._html
        return None if draw is None else draw(self)


@dataclass(frozen=True)
class Padding:
    """The size that a padded batch runs as."""

    to: int  # that size
    # measured time of the place that is padded, and of the same at that size, ms; None if that size
    # was not measured
    times_ms: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Something to do, with its measured gain."""

    factor: str  # name of the factor that helped
    where: str  # label of the term that it was tried on; "the step" for complete steps
    what: str  # an instruction, e.g. "run fc6 forward through oneDNN"
    how: str | None  # instructions to set it; None if `what` says it
    # batch size of the gain: the largest of the experiment, for a fixed cost the smallest
    batch: int
    # share of the term's time saved at that batch size; None if it was not run in isolation
    term_gain: Estimate | None
    # share of the complete step saved at that batch size; None if it was not measured on the step
    step_gain: Estimate | None
    # share saved at every batch size of the experiment, as (batch size, gain); empty as for
    # `step_gain`
    step_gains: tuple[tuple[int, Estimate], ...] = ()
    # differences, if it changes the results beyond rounding; else None
    changed_results: str | None = None
    padding: Padding | None = None  # where it pads the batch; None of another change


@dataclass(frozen=True)
class TermEvidence:
    """The experiments on one term of an anomaly, or on the complete step."""

    label: str  # label of the term; "the step" for complete steps
    # the term's share in the step, in the functional's unit; None for the complete step
    share: Estimate | None
    # the term in isolation, unmodified; None if it was not run. For the complete step, the
    # unmodified step
    alone: Outcome | None
    # see `words.Reproduction`; None for the complete step, or if it was not run in isolation
    reproduction: Reproduction | None
    shape: Shape | None  # shape of the curve on a finer grid; None if it was not run
    # one outcome per factor, the decisive one: the last of those that were confirmed or refuted on
    # fresh rounds, else the last; confirmed ones first
    factors: tuple[Outcome, ...]

    def confirms(self, names: Container[str | None]) -> bool:
        """Whether one of these factors is confirmed."""
        return any(
            outcome.factor in names and outcome.verdict == Verdict.CONFIRMED
            for outcome in self.factors
        )


def is_noise(value: Estimate) -> bool:
    """Whether an anomaly is smaller than its noise."""
    return math.isfinite(value.low) and value.p >= LEVEL


def find_leading(value: Estimate, causes: Sequence[CauseTotal]) -> CauseTotal | None:
    """What leads an answer: the largest confirmed cause, else the largest cause; None where both
    are small, as most cannot be distinguished from 0.

    An unexplained amount is no cause, so it counts by its largest term.
    """
    if is_noise(value):
        return None
    large = []
    for total in causes:
        is_large = abs(amount_in_one_place(total)) >= _LEAST_LEADING * abs(value.value)
        if total.cause != NOT_SIGNIFICANT and total.amount * value.value > 0 and is_large:
            large.append(total)
    return max(
        large,
        key=lambda total: (total.verdict == Verdict.CONFIRMED, abs(amount_in_one_place(total))),
        default=None,
    )


def amount_in_one_place(total: CauseTotal) -> float:
    """The amount of a cause; without a cause, the amount of the largest term."""
    return total.terms[0].amount if total.cause == UNEXPLAINED else total.amount


def find_intervention(leading: CauseTotal | None) -> Intervention | None:
    """The experiment of the cause that leads, with the factors that causes share where the
    recording has evidence of them.
    """
    if leading is None:
        return None
    evident = set()
    for term in leading.terms:
        for claim in (term.claim, *term.rivals):
            if claim is not None:
                evident.add(claim.cause)
    return interventions_with(evident).get(leading.cause)


@dataclass(frozen=True, kw_only=True)
class Explanation(Drawn, Anomaly):
    """An anomaly with its causes, which add up to its value as its terms do; of an anomaly of the
    curve and of the fixed cost of a step also the answer, of which `render` makes words.
    """

    # what experiments confirm and the recording suggests, see `causes.attribute`
    causes: tuple[CauseTotal, ...] = ()
    axis: Axis = field(default_factory=Axis)
    # experiments by term, the largest first; None of a functional that no answer is about
    evidence: tuple[TermEvidence, ...] | None = None
    remedy: Remedy | None = None  # the remedy with the largest gain; None if no remedy was measured

    @property
    def noise(self) -> bool:
        """Whether it is smaller than its noise."""
        return is_noise(self.value)

    @property
    def cancels(self) -> bool:
        """Whether a part is so much larger than the whole that shares of it say nothing."""
        parts = [share.value.value for share in self.shares]
        parts += [total.amount for total in self.causes]
        return max(map(abs, parts), default=0.0) > CANCELS * abs(self.value.value)

    @property
    def largest_term(self) -> str | None:
        """Label of the term that makes most of the value; None if none has its sign."""
        agreeing = [share for share in self.shares if share.value.value * self.value.value > 0]
        if agreeing:
            return max(agreeing, key=lambda share: abs(share.value.value)).label
        return None

    @property
    def largest_cause(self) -> CauseTotal | None:
        """The cause of most of the value in its direction, confirmed or not; None for a value of 0.

        A value below its own noise is not significant, whatever its terms are. Of another value,
        terms that are not significant alone stand in for a cause only where there is nothing else.
        """
        if self.noise:
            unstable = (total for total in self.causes if total.cause == NOT_SIGNIFICANT)
            return next(unstable, CauseTotal(NOT_SIGNIFICANT, 0.0, ()))
        return max(
            (total for total in self.causes if total.amount * self.value.value > 0),
            key=lambda total: (total.cause != NOT_SIGNIFICANT, abs(total.amount)),
            default=None,
        )

    @cached_property
    def leading(self) -> CauseTotal | None:
        """What leads the answer, see `find_leading`."""
        return find_leading(self.value, self.causes)

    @property
    def cause(self) -> str | None:
        """Name of the cause that leads; None if none is known."""
        has_cause = self.leading is not None and self.leading.cause != UNEXPLAINED
        if self.leading is not None and has_cause:
            return self.leading.cause
        return None

    @property
    def verdict(self) -> Verdict:
        """Verdict of the experiments on the cause that leads."""
        if self.leading is None or self.cause is None:
            return Verdict.UNTESTED
        return self.leading.verdict

    @property
    def on_step(self) -> bool:
        """Whether only complete steps confirm the cause."""
        return (
            self.leading is not None
            and self.leading.confirmed_on_steps
            and self._lone_proof is None
        )

    @property
    def where(self) -> str | None:
        """Label of the term that makes most of what leads; None if no term does, or if complete
        steps confirm a cause that the recording sees in several terms.
        """
        if self.noise:
            return None
        if self.leading is None:
            return self.largest_term
        largest = self.leading.terms[0]
        if self.on_step and abs(largest.amount) < _IN_ONE_TERM * abs(self.leading.amount):
            return None
        return self._lone_proof or largest.label

    @property
    def layer(self) -> str | None:
        """Name of the layer of `where`; None if no term makes most of what leads."""
        layers = (share.layer for share in self.shares if share.label == self.where)
        return next(layers, self.where)

    @property
    def line(self) -> str | None:
        """Line of the program with most of its time, e.g. `model.py:41`; None if unknown."""
        lines = (share.line for share in self.shares if share.label == self.where)
        return next(lines, None)

    @cached_property
    def deciding(self) -> Outcome | None:
        """The outcome that decides on the cause: in the term where it is largest, else on complete
        steps; None if nothing was tested.
        """
        if self.intervention is None:
            return None
        place = None if self.on_step else self.where
        places = ((place, self.intervention.term), (THE_STEP, self.intervention.step))
        for label, names in places:
            for of_term in self.evidence or ():
                for outcome in of_term.factors if of_term.label == label else ():
                    if outcome.factor in names and outcome.taken:
                        return outcome
        return None

    @property
    def share_removed(self) -> Estimate | None:
        """Share that the decisive factor removes; None if nothing was tested."""
        return None if self.deciding is None else self.deciding.taken

    @cached_property
    def intervention(self) -> Intervention | None:
        """The experiment of the cause that leads, see `find_intervention`."""
        return find_intervention(self.leading)

    @cached_property
    def _lone_proof(self) -> str | None:
        """Label of the largest term that confirms the leading cause alone; None without one."""
        names = self.intervention.term if self.intervention else ()
        confirmed = set()
        for of_term in self.evidence or ():
            if of_term.share is not None and of_term.confirms(names):
                confirmed.add(of_term.label)
        terms = self.leading.terms if self.leading else ()
        for term in terms:
            if term.label in confirmed:
                return term.label
        return None
