"""Diagnoses and explanations as HTML for a notebook (picture, tables and bars, no script, every
name escaped) and as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.numbers import number, smaller_terms, with_sign
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import STEP
from ..decompose.curve import UNKNOWN
from ..decompose.terms import total_ms
from ..diagnosis.explanation import Explanation, TermEvidence
from ..diagnosis.result import Diagnosis
from . import answer_words
from .answers import (
    factor_cells,
    factor_text,
    remedy_text,
    reproduction_sentence,
    shape_sentence,
    time_heading,
)
from .causes import verdict_of, verdict_sentence
from .page import Page
from .remedies import remedy_cells, remedy_table
from .shown import Shown
from .summary import summarize
from .svg import curve_svg
from .words import html_text, interval, share, shorten

_MOST_ROWS = 12
_WIDTH = 80  # of the page
_CELL = "padding:.15em .7em;text-align:"


def notebook_html(shown: Shown) -> str:
    """The page of a terminal, the answers, the curve, and every anomaly with its experiments."""
    return "".join(draw(shown) or "" for draw in _BLOCKS)


def _page(shown: Shown) -> str:
    return f"<pre>{html_text(notebook_text(shown))}</pre>"


def _picture(shown: Shown) -> str | None:
    """The curve as a picture; a single size has none."""
    conditions = shown.diagnosis.curve.conditions
    if len(conditions) < 2 or UNKNOWN in conditions:
        return None
    return curve_svg(summarize(shown.diagnosis))


def _answers(shown: Shown) -> str | None:
    answers = "".join(map(_answer, shown.diagnosis.answers))
    return f"<ol>{answers}</ol>" if answers else None


def _remedies(shown: Shown) -> str | None:
    """The remedies, their savings and settings, and the other changes that ran."""
    if not shown.diagnosis.remedies.attempts:
        return None
    remedies = remedy_table(shown.diagnosis.remedies, shown.axis)
    head, rows = remedy_cells(remedies, shown.axis)
    html = _table(head, rows) if rows else ""
    if remedies.sentence:
        html += _paragraph(remedies.sentence)
    return html


def _curve(shown: Shown) -> str:
    axis, curve = shown.axis, shown.diagnosis.curve
    heads = [axis.name, f"{curve.unit} ms", "95 % interval"]
    has_samples = curve.unit == STEP
    if has_samples:
        heads.append(f"ms/{axis.one}")
    rows = []
    for point in curve.points:
        size, time = point.condition, point.time_ms.value
        row = [str(size), number(time), interval(point.time_ms, 4)]
        if has_samples:
            row.append(number(time / size))
        rows.append([*row, str(point.n)])
    return _table([*heads, "n"], rows)


def _explanations(shown: Shown) -> str:
    blocks = []
    for explanation in shown.diagnosis.all_explanations:
        blocks.append(explanation_html(explanation))
        unit = explanation.functional.unit
        for term in explanation.evidence or ():
            blocks.append(_evidence(term, unit, shown.axis))
    return "".join(blocks)


_BLOCKS = (_page, _answers, _remedies, _picture, _curve, _explanations)


def notebook_text(shown: Shown) -> str:
    """The page of a terminal."""
    return Page(summarize(shown.diagnosis)).text(_WIDTH)


def explanation_text(explanation: Explanation) -> str:
    """The finding and the remedy, in one to three sentences."""
    if explanation.evidence is None:
        return verdict_sentence(explanation)
    return answer_words.sentence(explanation)


def _answer(answer: Explanation) -> str:
    said = html_text(answer_words.sentence(answer))
    how = remedy_text(answer.remedy)
    if how:
        said += f"<br><small>{html_text(how)}</small>"
    return f"<li>{said}</li>"


def _evidence(evidence: TermEvidence, unit: str, axis: Axis) -> str:
    """The experiments on one term: its behaviour alone, and a row per change."""
    sentence = _paragraph(reproduction_sentence(evidence, unit))
    if evidence.shape is not None:
        sentence += _paragraph(shape_sentence(evidence.shape))
    rows = []
    for factor in evidence.factors:
        cells = factor_cells(factor)
        rows.append([factor_text(factor), *cells, factor.verdict, factor.reason or ""])
    if not rows:
        return sentence
    time = time_heading(evidence.factors[0], axis)
    return sentence + _table(["with this change", "removes", time, "verdict", "reason"], rows)


def explanation_html(explanation: Explanation) -> str:
    """The terms of one functional, with bars, and its causes."""
    value, unit = explanation.value, explanation.functional.unit
    amount = f"{with_sign(value.value)} {unit} ({interval(value)})"
    title = f"{explanation.functional.label}: {amount}"
    sentence = html_text(verdict_sentence(explanation))
    shares = sorted(explanation.shares, key=lambda term: -abs(term.value.value))
    largest = abs(shares[0].value.value) if shares else 0.0

    def row(label: str, amount: float, last: str) -> list[str]:
        part = share(amount, value.value)
        return [label, with_sign(amount), part, _bar(amount, largest), last]

    terms = []
    for term in shares[:_MOST_ROWS]:
        label = f"{term.label} *" if term.real else term.label
        kernel = shorten(term.kernel_after or "")
        terms.append(row(label, term.value.value, kernel))
    rest = shares[_MOST_ROWS:]
    if rest:
        more = smaller_terms(len(rest))
        terms.append(row(more, total_ms(rest), ""))
    causes = [row(cause.cause, cause.amount, verdict_of(cause)) for cause in explanation.causes]
    note = (
        "* significant. Terms add up to the anomaly, and so do causes. What is not significant is "
        "no cause."
    )
    html = f"<p><b>{html_text(title)}</b><br>{sentence}</p>"
    html += _table(["term", unit, "share", "", "kernel"], terms)
    html += _table(["cause", unit, "share", "", "verdict"], causes)
    return html + f"<p><small>{note}</small></p>"


def _paragraph(text: str) -> str:
    return f"<p>{html_text(text)}</p>"


class _Bar(str):
    """HTML from this module, which needs no escaping."""

    __slots__ = ()


def _bar(amount: float, largest: float) -> _Bar:
    width = 0.0
    if largest:
        width = 8 * abs(amount) / largest
    colour = "#c0392b" if amount > 0 else "#2f855a"
    return _Bar(f'<div style="width:{width:.2f}em;height:.8em;background:{colour}"></div>')


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = _line("th", head)
    for row in rows:
        lines += _line("td", row)
    return f"<table>{lines}</table>"


def _line(tag: str, cells: Sequence[str]) -> str:
    """A row of a table: names and numbers of further columns at the left, others at the right."""
    html = ""
    for index, text in enumerate(cells):
        content = text if isinstance(text, _Bar) else html_text(text)
        is_name = index == 0 or (index > 2 and not text[:1].isdigit())
        side = "left" if is_name else "right"
        html += f'<{tag} style="{_CELL}{side}">{content}</{tag}>'
    return f"<tr>{html}</tr>"


Diagnosis.draw_by(
    lambda diagnosis: notebook_html(Shown.whole(diagnosis)),
    lambda diagnosis: notebook_text(Shown.whole(diagnosis)),
)
Explanation.draw_by(explanation_html, explanation_text)
