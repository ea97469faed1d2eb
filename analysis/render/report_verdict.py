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
    head = _head(run) if run["first"] is None else first_screen_html(run["first"], index)
    body = f"{head}{_remedies(run)}{_answers(run, index)}<noscript>{_curve(run)}</noscript>"
    return f'<article class="verdict" data-run="{index}">{body}</article>'


def _head(run: ReportRun) -> str:
    """The headline of a recording that has no first screen."""
    explained = run["explain"]
    step = f"{run['step']} step" if run["step"] else None
    over = join_texts([explained.network or run["name"], step, run["device"]], " · ")
    said = "" if explained.answers else run["lead"]
    lead = f'<p class="lead">{page_text(said)}</p>' if said else ""
    return f'<p class="over">{html_text(over)}</p><h1>{page_text(explained.headline)}</h1>{lead}'


def comparison_html(comparison: ReportComparison | None) -> str:
    """Which recording is faster, as the terminal says it, of the document's `comparison`; empty for
    one recording.
    """
    said = map(page_text, comparison["verdicts"] if comparison else ())
    return "".join(f'<p class="lead"><a href="#compare">{verdict}</a></p>' for verdict in said)


def _remedies(run: ReportRun) -> str:
    """The remedies, their savings and settings; empty if nothing was tried."""
    shown = run["explain"].remedies
    sentence = f"<p>{page_text(shown.sentence)}</p>" if shown.sentence else ""
    if not shown.rows:
        return sentence
    columns, lines = remedy_cells(shown, Axis(run["axis"]["name"]))
    heads = "".join(f"<th>{html_text(head)}</th>" for head in columns[:-1])
    rows, hows = "", ""
    for place, (do, *cells, how) in enumerate(lines, 1):
        saves = "".join(f"<td>{page_text(cell)}</td>" for cell in cells)
        rows += f'<tr><td class="do">{html_text(do)}</td>{saves}</tr>'
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
    how = f'<p class="note">{html_text(run["how_to_test"])}</p>' if run["how_to_test"] else ""
    first: dict[str | None, int] = {}
    items = ""
    for place, answer in enumerate(answers, 1):
        items += _answer(answer, place, first.setdefault(remedy_text(answer.remedy), place))
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
    verdict, label = html_text(answer.verdict), html_text(answer.functional.label)
    sentence, advice = page_text(answer.finding), page_text(answer.advice)
    if advice:
        sentence += f" <strong>{advice}</strong>"
    setting = remedy_text(answer.remedy)
    if setting and first != number:
        setting = f"How: as in {first}."
    how = f'<p class="how">{html_text(setting)}</p>' if setting else ""
    badge = f'<span class="badge is-{verdict}">{verdict}</span>'
    return f'<li class="is-{verdict}" data-of="{label}"><p>{badge} {sentence}</p>{how}</li>'


def _curve(run: ReportRun) -> str:
    heads = (run["axis"]["value"], "ms per step", "95 % interval", "n")
    rows = ""
    for point in run["explain"].curve:
        size = "unknown" if point.batch is None else str(point.batch)
        time, n = number(point.time_ms.value), str(point.n)
        rows += _row("td", (size, time, interval(point.time_ms, 4), n))
    return (
        "<p>This page's own script draws the charts and tables below; it is switched off "
        f"here.</p><table><thead>{_row('th', heads)}</thead><tbody>{rows}</tbody></table>"
    )


def _row(tag: str, cells: Iterable[str]) -> str:
    content = "".join(f"<{tag}>{html_text(cell)}</{tag}>" for cell in cells)
    return f"<tr>{content}</tr>"
