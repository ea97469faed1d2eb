"""Diagnoses and explanations as HTML for a notebook (tables and bars, no script, every name
escaped) and as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.numbers import number, signed, smaller_terms
from ...profiling.recording.axis import Axis
from ...profiling.recording.store import STEP
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
from .words import html_text, interval, share, shorten

_MOST_ROWS = 12
_WIDTH = 80  # of the page
_CELL = "padding:.15em .7em;text-align:"


def notebook_html(shown: Shown) -> str:
    """The page of a terminal, the answers, the curve, and every anomaly with its experiments."""
    return "".join(html for draw in _BLOCKS if (html := draw(shown)) is not None)


def _page(shown: Shown) -> str:
    return f"<pre>{html_text(Page(shown.diagnosis).text(_WIDTH))}</pre>"


def _answers(shown: Shown) -> str | None:
    answers = shown.diagnosis.answers
    return f"<ol>{''.join(map(_answer, answers))}</ol>" if answers else None


def _remedies(shown: Shown) -> str | None:
    """The remedies, their savings and settings, and the other changes that ran."""
    if not shown.diagnosis.remedies.tried:
        return None
    remedies = remedy_table(shown.diagnosis.remedies, shown.axis)
    head, rows = remedy_cells(remedies, shown.axis)
    return (_table(head, rows) if rows else "") + (
        _paragraph(remedies.sentence) if remedies.sentence else ""
    )


def _curve(shown: Shown) -> str:
    axis, curve = shown.axis, shown.diagnosis.curve
    per_sample = [f"ms/{axis.one}"] if curve.unit == STEP else []
    rows = []
    for point in curve.points:
        size, time = point.condition, point.time_ms.value
        each = [number(time / size)] if per_sample else []
        rows.append([str(size), number(time), interval(point.time_ms, 4), *each, str(point.n)])
    return _table([axis.name, f"{curve.unit} ms", "95 % interval", *per_sample, "n"], rows)


def _explanations(shown: Shown) -> str:
    blocks = []
    for explanation in shown.diagnosis.explained:
        blocks.append(explanation_html(explanation))
        unit = explanation.functional.unit
        blocks += [_evidence(term, unit, shown.axis) for term in explanation.evidence or ()]
    return "".join(blocks)


_BLOCKS = (_page, _answers, _remedies, _curve, _explanations)


def notebook_text(shown: Shown) -> str:
    """The page of a terminal."""
    return Page(shown.diagnosis).text(_WIDTH)


def explanation_text(explanation: Explanation) -> str:
    """The finding and the remedy, in one to three sentences."""
    if explanation.evidence is None:
        return verdict_sentence(explanation)
    return answer_words.sentence(explanation)


def _answer(answer: Explanation) -> str:
    said, how = html_text(answer_words.sentence(answer)), remedy_text(answer.remedy)
    return f"<li>{said}{f'<br><small>{html_text(how)}</small>' if how else ''}</li>"


def _evidence(evidence: TermEvidence, unit: str, axis: Axis) -> str:
    """The experiments on one term: its behaviour alone, and a row per change."""
    sentence = _paragraph(reproduction_sentence(evidence, unit))
    if evidence.shape is not None:
        sentence += _paragraph(shape_sentence(evidence.shape))
    rows = [
        [factor_text(factor), *factor_cells(factor), factor.verdict, factor.reason or ""]
        for factor in evidence.factors
    ]
    if not rows:
        return sentence
    head = [
        "with this change",
        "removes",
        time_heading(evidence.factors[0], axis),
        "verdict",
        "reason",
    ]
    return sentence + _table(head, rows)


def explanation_html(explanation: Explanation) -> str:
    """The terms of one functional, with bars, and its causes."""
    value, unit = explanation.value, explanation.functional.unit
    title = f"{explanation.functional.label}: {signed(value.value)} {unit} ({interval(value)})"
    shares = sorted(explanation.shares, key=lambda p: -abs(p.value.value))
    listed, rest = shares[:_MOST_ROWS], shares[_MOST_ROWS:]
    largest = max((abs(p.value.value) for p in shares), default=0.0)
    terms = [
        (term.label + " *" * term.real, term.value.value, shorten(term.kernel_after or ""))
        for term in listed
    ]
    terms += [(smaller_terms(len(rest)), total_ms(rest), "")] if rest else []
    rows = [
        [label, signed(amount), share(amount, value.value), _bar(amount, largest), kernel]
        for label, amount, kernel in terms
    ]
    causes = [
        [
            cause.cause,
            signed(cause.amount),
            share(cause.amount, value.value),
            _bar(cause.amount, largest),
            verdict_of(cause),
        ]
        for cause in explanation.causes
    ]
    return (
        f"<p><b>{html_text(title)}</b><br>{html_text(verdict_sentence(explanation))}</p>"
        + _table(["term", unit, "share", "", "kernel"], rows)
        + _table(["cause", unit, "share", "", "verdict"], causes)
        + "<p><small>* significant. Terms add up to the anomaly, and so do causes. "
        + "What is not significant is no cause.</small></p>"
    )


def _paragraph(text: str) -> str:
    return f"<p>{html_text(text)}</p>"


class _Bar(str):
    """HTML from this module, which needs no escaping."""

    __slots__ = ()


def _bar(amount: float, largest: float) -> _Bar:
    width = 8 * abs(amount) / largest if largest else 0.0
    colour = "#c0392b" if amount > 0 else "#2f855a"
    return _Bar(f'<div style="width:{width:.2f}em;height:.8em;background:{colour}"></div>')


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cell(tag: str, text: str, index: int) -> str:
        content = text if isinstance(text, _Bar) else html_text(text)
        side = "left" if index == 0 or (index > 2 and not text[:1].isdigit()) else "right"
        return f'<{tag} style="{_CELL}{side}">{content}</{tag}>'

    lines = ["".join(cell("th", text, index) for index, text in enumerate(head))]
    lines += ["".join(cell("td", text, index) for index, text in enumerate(row)) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


Diagnosis.draw_by(
    lambda diagnosis: notebook_html(Shown.whole(diagnosis)),
    lambda diagnosis: notebook_text(Shown.whole(diagnosis)),
)
Explanation.draw_by(explanation_html, explanation_text)
