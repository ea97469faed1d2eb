"""Find the significant functionals of a cost curve and the anomalies among them, and split these into terms.

Tested are the excess over proportional cost of every adjacent pair of batch sizes, and the bend away from fixed plus
proportional cost of every inner one. All tests of a curve form one family (Holm). An effect under 2 % of the step time
is no anomaly however significant it is.

Anomalies are a positive excess (the larger batch costs more than its share), and a bend in either direction. A negative
excess on a straight line is the amortised fixed cost of a step: significant and reported, but no anomaly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from ...base.errors import CurvescopeError
from ...profiling.recording.axis import Axis
from ..causes import Attribution, Weighed, attribute, weigh_causes
from ..causes.context import Examined, Recorded, cases, examine
from ..decompose.curve import Curve, cost_curve
from ..decompose.functionals import Functional, bend, curvature, excess, fixed_cost, neighbours
from ..decompose.statistics import LEVEL, MATERIAL, Estimate, holm
from ..decompose.terms import IDLE, KERNELS, LEFT_OVER, OVERHEAD, Share, Terms, estimate_terms, in_rounds, main_kernels
from ..render.documents import UNDOCUMENTED

if TYPE_CHECKING:
    from ..verdicts.outcome import Outcome
    from .answer import Answer

LARGE = 0.05  # of a step: worth more rounds while it is not distinguished from 0
_LAST = {LEFT_OVER: 1, IDLE: 2, OVERHEAD: 3}  # of the shares, after those of kernels


class Verdict:
    """Verdicts on a functional."""

    ANOMALY = "anomaly"
    FIXED_COST = "fixed cost"  # significant, and as an amortised fixed cost gives it
    SMALL = "real but under 2 %"
    SMALL_IN_TABLE = "real but under 5 %"  # of a table of times, whose curves bend a little everywhere
    CORNER = "corner of max(host, device)"  # of a table of times: flat, then proportional
    NOT_SIGNIFICANT = "not significant"  # its own interval excludes 0, but Holm's correction takes it back
    NOISE = "noise"


@dataclass(frozen=True)
class Finding:
    """One functional of the curve, tested.

    Attributes:
        shown: the displayed functional: excess, or curvature on the chosen axis.
        value: its value and interval.
        tested: the functional behind the verdict: the excess itself, or the bend for a curvature.
        tested_value: its value and interval, in ms.
        p_adjusted: p of `tested`, adjusted over the family.
        verdict: see `Verdict`.
    """

    shown: Functional
    value: Estimate
    tested: Functional
    tested_value: Estimate
    p_adjusted: float
    verdict: str

    @property
    def shape(self) -> str:
        """In words: super-linear or sub-linear; concave-up or concave-down."""
        if self.shown.kind == "excess":
            return "super-linear" if self.value.value > 0 else "sub-linear"
        return "concave-up" if self.value.value > 0 else "concave-down"


class _Shown:
    """Gives notebooks HTML, and `print` text, once `render.notebook` is loaded and has set `html` and `text`."""

    html: ClassVar[Callable[[Any], str] | None] = None
    text: ClassVar[Callable[[Any], str] | None] = None

    def __str__(self) -> str:
        text = type(self).text
        return repr(self) if text is None else text(self)

    def _repr_html_(self) -> str | None:
        html = type(self).html
        return None if html is None else html(self)


@dataclass(frozen=True)
class Explanation(_Shown):
    """A functional split into its shares, the largest first; their values add up to its value.

    Attributes:
        functional: the functional.
        value: its value and interval.
        shares: one per term; left over, idle and profiling overhead last.
        attribution: the causes of the shares; their amounts add up to the value too.
        also: labels of other findings from the same term at the same batch size.
        weighed: the shares with what causes claim of them, in the order of the shares.
    """

    functional: Functional
    value: Estimate
    shares: tuple[Share, ...]
    attribution: Attribution
    also: tuple[str, ...] = ()
    weighed: tuple[Weighed, ...] = field(default=(), repr=False, compare=False, metadata=UNDOCUMENTED)


@dataclass(frozen=True)
class Diagnosis(_Shown):
    """Everything `diagnose` and `explain` show.

    Attributes:
        curve: the cost curve.
        findings: every excess, then every curvature.
        explanations: one per anomaly, the largest first; empty if no step was profiled.
        terms: the terms by batch size; None if no step was profiled.
        kernel_times: exclusive times that the terms come from, as `kernel_times` returns them.
        fixed_cost: the fixed cost of a step at the smallest pair of batch sizes where it is significant and at least
            2 % of the step; None if there is no such pair, or if no step was profiled.
        outcomes: outcomes of the recording's experiments; empty if none were made.
        answers: the answer on every explanation, in their order, then on the fixed cost.
        axis: the axis of batch sizes, for words.
        notes: sentences on the choice of the steps.
    """

    curve: Curve
    findings: tuple[Finding, ...]
    explanations: tuple[Explanation, ...]
    terms: Terms | None
    kernel_times: pd.DataFrame
    fixed_cost: Explanation | None = None
    outcomes: tuple[Outcome, ...] = ()
    answers: tuple[Answer, ...] = ()
    axis: Axis = field(default_factory=Axis)
    notes: tuple[str, ...] = ()

    @property
    def anomalies(self) -> tuple[Finding, ...]:
        """The findings that are anomalies."""
        return tuple(f for f in self.findings if f.verdict == Verdict.ANOMALY)


def find(curve: Curve, axis: str = "log2") -> tuple[Finding, ...]:
    """Test every pair and every inner point of the curve; curvatures are shown on `axis`."""
    pairs, inner = neighbours(curve.conditions)
    shown = [excess(*pair) for pair in pairs] + [curvature(*points, axis) for points in inner]
    tested = [excess(*pair) for pair in pairs] + [bend(*points) for points in inner]
    values = [curve.evaluate(functional) for functional in tested]
    adjusted = holm([value.p for value in values])
    return tuple(
        Finding(show, curve.evaluate(show), test, value, p, _verdict(curve, show, test, value, p))
        for show, test, value, p in zip(shown, tested, values, adjusted, strict=True)
    )


def _verdict(curve: Curve, shown: Functional, tested: Functional, value: Estimate, p_adjusted: float) -> str:
    size_ms = curve.at(tested.last).time_ms.value
    if p_adjusted < LEVEL:
        if tested.kind == "excess" and value.value < 0:
            return Verdict.FIXED_COST
        return Verdict.ANOMALY if abs(value.value) >= MATERIAL * size_ms else Verdict.SMALL
    if tested.kind == "bend":
        visible = curve.evaluate(shown)
        if value.p >= LEVEL and (visible.low > 0 or visible.high < 0):
            return Verdict.FIXED_COST
    return Verdict.NOT_SIGNIFICANT if value.p < LEVEL else Verdict.NOISE


def judge(curve: Curve, finding: Finding, p_adjusted: float) -> Finding:
    """The finding with its verdict at another adjusted p, e.g. over a larger family."""
    verdict = _verdict(curve, finding.shown, finding.tested, finding.tested_value, p_adjusted)
    return replace(finding, p_adjusted=p_adjusted, verdict=verdict)


def explain(
    functional: Functional,
    curve: Curve,
    terms: Terms,
    kernel_times: pd.DataFrame,
    recorded: Recorded,
    examined: Examined | None = None,
) -> Explanation:
    """Split one functional into its terms, and those into causes.

    Args:
        functional: functional over batch sizes of the curve.
        curve: the cost curve.
        terms: terms of the same recording.
        kernel_times: result of `kernel_times`.
        recorded: tables that causes examine besides the kernels.
        examined: result of `examine` for these tables and at least the functional's batch sizes; default: made here.

    Raises:
        CurvescopeError: a batch size of the functional has no profiled step.
    """
    missing = set(functional.conditions) - set(terms.conditions)
    if missing:
        raise CurvescopeError(
            f"{functional.label} cannot be split: batch {', '.join(map(str, sorted(missing)))} has no profiled step."
        )
    behind = terms.behind(functional)
    if behind is not terms:
        kernel_times, steps = in_rounds(kernel_times, recorded.steps, behind.conditions, behind.shared, "batch")
        recorded, examined = replace(recorded, steps=steps), None
    examined = examined or examine(functional.conditions, kernel_times, recorded)
    kernels = main_kernels(kernel_times, (functional.at, functional.last))
    classes = recorded.layer_classes
    shares = [_with_names(share, kernels, classes) for share in terms.decompose(functional, curve)]
    shares.sort(key=lambda share: (_LAST.get(share.key.kind, 0), -abs(share.value.value)))
    value = curve.evaluate(functional)
    of_term = zip(shares, cases(functional, shares, examined), strict=True)
    weighed = tuple(weigh_causes(share.label, case) for share, case in of_term)
    causes = attribute(functional, value, weighed, recorded.outcomes, waits_for_time=recorded.waits_for_time)
    return Explanation(functional, value, tuple(shares), causes, weighed=weighed)


def with_outcomes(diagnosis: Diagnosis, outcomes: Sequence[Outcome], *, waits_for_time: bool = False) -> Diagnosis:
    """The diagnosis with the causes that these experiments leave; the rest does not depend on experiments.

    Args:
        diagnosis: an earlier diagnosis of the same steps.
        outcomes: outcomes of all experiments of the recording.
        waits_for_time: whether the time for experiments was up before all were made.
    """

    def again(one: Explanation) -> Explanation:
        found = attribute(one.functional, one.value, one.weighed, outcomes, waits_for_time=waits_for_time)
        return replace(one, attribution=found)

    fixed = diagnosis.fixed_cost
    return replace(
        diagnosis,
        explanations=tuple(map(again, diagnosis.explanations)),
        fixed_cost=None if fixed is None else again(fixed),
        outcomes=tuple(outcomes),
    )


def _with_names(
    share: Share, kernels: Mapping[tuple[str | None, str | None], list[str | None]], classes: Mapping[str, str]
) -> Share:
    """The share with its kernels and the class of its layer."""
    if share.key.kind != KERNELS:
        return share
    before, after = kernels.get((share.key.layer, share.key.phase), [None, None])
    return replace(share, kernel_before=before, kernel_after=after, layer_class=classes.get(share.key.layer or ""))


def diagnose(
    steps: pd.DataFrame,
    kernel_times: pd.DataFrame,
    axis: str = "log2",
    statistic: str = "median",
    recorded: Recorded | None = None,
) -> Diagnosis:
    """Find and explain the anomalies of a recording.

    Args:
        steps: its `steps` table.
        kernel_times: result of `kernel_times`; without profiled steps anomalies are found, not split.
        axis: axis of the displayed curvatures: log2, linear or throughput.
        statistic: statistic for T(b), see `statistics.STATISTICS`.
        recorded: tables that causes examine besides the kernels; default: the steps only.
    """
    recorded = recorded or Recorded(steps)
    terms = None if kernel_times.empty else estimate_terms(kernel_times, steps)
    # If every step was profiled, e.g. in imported profiles, the curve is theirs, and the overhead is unknown.
    profiled = terms is not None and steps["profiled"].astype(bool).all() and len(terms.conditions) > 1
    curve = terms.curve(steps) if terms is not None and profiled else cost_curve(steps, statistic)
    return diagnose_curve(curve, terms, kernel_times, recorded, axis)


def diagnose_curve(
    curve: Curve, terms: Terms | None, kernel_times: pd.DataFrame, recorded: Recorded, axis: str = "log2"
) -> Diagnosis:
    """Find and explain the anomalies of a curve with its terms.

    Args:
        curve: the cost curve.
        terms: its terms; None if no step was profiled: anomalies are found, not split.
        kernel_times: result of `kernel_times`.
        recorded: tables that causes examine besides the kernels.
        axis: axis of the displayed curvatures: log2, linear or throughput.
    """
    findings = find(curve, axis)
    if terms is None:
        return Diagnosis(curve, findings, (), None, kernel_times, axis=recorded.axis, notes=recorded.notes)
    anomalies = [f.tested for f in findings if f.verdict == Verdict.ANOMALY]
    split = [functional for functional in anomalies if set(functional.conditions) <= set(terms.conditions)]
    fixed = find_fixed_cost(curve, terms.conditions)
    batches = sorted({batch for one in (*split, *filter(None, [fixed])) for batch in one.conditions})
    examined = examine(batches, kernel_times, recorded) if batches else None
    explanations = [explain(one, curve, terms, kernel_times, recorded, examined) for one in split]
    explained = explain(fixed, curve, terms, kernel_times, recorded, examined) if fixed else None
    found = tuple(_fold(explanations))
    return Diagnosis(curve, findings, found, terms, kernel_times, explained, axis=recorded.axis, notes=recorded.notes)


def open_finding(diagnosis: Diagnosis) -> Finding | None:
    """What may be an anomaly, where none was found: of the findings whose intervals reach it, the smallest p.

    An interval reaches a large one from 5 % of the step on. With a fixed cost, a negative excess is a part of it.
    """
    undecided = (Verdict.NOISE, Verdict.NOT_SIGNIFICANT)
    large = []
    for one in diagnosis.findings:
        value = one.tested_value
        upwards = one.tested.kind == "excess" and diagnosis.fixed_cost is not None
        reach = value.high if upwards else max(value.high, -value.low)
        if one.verdict in undecided and reach >= LARGE * diagnosis.curve.at(one.tested.last).time_ms.value:
            large.append(one)
    return None if diagnosis.anomalies else min(large, key=lambda one: one.tested_value.p, default=None)


def find_fixed_cost(curve: Curve, profiled: Sequence[int]) -> Functional | None:
    """The fixed cost at the smallest pair of batch sizes where it is significant and at least 2 % of T(b).

    All adjacent pairs form one family (Holm).

    Args:
        curve: the cost curve.
        profiled: batch sizes with profiled steps; other pairs cannot be split.
    """
    found = [fixed_cost(*pair) for pair in neighbours(curve.conditions)[0]]
    values = [curve.evaluate(functional) for functional in found]
    for functional, value, p in zip(found, values, holm([value.p for value in values]), strict=True):
        material = value.value >= MATERIAL * curve.at(functional.at).time_ms.value
        if p < LEVEL and material and set(functional.conditions) <= set(profiled):
            return functional
    return None


def _fold(explanations: Sequence[Explanation]) -> list[Explanation]:
    """List bends under the excess that causes them: a jump from b to 2b is also a bend at b and one at 2b."""
    kept: list[Explanation] = []
    for explanation in sorted(explanations, key=lambda e: (e.functional.kind != "excess", -abs(e.value.value))):
        index = next((i for i, k in enumerate(kept) if _same_event(k, explanation)), None)
        if index is None:
            kept.append(explanation)
        else:
            kept[index] = replace(kept[index], also=(*kept[index].also, explanation.functional.label))
    return kept


def _same_event(jump: Explanation, other: Explanation) -> bool:
    return (
        jump.functional.kind == "excess"
        and other.functional.kind == "bend"
        and other.functional.at in (jump.functional.at, jump.functional.to)
        and jump.shares[0].label == other.shares[0].label
    )
