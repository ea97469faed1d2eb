"""The top of the report as plain HTML, which reads without the page's script: verdicts, remedies
and the curve.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...base.numbers import number
from ...profiling.recording.axis import Axis
from .answers import remedy_text
from .explained import ShownAnswer
from .first_screen import first_screen_html
from .remedies import TITLE, remedy_cells
from .report_document import ReportComparison, ReportRun
from .words import html_text, interval, join_texts, page_text


def verdict_html(run: ReportRun, index: int) -> str:
    """The verdict on a recording, an entry of the document's `runs`; the script hides all but one
    index.
    """
    first = run["first"]
    body = _head(run) if first is None else first_screen_html(first, index)
    body += _remedies(run)
    body += _answers(run, index)
    body += f"<noscript>{_curve(run)}</noscript>"
    return f'<article class="verdict" data-run="{index}">{body}</article>'


def _head(run: ReportRun) -> str:
    """The headline of a recording that has no first screen."""
    explained = run["explain"]
    step = f"{run['step']} step" if run["step"] else None
    name = explained.network or run["name"]
    over = html_text(join_texts([name, step, run["device"]], " · "))
    headline = page_text(explained.headline)
    lead = ""
    if run["lead"] and not explained.answers:
        lead = f'<p class="lead">{page_text(run["lead"])}</p>'
    return f'<p class="over">{over}</p><h1>{headline}</h1>{lead}'


def comparison_html(comparison: ReportComparison | None) -> str:
    """Which recording is faster, as the terminal says it, of the document's `comparison`; empty for
    one recording.
    """
    if comparison is None:
        return ""
    said = map(page_text, comparison["verdicts"])
    return "".join(f'<p class="lead"><a href="#compare">{verdict}</a></p>' for verdict in said)


def _remedies(run: ReportRun) -> str:
    """The remedies, their savings and settings; empty if nothing was tried."""
    shown = run["explain"].remedies
    sentence = ""
    if shown.sentence:
        sentence = f"<p>{page_text(shown.sentence)}</p>"
    if not shown.rows:
        return sentence
    axis = Axis(run["axis"]["name"])
    columns, lines = remedy_cells(shown, axis)
    heads = "".join(f"<th>{html_text(head)}</th>" for head in columns[:-1])
    rows, hows = "", ""
    for place, (do, *cells, how) in enumerate(lines, 1):
        change = f'<td class="do">{html_text(do)}</td>'
        saves = "".join(f"<td>{page_text(cell)}</td>" for cell in cells)
        rows += f"<tr>{change}{saves}</tr>"
        if how:
            hows += f'<p class="how">How {place}: {html_text(how)}</p>'
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<section class="remedies" aria-label="{TITLE}"><h2>{TITLE}</h2>'
        f'<div class="scroll">{table}</div>{hows}{sentence}</section>'
    )


def _answers(run: ReportRun, index: int) -> str:
    answers = run["explain"].answers
    if not answers:
        return ""
    title = "Answers" if len(answers) > 1 else "Answer"
    how = ""
    if run["how_to_test"]:
        how = f'<p class="note">{html_text(run["how_to_test"])}</p>'
    first: dict[str | None, int] = {}
    items = ""
    for place, answer in enumerate(answers, 1):
        setting = remedy_text(answer.remedy)
        items += _answer(answer, place, first.setdefault(setting, place))
    section = f"answers-{index}"
    head = f'<div class="head"><h2 id="{section}-title">{title}</h2></div>'
    return (
        f'<section id="{section}" aria-labelledby="{section}-title">{head}'
        f'<ol class="answers">{items}</ol>{how}</section>'
    )


def _answer(answer: ShownAnswer, number: int, first: int) -> str:
    """The sentence as the terminal prints it, what to do in bold; `first` is the first answer with
    the same setting.
    """
    verdict = html_text(answer.verdict)
    label = html_text(answer.functional.label)
    sentence = page_text(answer.finding)
    advice = page_text(answer.advice)
    if advice:
        sentence += f" <strong>{advice}</strong>"
    setting = remedy_text(answer.remedy)
    if setting and first != number:
        setting = f"How: as in {first}."
    how = ""
    if setting:
        how = f'<p class="how">{html_text(setting)}</p>'
    badge = f'<span class="badge is-{verdict}">{verdict}</span>'
    return f'<li class="is-{verdict}" data-of="{label}"><p>{badge} {sentence}</p>{how}</li>'


def _curve(run: ReportRun) -> str:
    heads = (run["axis"]["value"], "ms per step", "95 % interval", "n")
    rows = ""
    for point in run["explain"].curve:
        size = "unknown" if point.batch is None else str(point.batch)
        time = number(point.time_ms.value)
        ends = interval(point.time_ms, 4)
        rows += _row("td", (size, time, ends, str(point.n)))
    head = _row("th", heads)
    return (
        "<p>This page's own script draws the charts and tables below; it is switched off "
        f"here.</p><table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    )


def _row(tag: str, cells: Iterable[str]) -> str:
    content = "".join(f"<{tag}>{html_text(cell)}</{tag}>" for cell in cells)
    return f"<tr>{content}</tr>"
