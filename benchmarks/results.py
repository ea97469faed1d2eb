"""Results of benchmarks as documents: what was compared, as a ratio measured in one run, with its spread.

A script that is run by `page.py` finds the folder for its documents in CURVESCOPE_RESULTS; run by hand it only prints.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER_VARIABLE = "CURVESCOPE_RESULTS"


@dataclass(frozen=True)
class Row:
    """One comparison."""

    what: str
    peer: str
    unit: str
    ours: float | None  # median of the repetitions, as theirs
    theirs: float | None
    ratio: tuple[float, float, float] | None  # theirs over ours: median, least, most
    n: int

    @classmethod
    def of(
        cls, what: str, peer: str, unit: str, ours: Sequence[float], theirs: Sequence[float], ratios: Sequence[float]
    ) -> Row:
        spread = (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None
        middle = [statistics.median(values) if values else None for values in (ours, theirs)]
        return cls(what, peer, unit, middle[0], middle[1], spread, len(ratios))


def write(name: str, rows: Sequence[Row], peers_better: str) -> None:
    """Leave a document where `page.py` looks for it; nothing where a script is run by hand."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        document = {"rows": [asdict(row) for row in rows], "peers_better": peers_better}
        (Path(folder) / f"{name}.json").write_text(json.dumps(document))
