"""Diagnoses and explanations as HTML for a notebook: tables and bars, no script, every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...profiling.escaping import escape_controls
from ..decompose.anomalies import Diagnosis, Explanation
from ..decompose.terms import total_ms
from .causes import verdict_sentence
from .numbers import number, signed
from .text import interval, share, shortened

_MOST_ROWS = 12
_CELL = "padding:.15em .7em;text-align:"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """The curve and every anomaly."""
    points = diagnosis.curve.points
    rows = [
        [
            str(p.condition),
            number(p.time_ms.value),
            interval(p.time_ms, 4),
            number(p.time_ms.value / p.condition),
            str(p.n),
        ]
        for p in points
    ]
    blocks = [_table(["batch", "step ms", "95 % interval", "ms/sample", "n"], rows)]
    if not diagnosis.anomalies:
        blocks.append("<p>No anomaly.</p>")
    blocks += [explanation_html(explanation) for explanation in diagnosis.explanations]
    return "".join(blocks)


def explanation_html(explanation: Explanation) -> str:
    """The terms of one anomaly, with bars, and its causes."""
    value, unit = explanation.value, explanation.functional.unit
    title = f"{explanation.functional.label}: {signed(value.value)} {unit} ({interval(value)})"
    shares = sorted(explanation.shares, key=lambda p: -abs(p.value.value))
    listed, rest = shares[:_MOST_ROWS], shares[_MOST_ROWS:]
    largest = max((abs(p.value.value) for p in shares), default=0.0)
    rows = []
    for one in listed:
        amount = one.value.value
        kernel = shortened(one.kernel_after or "")
        label = one.label + (" *" if one.real else "")
        rows.append([label, signed(amount), share(amount, value.value), _bar(amount, largest), kernel])
    if rest:
        amount = total_ms(rest)
        rows.append(
            [f"{len(rest)} smaller terms", signed(amount), share(amount, value.value), _bar(amount, largest), ""]
        )
    causes = [
        [cause.cause, signed(cause.amount), share(cause.amount, value.value), _bar(cause.amount, largest)]
        for cause in explanation.attribution.causes
    ]
    return (
        f"<p><b>{escape(title)}</b><br>{escape(escape_controls(verdict_sentence(explanation.attribution)))}</p>"
        + _table(["term", unit, "share", "", "kernel"], rows)
        + _table(["cause", unit, "share", ""], causes)
        + "<p><small>* significant. Terms add up to the anomaly, and so do causes.</small></p>"
    )


class _Bar(str):
    """HTML from this module, which needs no escaping."""

    __slots__ = ()


def _bar(amount: float, largest: float) -> _Bar:
    width = 8 * abs(amount) / largest if largest else 0.0
    colour = "#c0392b" if amount > 0 else "#2f855a"
    return _Bar(f'<div style="width:{width:.2f}em;height:.8em;background:{colour}"></div>')


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cell(tag: str, text: str, index: int) -> str:
        content = text if isinstance(text, _Bar) else escape(escape_controls(text))
        side = "left" if index == 0 or (index > 2 and not text[:1].isdigit()) else "right"
        return f'<{tag} style="{_CELL}{side}">{content}</{tag}>'

    lines = ["".join(cell("th", text, index) for index, text in enumerate(head))]
    lines += ["".join(cell("td", text, index) for index, text in enumerate(row)) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


# After this module is loaded, notebooks show diagnoses and explanations as HTML.
Diagnosis.html = diagnosis_html
Explanation.html = explanation_html
