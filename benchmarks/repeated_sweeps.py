"""One network, unchanged, swept again and again on this machine: two sweeps differ by noise, or by the machine.

`python benchmarks/repeated_sweeps.py` writes benchmarks/results/repeated_sweeps.json, which docs/statistics.md shows.
Twenty sweeps of AlexNet's forward pass by the quick protocol, ten minutes. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from curvescope.analysis.compare import Comparison, compare, side
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import find
from curvescope.analysis.decompose.kernel_times import device_work, kernel_times
from curvescope.profiling.hardware.host import describe_host
from curvescope.profiling.recording.store import open_recording

RESULTS = Path(__file__).parent / "results" / "repeated_sweeps.json"
COMMAND = ("diagnose", "alexnet", "--mode", "forward", "--batch", "1,2,4,8,16", "--quick", "--json")


def evaluate(folders: list[Path]) -> dict[str, Any]:
    """What the sweeps say of each other.

    Returns:
        sweeps; held and of: intervals of T(b) that hold the median over all sweeps; told: by distance of two sweeps in
        time (neighbours, all), the pairs with any change of T(b) called real; verdicts: by functional, how often each.
    """
    recordings = [open_recording(folder) for folder in folders]
    curves = [cost_curve(recording.frame("steps"), recording.statistic) for recording in recordings]
    medians = np.median([[p.time_ms.value for p in curve.points] for curve in curves], axis=0)
    held = [bool(p.time_ms.low <= m <= p.time_ms.high) for c in curves for p, m in zip(c.points, medians, strict=True)]
    sides = [
        side(
            recording.path.name,
            recording.meta,
            recording.frame("steps"),
            kernel_times(device_work(recording), recording.frame("steps")),
            recording.statistic,
        )
        for recording in recordings
    ]
    changed = {(i, j): _changed(compare([sides[i], sides[j]])) for i, j in combinations(range(len(sides)), 2)}
    neighbours = [real for (i, j), real in changed.items() if j == i + 1]
    verdicts: dict[str, Counter[str]] = {}
    for curve in curves:
        for finding in find(curve):
            verdicts.setdefault(finding.shown.label, Counter())[finding.verdict] += 1
    return {
        "sweeps": len(curves),
        "rounds": [curve.rounds for curve in curves],
        "intervals": len(held),
        "intervals_held": sum(held),
        "neighbours": len(neighbours),
        "neighbours_changed": sum(neighbours),
        "pairs": len(changed),
        "pairs_changed": sum(changed.values()),
        "verdicts": {label: dict(counts) for label, counts in verdicts.items()},
        "times_ms": [[p.time_ms.value for p in curve.points] for curve in curves],
    }


def _changed(comparison: Comparison) -> bool:
    return any(change is not None and bool(change.real) for line in comparison.steps for change in line.changes)


def main() -> int:
    """Sweep, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=20, help="how many (default %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as store:
        folders = [Path(store) / f"{n:03}" for n in range(args.sweeps)]
        for folder in track(folders, "sweeping"):
            run = [sys.executable, "-m", "curvescope.cli", *COMMAND, "-o", str(folder)]
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        result = evaluate(folders)
    result = {
        "command": " ".join(("curvescope", *COMMAND)),
        "host": describe_host(),
        "date": f"{date.today()}",
        **result,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
