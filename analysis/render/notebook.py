"""Diagnoses and explanations as HTML for a notebook (tables and bars, no script, every name
escaped) and as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.escaping import escape_controls
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
from .headline import headline
from .remedies import RemedyTable, remedy_cells, remedy_table
from .words import html_text, interval, share, shortened, unmeasured_lines

_MOST_ROWS = 12
_CELL = "padding:.15em .7em;text-align:"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """The answers, the curve, and every anomaly with its experiments."""
    answers = "".join(_answer(answer) for answer in diagnosis.answers)
    axis, curve = diagnosis.axis, diagnosis.curve
    per_one = [f"ms/{axis.one}"] if curve.unit == STEP else []
    rows = []
    for point in curve.points:
        size, time = point.condition, point.time_ms.value
        each = [number(time / size)] if per_one else []
        rows.append([str(size), number(time), interval(point.time_ms, 4), *each, str(point.n)])
    blocks = [f"<ol>{answers}</ol>" if answers else _paragraph(headline({}, diagnosis))]
    blocks += map(_paragraph, unmeasured_lines(diagnosis.meta, axis))
    if diagnosis.remedies.tried:
        blocks.append(_remedies(remedy_table(diagnosis.remedies, axis), axis))
    blocks.append(_table([axis.name, f"{curve.unit} ms", "95 % interval", *per_one, "n"], rows))
    for explanation in diagnosis.explained:
        blocks.append(explanation_html(explanation))
        unit = explanation.functional.unit
        blocks += [_evidence(of_term, unit, axis) for of_term in explanation.evidence or ()]
    return "".join(blocks)


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """What the curve shows, each answer on a line with how to do what it says, and notes on the
    data.
    """
    lines = [headline({}, diagnosis), *unmeasured_lines(diagnosis.meta, diagnosis.axis)]
    shown = remedy_table(diagnosis.remedies, diagnosis.axis)
    lines += [shown.sentence] if shown.sentence else []
    for index, answer in enumerate(diagnosis.answers, 1):
        lines.append(f"{index}. {answer_words.sentence(answer)}")
        if how := remedy_text(answer.remedy):
            lines.append(f"   {how}")
    lines += diagnosis.notes
    return escape_controls("\n".join(lines))


def _remedies(shown: RemedyTable, axis: Axis) -> str:
    """What to do, what it saves and how, and what was tried beside it."""
    head, rows = remedy_cells(shown, axis)
    return (_table(head, rows) if rows else "") + (
        _paragraph(shown.sentence) if shown.sentence else ""
    )


def explanation_text(explanation: Explanation) -> str:
    """What was found and what to do, in one to three sentences."""
    if explanation.evidence is None:
        return verdict_sentence(explanation)
    return answer_words.sentence(explanation)


def _answer(answer: Explanation) -> str:
    said, how = html_text(answer_words.sentence(answer)), remedy_text(answer.remedy)
    return f"<li>{said}{f'<br><small>{html_text(how)}</small>' if how else ''}</li>"


def _evidence(evidence: TermEvidence, unit: str, axis: Axis) -> str:
    """The experiments on one term: what it does alone, and a row per change."""
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
        (term.label + " *" * term.real, term.value.value, shortened(term.kernel_after or ""))
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


Diagnosis.draw_by(diagnosis_html, diagnosis_text)
Explanation.draw_by(explanation_html, explanation_text)
