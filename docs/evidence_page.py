"""The page of evidence: the three figures with which each page of evidence begins."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from evidence import figures_of

PAGES = (
    "statistics",
    "planted-causes",
    "public-steps",
    "faults",
    "benchmarks",
    "detector",
    "profile-coverage",
    "cost-model-validation",
)


def evidence_page(docs: Path) -> str:
    """The page.

    Args:
        docs: folder of the pages.
    """
    lines = [
        "# Evidence",
        "",
        "What was measured of Curvescope itself. Benchmarks write these pages; each begins with "
        "its three figures, and `python docs/generate_reference.py` repeats them here.",
    ]
    for page in PAGES:
        title, figures = figures_of(docs / f"{page}.md")
        lines += ["", f"## [{title}]({page}.md)", "", *(f"- {figure}" for figure in figures)]
    lines += [
        "",
        "No figure is from a GPU that Curvescope ran on: it [has not run on one yet](limits.md).",
    ]
    return "\n".join(lines) + "\n"
