"""The page of evidence: what was measured of Curvescope, with figures and tables of the pages of
details.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from evidence import figures_of


@dataclass(frozen=True)
class Excerpt:
    """A table of a page of details, in part."""

    page: str
    first: str  # text of the first cell of its header
    columns: tuple[str, ...]  # headers of the columns that are shown
    behind: str = "# "  # heading that the table follows
    shortened: str = ""  # header of a column that is shown up to the first semicolon


@dataclass(frozen=True)
class Section:
    """What one question was, how it was answered, and what the answer does not say."""

    title: str
    page: str  # page of details, without its ending
    question: str  # before the figures
    meaning: str = ""  # behind them
    tables: tuple[Excerpt, ...] = ()


SECTIONS = (
    Section(
        "Do the intervals hold, and do the tests err?",
        "statistics",
        "A sweep is simulated whose true curve is known: a straight line, or one with a step of a "
        "known size. Its noise is even, skewed, in spikes, in two paces, drifting, persistent, or "
        "that of a busy neighbour. The product's own code makes intervals and verdicts of it.",
        "*Alarms* are sweeps of a straight line in which an anomaly is reported; *bend* and *T* "
        "are 95 % intervals that hold the true value. The second table says how often a step that "
        "is "
        "so much longer from batch 16 on is found at the right size. Small effects on a disturbed "
        "machine are missed more often than not: a sweep that reports nothing has not shown that "
        "nothing is there, and its intervals say how large it could be. Processes that differ by "
        "2 % would make an anomaly of nearly every straight line; so each round after the first "
        "has a process of its own where steps are short.",
        tables=(
            Excerpt(
                "statistics",
                "noise",
                ("noise", "default (alarms, bend, T)"),
                "## False alarms",
            ),
            Excerpt(
                "statistics",
                "noise",
                ("noise", "default, +5%", "default, +10%", "default, +20%"),
                "## Power: sweeps",
            ),
        ),
    ),
    Section(
        "Is the right cause confirmed?",
        "planted-causes",
        "Small real networks get one cause each, of a size that is measured without Curvescope. "
        "`curvescope.diagnose` is told nothing. The largest danger of such a tool is a cause that "
        "is confirmed and wrong, so the same is asked of steps with nothing planted, whose time is "
        "in proportion to the batch by construction.",
        "These plants were known while the causes were written; they show that the chain from "
        "measurement to verdict works, not how often strangers' anomalies are explained. On busier "
        "machines fewer causes are confirmed and more sweeps of nothing err: the page of details "
        "has these figures too.",
        tables=(
            Excerpt(
                "planted-causes",
                "planted",
                ("planted", "right cause", "effects", "confirmed", "wrong confirmed"),
            ),
        ),
    ),
    Section(
        "And on a GPU's path?",
        "virtual-causes",
        "A virtual card is made of CUDA's public functions: PyTorch's CUDA build and CUPTI run on "
        "it as on a GPU, its kernels compute nothing, and each takes a time by a small table. So "
        "this says nothing of how often verdicts are right on a real card. It does say that on the "
        "path that only a GPU takes (kernels from CUPTI, clocks, allocations, streams, graphs) a "
        "cause that is there is found.",
        "The plants of the first figure were adjusted while they were written; those of the second "
        "are drawn by a seed.",
    ),
    Section(
        "Does it help on steps of others?",
        "public-steps",
        "`curvescope diagnose` with its defaults ran on training steps of public scripts, and on "
        "anomalies that users of other projects reported and that a CPU shows.",
        "The first table is of public steps at their largest size, with what ran beside; the "
        "second, older, of public steps at any size; the third of published anomalies: whether an "
        "answer is on an anomaly at the published size, and whether the published cause is "
        "confirmed there. The first gain of each step is shown, measured on the complete step with "
        "and without the change by turns; those that change results say so.",
        tables=(
            Excerpt(
                "public-steps",
                "step",
                ("step", "ms", "beside", "proven at the largest"),
                "## At the largest size",
                shortened="proven at the largest",
            ),
            Excerpt(
                "public-steps",
                "step",
                ("step", "ms at batch", "cause confirmed", "saves"),
                "## At any size",
                shortened="saves",
            ),
            Excerpt("public-steps", "published", ("published", "answer", "size", "cause")),
        ),
    ),
    Section(
        "What does a profile of somebody else give?",
        "profile-coverage",
        "Profiles that other people recorded are imported, complete as they are. What "
        "matters is how much of the device time has a step, a layer, an operator and a known "
        "family of kernels.",
        "What `explain` then suggests of thirty of them stands [side by side](profile-advice.md) "
        "with sums by hand and with what HolisticTraceAnalysis, nsys-ai and TraceLens say. A "
        "suggestion is an upper bound and was not tried.",
    ),
    Section(
        "Are published times called anomalous by chance?",
        "detector",
        "DeepBench publishes one mean time for each problem and device. A plain rule calls a pair "
        "of batch sizes anomalous if the larger one costs over 5 % more than in proportion; ours "
        "asks whether a stated noise explains it, over all pairs of a table as one family.",
        "Neither rule is the truth.",
        tables=(
            Excerpt(
                "detector",
                "table",
                ("table", "pairs", "plain rule", "detector at a stated noise of 1%", "5%", "10%"),
            ),
        ),
    ),
    Section(
        "Is anything lost when something breaks?",
        "faults",
        "Commands are killed, get signals at random moments, run out of disk, memory, descriptors "
        "or modules, and their clock jumps. A trial is bad if recorded data is gone, changed or "
        "unreadable, or if a failure has no message.",
        "Files may also be written to do harm: [almost a hundred](hostile-files.md) that cost "
        "memory or time, run code, or give wrong numbers are imported with limits of 10 s of CPU "
        "time and 2 GiB. Each is read, or refused in words that leave nothing behind.",
    ),
    Section(
        "What does measuring cost, beside peers?",
        "benchmarks",
        "Each comparison measures both tools by turns in one run and gives a ratio. Single times "
        "hold for one machine; ratios are what to look at.",
    ),
    Section(
        "How far off is a predicted card?",
        "cost-model-validation",
        "The cost model predicts steps on GPUs that are not there. It was fitted to published "
        "times, with one GPU, one architecture or a fifth of the shapes left out in turn, and "
        "asked about what was left out.",
        "It misses most positive excesses, and is biased for libraries that no fit saw. Every time "
        "that it gives is called *modelled*, and no verdict of an experiment rests on one.",
    ),
)

BEGINNING = """# Evidence

