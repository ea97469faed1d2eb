"""The first screen of the report: the verdict in a sentence, three tiles, and the findings.

The script draws two charts between them: the curve as its difference from the cost line, and the
experiment behind the first answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base.numbers import number
from ..decompose.functionals import Condition
from ..diagnosis.remedies import throughput_of
from .deviations import cost_line
from .found import CONFIRMED, Found
from .summary import Summary
from .words import begin_sentence, html_text, join_texts, page_text

MOST_FOUND = 5
_WIDE = 200  # cells, in which all facts have room


@dataclass(frozen=True)
class Tile:
    """One answer: its name, the answer large, and its evidence."""

    name: str
    answer: str
    reason: str


@dataclass(frozen=True)
class FoundLine:
    """One finding: what, its worth in a step by batch size, and how sure it is."""

    what: str
    worth: str  # e.g. `of a step 2.3 % at 8`; empty where it is unknown
    sure: str


@dataclass(frozen=True)
class FirstScreen:
    """What the page's first screen shows of one recording."""

    facts: str  # who, where and how disturbed
    verdict: str
    tiles: Sequence[Tile]
    # cost of a step at size 0 and of one sample more, ms; None without a line that fits
    line_ms: tuple[float, float] | None
    found: Sequence[FoundLine]
    slow: Sequence[Condition]  # sizes that are slow beside their neighbours


def first_screen(summary: Summary) -> FirstScreen:
    """The first screen of a diagnosis."""
    quiet = summary.how_quiet()
    line = cost_line(summary.diagnosis.curve)
    line_ms = None
    if line is not None:
        line_ms = (line.fixed_ms, line.each_ms)
    found = [_line(entry) for entry in summary.entries[:MOST_FOUND]]
    return FirstScreen(
        facts=join_texts([summary.facts(_WIDE), quiet.plain], " · "),
        verdict=summary.say_verdict(),
        tiles=tuple(_tiles(summary)),
        line_ms=line_ms,
        found=found,
        slow=sorted(summary.slow_sizes),
    )


def _line(entry: Found) -> FoundLine:
    shares = [f"{share} at {size}" for size, share in entry.worth]
    worth = f"of a step {', '.join(shares)}" if shares else ""
    return FoundLine(entry.what, worth, entry.sure)


def _tiles(summary: Summary) -> Iterator[Tile]:
    diagnosis, axis = summary.diagnosis, summary.diagnosis.axis
    curve = diagnosis.curve
    throughput, take = throughput_of(curve), summary.size_to_take()
    if throughput is not None and take:
        rate = number(throughput.per_s, 3)
        more = "still rising"
        if not throughput.grows:
            more = f"at most {number(throughput.best_per_s, 3)}"
        reason = f"{rate} {axis.unit}/s there, {more}"
        yield Tile("Batch size", take.removeprefix("Take "), reason)
    line = cost_line(curve)
    if line is not None:
        first, last = curve.conditions[0], curve.conditions[-1]
        notes = []
        if line.tells_fixed(first):
            at_first, at_last = line.fixed_share(first), line.fixed_share(last)
            notes.append(f"fixed: {at_first:.0%} at {first} and {at_last:.0%} at {last}")
        if line.off > 0.05:
            notes.append(f"times are up to {line.off:.0%} off")
        yield Tile("Cost of a step", line.as_sum(axis.name), "; ".join(notes))
    saving = next((entry for entry in summary.entries if entry.saving is not None), None)
    if saving is not None:
        at, share = saving.worth[0]
        gain = f"{share} at {at}"
        said = f"{saving.what}: {gain}, {saving.sure}"
        answer = gain if saving.sure == CONFIRMED else "open"
        yield Tile("Saves", answer, begin_sentence(said))


def first_screen_html(screen: FirstScreen, index: int) -> str:
    """The same as HTML; the script adds the charts to `.charts`."""
    tiles = "".join(map(_tile_html, screen.tiles))
    listed = ""
    if screen.found:
        rows = "".join(map(_line_html, screen.found))
        listed = f'<ol class="found card">{rows}</ol>'
    facts, verdict = page_text(screen.facts), page_text(screen.verdict)
    return (
        f'<p class="over">{facts}</p><h1>{verdict}</h1><div class="tiles">{tiles}</div>'
        f'<div class="charts" id="charts-{index}"></div>{listed}'
    )


def _tile_html(tile: Tile) -> str:
    name, answer, reason = map(page_text, (tile.name, tile.answer, tile.reason))
    return f'<div class="tile"><span>{name}</span><b>{answer}</b><p>{reason}</p></div>'


def _line_html(line: FoundLine) -> str:
    what, worth, sure = map(page_text, (line.what, line.worth, line.sure))
    style = html_text(line.sure.split()[0])
    share = f": {worth}" if worth else ""
    return f'<li><span class="badge is-{style}">{sure}</span> <b>{what}</b>{share}</li>'
