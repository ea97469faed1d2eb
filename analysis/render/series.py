"""The curves of a table as text for a terminal: every anomaly, then the numbers of other verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ..decompose.anomalies import Finding, Verdict
from ..time_tables import TestedCurve
from .numbers import number
from .tables import table
from .text import render_curve, render_findings

_SHOWN = 25


def noise_sentence(noise: float) -> str:
    """The error that verdicts on single measurements assume."""
    return (
        f"A single measurement has an assumed standard error of {noise * 100:g} % (--noise). A published spread or "
        "repeated measurements replace it."
    )


def render_series(listed: Sequence[TestedCurve], everything: bool = False) -> RenderableType:
    """Every anomaly of every curve, the relatively largest first; a single curve in full."""
    if len(listed) == 1:
        (only,) = listed
        title = Text(", ".join(filter(None, (only.problem, only.device_name))), "bold")
        findings = render_findings(only.findings)
        return Group(title, render_curve(only.curve), Text(), findings)
    rows = table("problem", "device", "at", "ms", "relative", "p", words=("device",), whole=("at",))
    found = [(s, f) for s in listed for f in s.findings if f.verdict == Verdict.ANOMALY]
    found.sort(key=lambda pair: -abs(relative_size(*pair)))
    for series, finding in found[: None if everything else _SHOWN]:
        rows.add_row(
            Text(series.problem or ""),
            Text(series.device_name or ""),
            finding.tested.label,
            number(finding.tested_value.value, 3),
            f"{relative_size(series, finding):+.0%}",
            f"{finding.p_adjusted:.1g}",
        )
    counts = Counter(f.verdict for s in listed for f in s.findings)
    summary = (
        "; ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) or "no neighbouring batch sizes"
    )
    tests = sum(counts.values())
    notes = [f"{len(listed)} curves, {tests} tests with one Holm correction: {summary}."]
    if len(found) > _SHOWN and not everything:
        notes.append(f"{len(found) - _SHOWN} smaller anomalies are not shown; --all shows them.")
    notes.append("Relative to the time that proportional cost (excess) or a straight line (bend) would give.")
    blocks = [rows] if found else [Text("No anomaly.", "bold")]
    return Group(*blocks, *(Text(note, "dim") for note in notes))


def relative_size(series: TestedCurve, finding: Finding) -> float:
    """The tested functional over the time that would make it 0 at its largest batch size."""
    last = max(batch for batch, _ in finding.tested.coefficients)
    time_ms = next(p.time_ms.value for p in series.curve.points if p.condition == last)
    value = finding.tested_value.value
    return value / (time_ms - value) if time_ms != value else float("inf")
