"""The page of evidence: three figures of each page that benchmarks write, looked up there."""

from __future__ import annotations

import re
from pathlib import Path

# Title, page, sentence with a %s for each figure, and where each stands in its page: a pattern with one group.
_FIGURES = (
    (
        "The statistics",
        "statistics.md",
        "false alarms in %s of simulated sweeps or less, under every noise; intervals of a time hold the true value in "
        "%s or more, of %s sweeps of each kind",
        (r"false alarms are (\S+) or less", r"true value in (\S+)\s+of sweeps or more", r"simulates (\d+) sweeps"),
    ),
    (
        "Planted causes",
        "planted-causes.md",
        "right layer in %s; right cause confirmed in %s; a cause confirmed with nothing planted in %s",
        (
            r"\| the right layer in .*? \| (\d+ of \d+)",
            r"\| the right cause confirmed .*? \| (\d+ of \d+)",
            r"\| nothing planted.*? \| (\d+ of \d+)",
        ),
    ),
    (
        "Faults",
        "faults.md",
        "%s bad, by kills, full disks, lost devices and others, over all commands that write (%s trials, %s minutes)",
        (r"\*\*(\d+ of \d+) trials were bad", r"this page: (\d+) trials", r"in sequence, (\d+) minutes"),
    ),
    (
        "Benchmarks",
        "benchmarks.md",
        "memory bandwidth over STREAM's %s, a matrix product over a bare loop %s, best over best; a sample costs %s",
        (
            r"C STREAM .*\nbest over best (\S+),",
            r"bare loop .*\nbest over best (\S+),",
            r"the timer, a sample .*median (\S+ \S+)",
        ),
    ),
    (
        "The detector on published data",
        "detector.md",
        "%s pairs of DeepBench's convolutions; at 5 %% stated noise precision %s and recall %s against a plain 5 %% "
        "rule",
        tuple(
            rf"\| convolutions \| {number} \| 5% \| \d+ \| \d+ \| \d+ \| {precision} \| {recall} \|"
            for number, precision, recall in (
                (r"(\d+)", r"\S+", r"\S+"),
                (r"\d+", r"(\S+)", r"\S+"),
                (r"\d+", r"\S+", r"(\S+)"),
            )
        ),
    ),
    (
        "The cost model, validated",
        "cost-model-validation.md",
        "median error on a GPU left out of the fit: forward convolution %s, matrix product %s; %s of operators inside "
        "their 90 %% interval",
        (
            r"\| all \| forward \| \d+ \| (\S+) \|",
            r"\| all \| product \| \d+ \| (\S+) \|",
            r"\| all \| all \| \d+ \| (\S+) \|",
        ),
    ),
)


def evidence_page(docs: Path) -> str:
    """The page.

    Args:
        docs: folder of the pages.
    """
    lines = [
        "# Evidence",
        "",
        "What was measured of Curvescope itself, three figures a page; `python docs/generate_reference.py` looks them "
        "up in the pages, which benchmarks write.",
        "",
        "| page | figures |",
        "|---|---|",
    ]
    for title, page, sentence, patterns in _FIGURES:
        text = (docs / page).read_text()
        figures = [re.search(pattern, text) for pattern in patterns]
        assert all(figures), f"docs/{page} has no figure for {patterns[figures.index(None)]}"
        said = sentence % tuple(f"**{figure[1]}**" for figure in figures if figure)
        lines.append(f"| [{title}]({page}) | {said} |")
    lines += ["", "No figure is from a GPU that Curvescope ran on: it [has not run on one yet](limits.md)."]
    return "\n".join(lines) + "\n"
