"""The curves of a table as text for a terminal: every anomaly, then the numbers of
other verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number
from ..decompose.curve import Point
from ..decompose.findings import Finding, FindingVerdict
from ..time_tables import Pooled, TestedCurve, pool
from .tables import table
from .text import render_curve, render_findings
from .words import note_hidden

_SHOWN = 25


@dataclass(frozen=True)
class TimedSeries:
    """One curve of a table of times."""

    problem: str | None  # name of the problem
    device_name: str | None  # name of the device; empty if the table names none
    curve: Sequence[Point]  # its points
    findings: Sequence[Finding]  # every excess, then every curvature


@dataclass(frozen=True)
class TimesDocument:
    """The curves of a table of times: `explain` of an `import --table`."""

    recording: str  # folder or URL of the recording
    noise: float  # standard error of times without repeats, as a share
    noise_origin: str  # stated, estimated from the table, or assumed
    series: Sequence[TimedSeries]  # the curves
    pooled: Sequence[Pooled]  # means of bends over the curves of a problem


def noise_sentence(noise: float, origin: str) -> str:
    """The error, a share of a time, that verdicts on single measurements use; for the origin see
    `choose_noise`.
    """
    source = {
        "stated": "as stated (--noise)",
        "estimated": "estimated from how smooth the curves of this table are; --noise states "
        "another",
        "assumed": "assumed, for the table is too short to show its own; --noise states another",
    }[origin]
    percent = f"{noise * 100:.2g}" if noise < 1 else f"{noise:.0%}".rstrip("%")
    return (
        f"A single measurement has a standard error of {percent} %, {source}. A published "
        "spread or repeated measurements replace it."
    )


def render_series(listed: Sequence[TestedCurve], everything: bool = False) -> RenderableType:
    """Every anomaly of every curve, the relatively largest first; a single curve in full."""
    if len(listed) == 1:
        (only,) = listed
        title = Text(", ".join(filter(None, (only.problem, only.device_name))), "bold")
        return Group(title, render_curve(only.curve), Text(), render_findings(only.findings))
    rows = table("problem", "device", "at", "ms", "relative", "p", words=("device",), whole=("at",))
    anomalies = [(s, f) for s in listed for f in s.findings if f.verdict == FindingVerdict.ANOMALY]
    anomalies.sort(key=lambda pair: -abs(relative_size(*pair)))
    for series, finding in anomalies[: None if everything else _SHOWN]:
        rows.add_row(
            Text(series.problem or ""),
            Text(series.device_name or ""),
            finding.tested.label,
            number(finding.tested_value.value, 3),
            f"{relative_size(series, finding):+.0%}",
            f"{finding.p_adjusted:.1g}",
        )
    counts = Counter(f.verdict for s in listed for f in s.findings)
    pooled = [of_size for of_size in pool(listed) if of_size.verdict == FindingVerdict.ANOMALY]
    summary = (
        "; ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        or "no neighbouring batch sizes"
    )
    tests = counted(counts.total(), "test")
    notes = [f"{counted(len(listed), 'curve')}, {tests} with one Holm correction: {summary}."]
    if not everything:
        notes += [
            note.plain
            for note in note_hidden(len(anomalies) - _SHOWN, "smaller anomaly", "smaller anomalies")
        ]
    notes.append(
        "Relative to the time that proportional cost (excess) or a straight line (bend) would give."
    )
    headline = (
        "No anomaly." if counts else "No curve has two sizes to compare: measure more of them."
    )
    blocks: list[RenderableType] = [rows if anomalies else Text(headline, "bold")]
    if pooled:
        blocks += [Text(), _render_pooled(pooled)]
    return Group(*blocks, *(Text(note, "dim") for note in notes))


def _render_pooled(pooled: Sequence[Pooled]) -> RenderableType:
    rows = table("problem", "at", "curves", "mean", "95 % interval", "p", left=("at",))
    for of_size in pooled[:_SHOWN]:
        interval = f"{of_size.low:+.0%} to {of_size.high:+.0%}"
        rows.add_row(
            Text(of_size.name),
            of_size.label,
            str(of_size.curves),
            f"{of_size.mean:+.0%}",
            interval,
            f"{of_size.p_adjusted:.1g}",
        )
    return Group(
        Text("Bends that all curves of a problem share, as a share of the larger time", "bold"),
        rows,
    )


def relative_size(series: TestedCurve, finding: Finding) -> float:
    """The tested functional over the time that would make it 0 at its largest batch size."""
    last = max(batch for batch, _ in finding.tested.coefficients)
    time_ms = next(p.time_ms.value for p in series.curve.points if p.condition == last)
    value = finding.tested_value.value
    return value / (time_ms - value) if time_ms != value else float("inf")
