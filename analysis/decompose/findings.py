"""Find the significant functionals of a cost curve, and the anomalies among them.

Tested are the excess over proportional cost of every adjacent pair of batch sizes, and the bend
away from fixed plus proportional cost of every inner one, as one family (Holm). Anomalies are a
positive excess and a bend in either direction of 2 % of the step time or more, or of 5 % where one
process made the rounds on a CPU; a negative excess is the amortised fixed cost of a step.

A size that a larger one overtakes is out of line by itself. It is tested against the line between
its neighbours, and no other size is judged by it.

A functional is tested on the pace, which few slow steps do not move. Where slow steps are part of T
it is tested on T as well, in the same family, and the surer of both answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...base.words import Word
from .curve import MODELLED, Curve
from .functionals import (
    BEND,
    EXCESS,
    OUTLIER,
    Condition,
    Functional,
    bend,
    curvature,
    excess,
    fixed_cost,
    neighbours,
)
from .overtaken import find_outliers, find_slow
from .statistics import LEVEL, Estimate, holm


class FindingVerdict(Word):
    """Verdicts on a functional."""

    ANOMALY = "anomaly"
    FIXED_COST = "fixed cost"  # significant, and as an amortised fixed cost gives it
    SMALL = "real but small"  # see `Curve.least`
    # its own interval excludes 0, but Holm's correction takes it back
    NOT_SIGNIFICANT = "not significant"
    NOISE = "noise"
    MODEL_ERROR = "within the model's error"  # in place of both, for a model has no noise
    # without an interval: one step of each size, so that whether it repeats is unknown
    UNKNOWN = "unknown"


_OPEN = (FindingVerdict.UNKNOWN, FindingVerdict.NOISE, FindingVerdict.NOT_SIGNIFICANT)
_LEAST_ROUNDS = 3  # of a size that a sweep found, to be tested
_HIDDEN = 0.1  # of a step: what a spread may hide is worth a warning from here on
LARGE = 0.05  # of a step: worth more rounds while it is not distinguished from 0
LEVEL_OF_A_LOOK = 0.01  # of the tests of a sweep that goes on
# a narrower interval may make it an anomaly
UNDECIDED = (
    FindingVerdict.NOISE,
    FindingVerdict.NOT_SIGNIFICANT,
    FindingVerdict.MODEL_ERROR,
)


# by kind of the displayed functional: the shape of a negative value, and of a positive one
_SHAPES = {EXCESS: ("sub-linear", "super-linear"), OUTLIER: ("overtaken", "overtaken")}


@dataclass(frozen=True)
class Finding:
    """One functional of the curve, tested."""

    # the displayed functional: outlier, excess, or curvature on the chosen axis
    shown: Functional
    value: Estimate  # its value and interval
    # the functional behind the verdict: for a curvature the bend, else the displayed one
    tested: Functional
    tested_value: Estimate  # its value and interval, in ms
    p_adjusted: float  # p of `tested`, adjusted over the family
    verdict: FindingVerdict  # verdict on it
    # super-linear or sub-linear; concave-up or concave-down; for an outlier overtaken
    shape: str = field(init=False)

    def __post_init__(self) -> None:
        shapes = _SHAPES.get(self.shown.kind, ("concave-down", "concave-up"))
        object.__setattr__(self, "shape", shapes[self.value.value > 0])


def _list_settled(curve: Curve) -> list[Condition]:
    """The conditions, without sizes that a sweep found too late, and visited in under three rounds.

    Between two other sizes such a one would take their rounds from the test of these.
    """
    most = max(point.rounds for point in curve.points)
    probed = {condition for place in curve.jumps for condition in place}
    late = {point.condition for point in curve.points if point.rounds < min(_LEAST_ROUNDS, most)}
    return [condition for condition in curve.conditions if condition not in late & probed]


def find(curve: Curve, axis: str = "log2", *, late: bool = False) -> tuple[Finding, ...]:
    """Test every pair and every inner point of the curve; curvatures are shown on `axis`.

    With `late` this includes sizes that a sweep found and visited in fewer than three rounds: a
    sweep that goes on visits them again.
    """
    sizes = curve.conditions if late else _list_settled(curve)
    alone = find_outliers(curve.paces, sizes)
    usual = set(sizes) - {functional.at for functional in alone}
    pairs, inner = neighbours([size for size in sizes if size in usual], curve.jumps)
    proportions = [excess(*pair) for pair in pairs]
    shown = [*alone, *proportions, *(curvature(*points, axis) for points in inner)]
    tested = [*alone, *proportions, *(bend(*points) for points in inner)]
    curves = [_list_curves(curve, functional) for functional in tested]
    tests = [
        tested_on.evaluate(functional)
        for functional, both in zip(tested, curves, strict=True)
        for tested_on in both
    ]
    adjusted = iter(zip(holm([value.p for value in tests]), tests, strict=True))
    findings = []
    for show, test, both in zip(shown, tested, curves, strict=True):
        answers = [(*next(adjusted), tested_on) for tested_on in both]
        least = min(answers, key=lambda answer: answer[0])
        p, value, surer = next((answer for answer in answers if answer[0] < LEVEL), least)
        verdict = _verdict(surer, show, test, value, p)
        findings.append(Finding(show, surer.evaluate(show), test, value, p, verdict))
    return tuple(findings)


def _list_curves(curve: Curve, functional: Functional) -> tuple[Curve, ...]:
    """The curves that a functional is tested on: the pace, and T where it has slow steps."""
    if curve.has_slow_steps(functional):
        return (curve, curve.paces)
    return (curve.paces,)


def list_undecided(curve: Curve, findings: Sequence[Finding], more: float) -> list[Finding]:
    """The findings of a look at a sweep that goes on: neither decided yet, nor beyond what the time
    allows.

    Decided are anomalies at a stricter level than at the end, as each look may err; and what
    is none of 5 % or more of the step by its interval. A negative excess is none of any size. The
    rounds at the time limit are `more` times those so far.
    """
    left = []
    for finding in findings:
        value, reach = finding.tested_value, _reach(finding)
        large = LARGE * curve.at(finding.tested.last).time_ms.value
        if finding.p_adjusted < LEVEL_OF_A_LOOK or reach < large:
            continue
        if more > 1 and (decidable(value, more) or reach / math.sqrt(more) < large):
            left.append(finding)
    return left


def _reach(finding: Finding) -> float:
    """The largest deviation inside the interval, ms: upwards, of a bend also downwards."""
    value = finding.tested_value
    if finding.tested.kind == BEND:
        return max(value.high, -value.low)
    return value.high


def hidden(curve: Curve, findings: Iterable[Finding]) -> list[tuple[float, Finding]]:
    """The deviations that the spread of the times may hide, with their size as a share of the
    step: those inside whose interval one of 10 % or more lies.
    """
    listed = []
    for finding in findings:
        most = _reach(finding) / curve.at(finding.tested.last).time_ms.value
        if finding.verdict in UNDECIDED and most >= _HIDDEN:
            listed.append((most, finding))
    return listed


def decidable(value: Estimate, more: float) -> bool:
    """Whether `more` times the rounds may tell a value from 0, if it lies a quarter of its interval
    farther away.
    """
    if not math.isfinite(value.high):
        return more > 1
    half = value.high - value.value
    return (abs(value.value) + half / 2) * math.sqrt(more) > half


def find_jumps(curve: Curve, findings: Sequence[Finding]) -> list[tuple[Condition, Condition]]:
    """The jumps that a sweep looked for, and that are anomalies: where the time rises, and bends
    upwards.

    A bend downwards behind a jump, e.g. at 33 of 32, 33 and 34, is none of the step from 33 to 34.
    """
    tested = [
        finding.tested
        for finding in findings
        if finding.verdict == FindingVerdict.ANOMALY and finding.tested_value.value > 0
    ]
    return [
        (before, after)
        for before, after in curve.jumps
        if any(_is_of_jump(test, before, after) for test in tested)
        and curve.at(after).time_ms.value > curve.at(before).time_ms.value
    ]


def _is_of_jump(test: Functional, before: Condition, after: Condition) -> bool:
    """Whether a functional tests the jump between two sizes: it begins there, or is of the outlier
    behind it.
    """
    if test.kind == OUTLIER:
        return bool(test.at == after)
    return bool(test.at == before and after in test.conditions)


def find_falls(curve: Curve) -> list[tuple[Condition, Condition]]:
    """The places that a sweep looked for where the larger size takes materially less time."""
    falls = []
    for before, after in curve.jumps:
        rise = Functional("rise", before, after, ((before, -1.0), (after, 1.0)))
        difference = curve.paces.evaluate(rise)
        material = difference.value <= -curve.least * curve.at(before).time_ms.value
        if material and difference.p < LEVEL / len(curve.jumps):
            falls.append((before, after))
    return falls


def list_open_jumps(curve: Curve, findings: Sequence[Finding]) -> list[tuple[Condition, Condition]]:
    """The places that a sweep looked for where its rounds are too few to tell: a deviation from the
    straight line that counts is neither shown nor ruled out.
    """
    decided = {*find_jumps(curve, findings), *find_falls(curve)}
    left = []
    for before, after in curve.jumps:
        tests = [finding for finding in findings if _is_of_jump(finding.tested, before, after)]
        if (before, after) in decided:
            continue
        if not tests or any(_may_be_jump(curve, finding) for finding in tests):
            left.append((before, after))
    return left


def _may_be_jump(curve: Curve, finding: Finding) -> bool:
    """Whether a deviation is open, and its interval reaches what counts, upwards."""
    size_ms = curve.at(finding.tested.last).time_ms.value
    return finding.verdict in _OPEN and finding.tested_value.high >= curve.least * size_ms


def _verdict(
    curve: Curve, shown: Functional, tested: Functional, value: Estimate, p_adjusted: float
) -> FindingVerdict:
    size_ms = curve.at(tested.last).time_ms.value
    if not math.isfinite(value.low):
        return FindingVerdict.UNKNOWN
    if p_adjusted < LEVEL:
        if tested.kind == EXCESS and value.value < 0:
            return FindingVerdict.FIXED_COST
        if abs(value.value) >= curve.least * size_ms:
            return FindingVerdict.ANOMALY
        return FindingVerdict.SMALL
    if tested.kind == BEND:
        visible = curve.evaluate(shown)
        if value.p >= LEVEL and (visible.low > 0 or visible.high < 0):
            return FindingVerdict.FIXED_COST
    if curve.statistic == MODELLED:
        return FindingVerdict.MODEL_ERROR
    return FindingVerdict.NOT_SIGNIFICANT if value.p < LEVEL else FindingVerdict.NOISE


def find_fixed_cost(curve: Curve, profiled: Sequence[int]) -> Functional | None:
    """The fixed cost at the smallest pair of batch sizes where it is significant and counts.

    All adjacent pairs form one family (Holm). Pairs without profiled steps cannot be split; an
    overtaken size is in none. No cost of every step is more than the shortest step takes.
    """
    shortest_ms = min(point.time_ms.high for point in curve.points)
    slow = find_slow(curve.paces)
    usual = [size for size in _list_settled(curve) if size not in slow]
    fixed_costs = [fixed_cost(*pair) for pair in neighbours(usual)[0] if pair not in curve.jumps]
    values = [curve.judging(functional).evaluate(functional) for functional in fixed_costs]
    for functional, value, p in zip(
        fixed_costs, values, holm([value.p for value in values]), strict=True
    ):
        material = value.value >= curve.least * curve.at(functional.at).time_ms.value
        material = material and value.low <= shortest_ms
        if p < LEVEL and material and set(functional.conditions) <= set(profiled):
            return functional
    return None
