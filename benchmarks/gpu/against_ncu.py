"""Counters of the same kernels by CUPTI's range profiler and by Nsight Compute, as Markdown.

Arguments: two copies of a recording, one counted by CUPTI, the other by ncu; the file to write. The two repeat
different things, steps and kernels: bytes of DRAM may differ by what the caches hold, FLOPs may not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import scripts

from curvescope.profiling.measure.counters import COUNTED
from curvescope.profiling.recording.store import open_recording


def table(cupti: pd.DataFrame, ncu: pd.DataFrame) -> list[str]:
    """A row per counter: the kernels that both counted, and CUPTI's values over those of ncu."""
    lines = ["| counter | kernels | sum, CUPTI / ncu | median kernel | within 1 % |", "| --- " + "| ---: " * 4 + "|"]
    for name in COUNTED:
        both = cupti[name].notna() & ncu[name].notna()
        ours, theirs = cupti.loc[both, name].astype(float), ncu.loc[both, name].astype(float)
        ratios = (ours / theirs)[theirs > 0]
        cells = ["-"] * 3
        if len(ratios):
            near = (ratios - 1).abs() <= 0.01
            cells = [f"{ours.sum() / theirs.sum():.3f}", f"{ratios.median():.3f}", f"{near.mean():.0%}"]
        lines.append(f"| {name} | {int(both.sum())} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    *recordings, target = map(Path, sys.argv[1:])
    cupti, ncu = (open_recording(path).frame("kernels") for path in recordings)
    Path(target).write_text("\n".join(table(cupti, ncu)) + "\n")
    return 0


if __name__ == "__main__":
    scripts.run(main)
