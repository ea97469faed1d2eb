"""Counters of the same kernels by CUPTI's range profiler and by Nsight Compute, a row each.

Arguments: two copies of a recording, one counted by CUPTI, the other by ncu; the file to write. The
two repeat different things, steps and kernels: bytes of DRAM may differ by what the caches hold,
FLOPs may not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import scripts

from curvescope.profiling.measure.counters import COUNTED
from curvescope.profiling.recording.store import open_recording


def table(cupti: pd.DataFrame, ncu: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row per counter: the kernels that both counted, and CUPTI's values over those of ncu."""
    for name in COUNTED:
        both = cupti[name].notna() & ncu[name].notna()
        ours, theirs = cupti.loc[both, name].astype(float), ncu.loc[both, name].astype(float)
        row: dict[str, Any] = {"counter": name, "kernels": int(both.sum())}
        ratios = (ours / theirs)[theirs > 0]
        if len(ratios):
            near = (ratios - 1).abs() <= 0.01
            row |= {
                "sum, CUPTI / ncu": float(ours.sum() / theirs.sum()),
                "median kernel": float(ratios.median()),
                "share within 1 %": float(near.mean()),
            }
        yield row


def main() -> int:
    *recordings, target = map(Path, sys.argv[1:])
    cupti, ncu = (open_recording(path).frame("kernels") for path in recordings)
    for row in table(cupti, ncu):
        scripts.add_row(target, row)
    return 0


if __name__ == "__main__":
    scripts.run(main)