What was measured of Curvescope itself, and what that does not show. Figures and tables are copied
from the pages of details, which name the scripts that measured them; `python
docs/generate_reference.py` copies them anew.

Most of it ran on CPUs. On a real GPU Curvescope ran [for fifteen minutes](case-studies/h100.md), on
an H100: what failed there was repaired, and no repair has run on a card. What is known of the error
of each number of a GPU, measured or estimated, is [one table](known-errors.md); what does not work
at all is in [limits](limits.md).

An experiment decides by one rule, and its words mean the same on every page:

> {rule}
"""


def evidence_page(docs: Path) -> str:
    """The page.

    Args:
        docs: folder of the pages.
    """
    lines = [BEGINNING.format(rule=_rule())]
    for section in SECTIONS:
        lines += [f"## {section.title}", "", section.question, ""]
        text = (docs / f"{section.page}.md").read_text()
        lines += [f"- {figure}" for figure in figures_of(docs / f"{section.page}.md")[1]]
        lines += [
            "",
            f"Details: [{text.splitlines()[0].removeprefix('# ')}]({section.page}.md).",
            "",
        ]
        lines += [section.meaning, ""] if section.meaning else []
        for excerpt in section.tables:
            lines += [*excerpt_of((docs / f"{excerpt.page}.md").read_text(), excerpt), ""]
    return "\n".join(lines).rstrip() + "\n"


def excerpt_of(text: str, excerpt: Excerpt) -> Iterator[str]:
    """The lines of a table with some of its columns; `name (more)` shows more than the header."""
    place = (
        text.index(excerpt.behind)
        if text.startswith(excerpt.behind)
        else text.index(f"\n{excerpt.behind}")
    )
    found = re.compile(rf"(?m)^\| *{re.escape(excerpt.first)} \|.*\n(?:\|.*\n)+").search(
        text, place
    )
    assert found, f"{excerpt.page}.md has no table that begins with {excerpt.first}"
    head, ruler, *rows = [_cells(line) for line in found[0].splitlines()]
    names = [name.partition(" (")[0] for name in excerpt.columns]
    chosen = [head.index(name) for name in names]
    yield _row(excerpt.columns)
    for cells in (ruler, *rows):
        shown = {name: cells[column] for name, column in zip(names, chosen, strict=True)}
        if excerpt.shortened:
            shown[excerpt.shortened] = shown[excerpt.shortened].partition(";")[0]
        yield _row(list(shown.values()))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule() -> str:
    from curvescope.analysis.verdicts import rule

    return " ".join(str(rule.__doc__).split("\n\n")[1].split())
