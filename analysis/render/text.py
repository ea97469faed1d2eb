"""A diagnosis as text for a terminal: the curve, the tests, and the terms of an anomaly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, signed, smaller_terms
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import STEP
from ..decompose.curve import MODELLED, Curve
from ..decompose.findings import UNDECIDED, Finding, FindingVerdict, hidden
from ..decompose.functionals import OUTLIER
from ..decompose.statistics import ALL_STEPS
from ..decompose.terms import KERNELS, OVERHEAD, SLOW_STEPS, Share, total_ms
from ..diagnosis.explanation import Explanation
from .names import CHANGE
from .tables import Indented, TextTable, table
from .words import SAMPLES, interval, share

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


@dataclass(frozen=True)
class Quantity:
    """What a curve is of."""

    name: str
    symbol: str  # a function of the batch size
    unit: str
    rate_unit: str  # that samples are counted per
    units_per_rate: float  # number of units in one `rate_unit`


TIME = Quantity("time", "T", "ms", "s", 1e3)
ENERGY = Quantity("energy", "E", "J", "J", 1.0)
_SHOWN_TERMS = 8
_LEAST_SHARE = 0.02  # of an anomaly; smaller terms are one line
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
    rates = (
        (f"{quantity.unit}/{axis.one}", f"{axis.unit}/{quantity.rate_unit}")
        if curve.unit == STEP and has_rates
        else ()
    )
    rows = table(
        axis.name,
        f"{curve.unit} {quantity.unit}",
        "95 % interval",
        *rates,
        "spread",
        "n",
        first="right",
    )
    for point in curve.points:
        time = point.time_ms.value
        spread = Text("unknown", "dim") if point.spread is None else Text(f"{point.spread:.1%}")
        rows.add_row(
            str(point.condition),
            number(time),
            interval(point.time_ms, 4),
            *(
                number(time / point.condition),
                number(point.condition / time * quantity.units_per_rate),
            )[: len(rates)],
            spread,
            str(point.n),
        )
    is_mean = curve.statistic == ALL_STEPS
    what = "Mean of all n steps" if is_mean else f"{curve.statistic.capitalize()} of n steps"
    over = "mean" if is_mean else curve.statistic
    rounds = counted(curve.rounds, "round")
    spread_is = f"spread is their interquartile range over the {over}"
    notes = [f"{what} in {rounds}; {spread_is}."]
    if curve.profiled:
        notes = [
            f"Mean of n {curve.unit}s. All are profiled, so the profiling overhead is unknown.",
            "Spread is their interquartile range over the mean.",
        ]
    if curve.round_correlation >= _NOTED_CORRELATION:
        most = f"{curve.round_correlation:.2f}"
        notes.append(
            f"Successive rounds are correlated (up to {most}); the intervals are widened "
            "accordingly."
        )
    if curve.errors_ms is not None:
        notes = [
            "Single measurements: the intervals come from a stated, published or estimated error."
        ]
    if curve.statistic == MODELLED:
        notes = ["The intervals show the error of the model, not measurement noise."]
    return Group(rows, *(Text(note, "dim") for note in notes))


def spread_note(curve: Curve, findings: Sequence[Finding]) -> str | None:
    """Which anomalies the spread of the times may hide: deviations that would matter, inside their
    intervals.
    """
    listed = [(most, finding.tested.label) for most, finding in hidden(curve, findings)]
    if not listed:
        return None
    most, label = max(listed)
    rest = f", and {len(listed) - 1} more" if len(listed) > 1 else ""
    share_of_step = f"{most:.0%} of the step" if most < 1 else "the step's time and more"
    return (
        f"! The spread may hide {label}, up to {share_of_step}{rest}; more rounds (--time-limit) "
        "tell."
    )


def render_findings(
    findings: Sequence[Finding], axis: Axis = SAMPLES, quantity: Quantity = TIME
) -> RenderableType:
    """Every excess and every curvature with its verdict."""
    blocks: list[RenderableType] = []
    curvatures = [f for f in findings if f.shown.kind == "curvature"]
    unit = unit_text(curvatures[0].shown.unit, axis, quantity) if curvatures else ""

    def of_kind(kind: str, first: str, unit: str) -> TextTable:
        rows = table(first, f"{kind} {unit}", "95 % interval", "verdict")
        for finding in findings:
            if finding.shown.kind == kind:
                place = str(finding.shown.at) + (
                    f" → {finding.shown.to}" if kind == "excess" else ""
                )
                value = finding.value
                rows.add_row(
                    place, signed(value.value), interval(value), _verdict(finding, quantity)
                )
        return rows

    if any(f.shown.kind == "excess" for f in findings):
        blocks.append(of_kind("excess", "pair", quantity.unit))
    if any(f.shown.kind == OUTLIER for f in findings):
        rows = of_kind(OUTLIER, "at", quantity.unit)
        blocks += [Text(), rows, Text(_MEANINGS[OUTLIER], "dim")]
    if curvatures:
        name, t = quantity.name, quantity.symbol
        is_log2 = unit == f"{quantity.unit}/{axis.one}"
        scale = f"log2 axis of {name} per {axis.one}" if is_log2 else f"linear axis of step {name}"
        if curvatures[0].shown.of_rate:
            scale = f"log2 axis of {axis.name}, of throughput"
        note = (
            f"Curvature on a {scale}; excess of b → kb is {t}(kb) − k·{t}(b), where {t} is the "
            f"{name} of a step."
        )
        blocks += [Text(), of_kind("curvature", "at", unit), Text(note, "dim")]
    if not findings:
        blocks.append(Text(f"A single {axis.value} cannot be compared: measure at least two."))
    elif all(f.verdict == FindingVerdict.UNKNOWN for f in findings):
        blocks.append(
            Text("Without an interval no deviation is an anomaly, and none is noise.", "bold")
        )
    elif all(f.verdict in UNDECIDED for f in findings):
        blocks.append(Text("The whole step: no deviation is significant.", "bold"))
    elif not any(f.verdict == FindingVerdict.ANOMALY for f in findings):
        blocks.append(
            Text(
                "The whole step: fixed plus proportional cost explains what is significant.",
                "bold",
            )
        )
    return Group(*blocks)


def _verdict(finding: Finding, quantity: Quantity) -> Text:
    if finding.verdict == FindingVerdict.ANOMALY:
        text = f"{finding.shape}: anomaly"
        if finding.tested != finding.shown:
            text += f" (bend {signed(finding.tested_value.value)} {quantity.unit})"
        return Text(text, "bold red")
    if finding.verdict == FindingVerdict.FIXED_COST:
        return Text(f"{finding.shape} (fixed cost amortised)")
    text = {
        FindingVerdict.SMALL: f"{finding.shape}, too small to count",
        FindingVerdict.NOT_SIGNIFICANT: "not significant after Holm correction",
        FindingVerdict.UNKNOWN: "unknown: no interval",
    }.get(finding.verdict, finding.verdict)
    return Text(text, "dim")


def _terms_title(explanation: Explanation) -> Text:
    value, functional = explanation.value, explanation.functional
    title = (
        f"Terms of {functional.label}: {signed(value.value)} {functional.unit} ({interval(value)})"
    )
    title += "; its parts cancel, so their shares are not known" if explanation.cancels else ""
    return Text(
        title + (f"; also seen as {', '.join(explanation.also)}" if explanation.also else ""),
        "bold",
    )


def _terms_table(explanation: Explanation) -> TextTable:
    heads = (
        "term",
        explanation.functional.unit,
        "share",
        "95 % interval",
        "more work",
        "kernel",
        "line",
    )
    return table(*heads, left=heads[-2:])


def _more_work(term: Share, whole: float) -> str:
    """The part of a share that is more work than in proportion; empty if it is unknown,
    or small.
    """
    value = term.work.value if term.work else None
    return signed(value.value) if value and abs(value.value) >= _LEAST_SHARE * abs(whole) else ""


def render_explanation(explanation: Explanation, everything: bool = False) -> RenderableType:
    """The terms of one functional, the largest first; smaller ones in one line so that
    they add up.
    """
    value = explanation.value
    rows = _terms_table(explanation)
    kernels = [p for p in explanation.shares if p.key.kind == KERNELS]
    others = [p for p in explanation.shares if p.key.kind != KERNELS]
    large = [
        p for p in kernels[:_SHOWN_TERMS] if abs(p.value.value) >= _LEAST_SHARE * abs(value.value)
    ]
    listed = kernels if everything else large or kernels[:1]
    for outcome in listed:
        rows.add_row(*_share(outcome, value.value))
    if rest := kernels[len(listed) :]:
        rows.add_row(*_sum(smaller_terms(len(rest)), rest, value.value))
    for outcome in others:
        if everything or outcome.value.value or outcome.real:
            rows.add_row(*_share(outcome, value.value))
    rows.add_section()
    rows.add_row(*_sum("total", explanation.shares, value.value))
    return Group(_terms_title(explanation), Indented(rows))


def render_legend(explanations: Sequence[Explanation]) -> RenderableType:
    """What the marks and names in the printed explanations mean."""
    kinds = dict.fromkeys(explanation.functional.kind for explanation in explanations)
    lines = [_MEANINGS[kind] for kind in kinds if kind in _MEANINGS]
    if explanations:
        shares = [
            (term, explanation.value.value)
            for explanation in explanations
            for term in explanation.shares
        ]
        kinds_of_terms = {term.key.kind for term, _ in shares}
        lines += [_OVERHEAD] if OVERHEAD in kinds_of_terms else []
        lines += [_SLOW] if SLOW_STEPS in kinds_of_terms else []
        lines += [_WORK] if any(_more_work(*shown) for shown in shares) else []
        lines += [
            "* significant (Holm correction over all terms of the anomaly).",
            "Not significant: terms that cannot be distinguished from 0. They are no cause.",
        ]
    return Group(*(Text(line, "dim") for line in lines))


def _share(term: Share, whole: float) -> list[Text]:
    value = term.value
    cells = [
        term.label + (" *" if term.real else ""),
        signed(value.value),
        share(value.value, whole),
        interval(value),
    ]
    cells += [_more_work(term, whole), _kernel_change(term), term.line or ""]
    return [Text(cell, "" if term.real else "dim") for cell in cells]


def _sum(label: str, terms: Sequence[Share], whole: float) -> tuple[str, ...]:
    amount = total_ms(terms)
    return label, signed(amount), share(amount, whole), *[""] * 4


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
