"""What `compare --fail-over` found, for a CI: a summary in Markdown and a report in JUnit's XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from ...base.escaping import escape_controls
from ...base.markdown import write_markdown
from ..change import Change
from ..compare import ComparedLine, Comparison
from .compare import (
    render_check,
    say_losses,
    show_growth,
    show_interval,
    show_layer_growth,
    show_ratio,
    verdicts,
)
from .words import number_cell

WORSE, NOT_WORSE, COULD_NOT_TELL = "worse", "not worse", "could not tell"
_MOST_ROWS = 5


def judge(comparison: Comparison, over: float) -> str:
    """Judge whether the step time grew by more than a share: one of three words."""
    if comparison.fails(over):
        return WORSE
    return COULD_NOT_TELL if comparison.find_undecided(over) else NOT_WORSE


def render_summary(comparison: Comparison, over: float | None) -> str:
    """Write the answer in Markdown: the word, the sentences, then steps and rows that changed."""
    names = [side.name for side in comparison.sides]
    title = "Time per step" if over is None else f"Time per step: {judge(comparison, over)}"
    sentences = [] if over is None else [line.plain for line in render_check(comparison, over)]
    parts = [f"### {title}", *sentences, *verdicts(comparison, names)]
    parts += say_losses(comparison, names)
    parts.append(_render_lines("batch", comparison.steps, names))
    changed = [row for row in comparison.rows if row.is_real]
    if changed:
        head = (
            comparison.by if comparison.batch is None else f"{comparison.by} at {comparison.batch}"
        )
        parts.append(_render_lines(head, changed[:_MOST_ROWS], names))
    return escape_controls("\n\n".join(parts)) + "\n"


def render_junit(comparison: Comparison, over: float) -> str:
    """Write a test case for each version and batch size.

    A growth that is not ruled out is skipped, as in `no_new_anomaly`.
    """
    failed = dict(_list_failures(comparison, over))
    open_ = {(name, batch) for name, batch, _ in comparison.find_undecided(over)}
    suite = ElementTree.Element("testsuite", name="curvescope compare")
    for side in comparison.sides[1:]:
        for line in comparison.steps:
            case = ElementTree.SubElement(
                suite, "testcase", classname=side.name, name=f"batch {line.label}"
            )
            place = side.name, line.label
            if place in failed:
                ElementTree.SubElement(case, "failure", message=failed[place])
            elif place in open_:
                ElementTree.SubElement(case, "skipped", message=COULD_NOT_TELL)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _list_failures(comparison: Comparison, over: float) -> Iterator[tuple[tuple[str, str], str]]:
    """The version, the batch size and a sentence of each growth that fails."""
    for layer in comparison.grown_layers(over):
        place = layer.name, str(layer.batch)
        yield place, f"{layer.label} grew by {show_layer_growth(layer)}."
    for name, batch, change in comparison.regressions(over):
        yield (name, batch), f"The step takes {show_growth(change)}."


def _render_lines(first: str, lines: Sequence[ComparedLine], names: Sequence[str]) -> str:
    base, *others = names
    head = [first, *(f"{name} ms" for name in names)]
    for name in others:
        head += [f"{name}/{base}", "95 % interval"]
    rows = []
    for line in lines:
        cells = [line.label, *map(number_cell, line.times_ms)]
        for change in line.changes:
            cells += ["" if change is None else _mark_ratio(change), show_interval(change)]
        rows.append(cells)
    return write_markdown(head, rows)


def _mark_ratio(change: Change) -> str:
    mark = " (significant)" if change.real else ""
    return f"{show_ratio(change)}{mark}"
