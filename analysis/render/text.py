"""A diagnosis as text for a terminal: the curve, the tests, and the terms of an anomaly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, smaller_terms, with_sign
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import STEP
from ..decompose.curve import MODELLED, Curve
from ..decompose.findings import UNDECIDED, Finding, FindingVerdict, hidden
from ..decompose.functionals import OUTLIER, Functional
from ..decompose.statistics import ALL_STEPS
from ..decompose.terms import KERNELS, OVERHEAD, SLOW_STEPS, Share, total_ms
from ..diagnosis.explanation import Explanation
from .names import CHANGE
from .tables import Indented, TextTable, table
from .words import SAMPLES, dim, interval, share

_MEANINGS = {
    OUTLIER: "Outlier at b: how far T(b) lies above the straight line between its neighbours; a "
    "larger size takes less time.",
    "bend": "Bend at b: how far the next larger T lies above the straight line through T(b) and "
    "the T before it.",
    "fixed cost": "Fixed cost of b → kb: (k·T(b) − T(kb)) / (k − 1), the time of a step that does "
    "not grow with b.",
}
_OVERHEAD = "Profiling overhead: the pace of unprofiled steps less what the terms add up to."
_SLOW = "Slow steps: time of all steps less their pace, the mean of the faster half."
_WORK = (
    "More work: the part that FLOPs and bytes ask for beyond proportion; the rest is the same work "
    "done more slowly."
)
_UNDECIDED = {
    FindingVerdict.NOT_SIGNIFICANT: "not significant after Holm correction",
    FindingVerdict.UNKNOWN: "unknown: no interval",
}


@dataclass(frozen=True)
class Quantity:
    """The measured quantity of a curve."""

    name: str
    symbol: str  # a function of the batch size
    unit: str
    rate_unit: str  # that samples are counted per
    units_per_rate: float  # number of units in one `rate_unit`


TIME = Quantity("time", "T", "ms", "s", 1e3)
ENERGY = Quantity("energy", "E", "J", "J", 1.0)
_SHOWN_TERMS = 8
_LEAST_OF_ANOMALY = 0.02  # of an anomaly; smaller terms are one line
_NOTED_CORRELATION = 0.1  # least correlation of rounds that a note mentions


def render_curve(
    curve: Curve,
    axis: Axis = SAMPLES,
    quantity: Quantity = TIME,
    *,
    has_rates: bool = True,
) -> RenderableType:
    """The curve, a line per batch size. Without `has_rates` it says nothing of one sample."""
    # Of a whole recording nobody knows how many samples it processed.
    has_rates = has_rates and curve.unit == STEP
    rates: tuple[str, ...] = ()
    if has_rates:
        rates = (f"{quantity.unit}/{axis.one}", f"{axis.unit}/{quantity.rate_unit}")
    # single times have no spread of their own, whatever error was stated for them
    has_spread = any(point.spread is not None for point in curve.points)
    counts = ("spread", "n") if has_spread else ("n",)
    heads = (axis.name, f"{curve.unit} {quantity.unit}", "95 % interval", *rates, *counts)
    rows = table(*heads, first="right")
    for point in curve.points:
        size, time = point.condition, point.time_ms.value
        if has_rates:
            rates = (number(time / size), number(size / time * quantity.units_per_rate))
        spread = Text("unknown", "dim")
        if point.spread is not None:
            spread = Text(f"{point.spread:.1%}")
        ends = interval(point.time_ms, 4)
        cells = (spread, str(point.n))[-len(counts) :]
        rows.add_row(str(size), number(time), ends, *rates, *cells)
    return Group(rows, *dim(_describe_times(curve)))


def _describe_times(curve: Curve) -> list[str]:
    """What the times and their intervals are."""
    if curve.statistic == MODELLED:
        return ["The intervals show the error of the model, not measurement noise."]
    if curve.errors_ms is not None:
        return [
            "Single measurements: the intervals come from a stated, published or estimated error."
        ]
    if curve.profiled:
        notes = [
            f"Mean of n {curve.unit}s. All are profiled, so the profiling overhead is unknown.",
            "Spread is their interquartile range over the mean.",
        ]
    else:
        what, over = f"{curve.statistic.capitalize()} of n steps", curve.statistic
        if curve.statistic == ALL_STEPS:
            what, over = "Mean of all n steps", "mean"
        spread = f"spread is their interquartile range over the {over}"
        notes = [f"{what} in {counted(curve.rounds, 'round')}; {spread}."]
    if curve.round_correlation >= _NOTED_CORRELATION:
        most = f"{curve.round_correlation:.2f}"
        notes.append(
            f"Successive rounds are correlated (up to {most}); the intervals are widened "
            "accordingly."
        )
    return notes


def spread_note(curve: Curve, findings: Sequence[Finding]) -> str | None:
    """Which anomalies the spread of the times may hide: deviations that would matter, inside their
    intervals.
    """
    listed = [(most, finding.tested.label) for most, finding in hidden(curve, findings)]
    if not listed:
        return None
    most, label = max(listed)
    rest = f", and {len(listed) - 1} more" if len(listed) > 1 else ""
    amount = f"{most:.0%} of the step" if most < 1 else "the step's time and more"
    may_hide = f"! The spread may hide {label}, up to {amount}{rest}"
    return f"{may_hide}; more rounds (--time-limit) tell."


def render_findings(
    findings: Sequence[Finding], axis: Axis = SAMPLES, quantity: Quantity = TIME
) -> RenderableType:
    """Every excess and every curvature with its verdict."""
    blocks: list[RenderableType] = []
    curvatures = [finding for finding in findings if finding.shown.kind == "curvature"]
    if any(finding.shown.kind == "excess" for finding in findings):
        blocks.append(_tests(findings, "excess", quantity.unit, quantity))
    if any(finding.shown.kind == OUTLIER for finding in findings):
        rows = _tests(findings, OUTLIER, quantity.unit, quantity)
        blocks += [Text(), rows, Text(_MEANINGS[OUTLIER], "dim")]
    if curvatures:
        first = curvatures[0].shown
        unit = unit_text(first.unit, axis, quantity)
        rows = _tests(findings, "curvature", unit, quantity)
        note = _describe_curvature(first, axis, quantity)
        blocks += [Text(), rows, Text(note, "dim")]
    verdicts = {finding.verdict for finding in findings}
    if not findings:
        blocks.append(Text(f"A single {axis.value} cannot be compared: measure at least two."))
    elif verdicts == {FindingVerdict.UNKNOWN}:
        unknown = "Without an interval no deviation is an anomaly, and none is noise."
        blocks.append(Text(unknown, "bold"))
    elif verdicts.issubset(UNDECIDED):
        blocks.append(Text("The whole step: no deviation is significant.", "bold"))
    elif FindingVerdict.ANOMALY not in verdicts:
        line = "The whole step: fixed plus proportional cost explains what is significant."
        blocks.append(Text(line, "bold"))
    return Group(*blocks)


def _tests(findings: Sequence[Finding], kind: str, unit: str, quantity: Quantity) -> TextTable:
    """The functionals of one kind."""
    first = "pair" if kind == "excess" else "at"
    rows = table(first, f"{kind} {unit}", "95 % interval", "verdict")
    for finding in findings:
        shown, value = finding.shown, finding.value
        if shown.kind == kind:
            place = f"{shown.at} → {shown.to}" if kind == "excess" else str(shown.at)
            verdict = _verdict(finding, quantity)
            rows.add_row(place, with_sign(value.value), interval(value), verdict)
    return rows


def _describe_curvature(curvature: Functional, axis: Axis, quantity: Quantity) -> str:
    """On which axis a curvature is, and what an excess is."""
    name, t = quantity.name, quantity.symbol
    scale = f"linear axis of step {name}"
    if unit_text(curvature.unit, axis, quantity) == f"{quantity.unit}/{axis.one}":
        scale = f"log2 axis of {name} per {axis.one}"
    if curvature.of_rate:
        scale = f"log2 axis of {axis.name}, of throughput"
    excess = f"excess of b → kb is {t}(kb) − k·{t}(b)"
    return f"Curvature on a {scale}; {excess}, where {t} is the {name} of a step."


def _verdict(finding: Finding, quantity: Quantity) -> Text:
    verdict, shape = finding.verdict, finding.shape
    if verdict == FindingVerdict.ANOMALY:
        text = f"{shape}: anomaly"
        if finding.tested != finding.shown:
            text += f" (bend {with_sign(finding.tested_value.value)} {quantity.unit})"
        return Text(text, "bold red")
    if verdict == FindingVerdict.FIXED_COST:
        return Text(f"{shape} (fixed cost amortised)")
    if verdict == FindingVerdict.SMALL:
        return Text(f"{shape}, too small to count", "dim")
    return Text(_UNDECIDED.get(verdict, verdict), "dim")


def _terms_title(explanation: Explanation) -> Text:
    value, functional = explanation.value, explanation.functional
    amount = f"{with_sign(value.value)} {functional.unit} ({interval(value)})"
    title = f"Terms of {functional.label}: {amount}"
    if explanation.cancels:
        title += "; its parts cancel, so their shares are not known"
    if explanation.also:
        title += f"; also seen as {', '.join(explanation.also)}"
    return Text(title, "bold")


def _terms_table(explanation: Explanation) -> TextTable:
    unit = explanation.functional.unit
    heads = ("term", unit, "share", "95 % interval", "more work", "kernel", "line")
    return table(*heads, left=heads[-2:])


def _more_work(term: Share, whole: float) -> str:
    """The part of a share that is more work per sample; empty if it is unknown,
    or small.
    """
    value = term.work.value if term.work else None
    return with_sign(value.value) if value and _is_large(value.value, whole) else ""


def _is_large(amount: float, whole: float) -> bool:
    return abs(amount) >= _LEAST_OF_ANOMALY * abs(whole)


def render_explanation(explanation: Explanation, everything: bool = False) -> RenderableType:
    """The terms of one functional, the largest first; smaller ones in one line so that
    they add up.
    """
    whole = explanation.value.value
    rows = _terms_table(explanation)
    kernels = [term for term in explanation.shares if term.key.kind == KERNELS]
    others = [term for term in explanation.shares if term.key.kind != KERNELS]
    large = [term for term in kernels[:_SHOWN_TERMS] if _is_large(term.value.value, whole)]
    listed = kernels if everything else large or kernels[:1]
    for term in listed:
        rows.add_row(*_share(term, whole))
    if rest := kernels[len(listed) :]:
        rows.add_row(*_sum(smaller_terms(len(rest)), rest, whole))
    for term in others:
        if everything or term.value.value or term.real:
            rows.add_row(*_share(term, whole))
    rows.add_section()
    rows.add_row(*_sum("total", explanation.shares, whole))
    return Group(_terms_title(explanation), Indented(rows))


def render_legend(explanations: Sequence[Explanation]) -> RenderableType:
    """What the marks and names in the printed explanations mean."""
    if not explanations:
        return Group()
    kinds = dict.fromkeys(explanation.functional.kind for explanation in explanations)
    lines = [_MEANINGS[kind] for kind in kinds if kind in _MEANINGS]
    kinds_of_terms, has_work = set(), False
    for explanation in explanations:
        for term in explanation.shares:
            kinds_of_terms.add(term.key.kind)
            has_work = has_work or bool(_more_work(term, explanation.value.value))
    if OVERHEAD in kinds_of_terms:
        lines.append(_OVERHEAD)
    if SLOW_STEPS in kinds_of_terms:
        lines.append(_SLOW)
    if has_work:
        lines.append(_WORK)
    lines += [
        "* significant (Holm correction over all terms of the anomaly).",
        "Not significant: terms that cannot be distinguished from 0. They are no cause.",
    ]
    return Group(*dim(lines))


def _share(term: Share, whole: float) -> list[Text]:
    value = term.value
    cells = [
        f"{term.label} *" if term.real else term.label,
        with_sign(value.value),
        share(value.value, whole),
        interval(value),
        _more_work(term, whole),
        _kernel_change(term),
        term.line or "",
    ]
    return [Text(cell, "" if term.real else "dim") for cell in cells]


def _sum(label: str, terms: Sequence[Share], whole: float) -> tuple[str, ...]:
    amount = total_ms(terms)
    return label, with_sign(amount), share(amount, whole), *[""] * 4


def unit_text(unit: str, axis: Axis, quantity: Quantity = TIME) -> str:
    """The unit of a functional, which is written for times and samples, in words of quantity and
    axis.
    """
    return unit.replace(TIME.unit, quantity.unit, 1).replace("/sample", f"/{axis.one}")


def _kernel_change(term: Share) -> str:
    before, after = term.kernel_before, term.kernel_after
    if before == after:
        return before or ""
    return f"{before or 'none'}{CHANGE}{after or 'none'}"
