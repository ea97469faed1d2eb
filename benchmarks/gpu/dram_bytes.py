"""Measured DRAM bytes of a step against its compulsory ones, by layer and phase, as Markdown.

Arguments: a recording with the counters of its kernels (`curvescope counters`), the file to write. Kernels without
counters are counted and left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from curvescope.profiling.recording.store import open_recording


def table(rows: pd.DataFrame) -> list[str]:
    """A row per layer and phase, most measured bytes first, and the whole."""
    lines = ["| layer | phase | kernels | compulsory MB | measured MB | ratio |", "| --- | --- " + "| ---: " * 4 + "|"]
    known = rows[rows["dram_bytes"].notna()]
    groups = [(key, group) for key, group in known.groupby(["layer", "phase"], dropna=False)]
    groups.sort(key=lambda pair: -int(pair[1]["dram_bytes"].sum()))
    for (layer, phase), group in [*groups, (("all", ""), known)]:
        measured, compulsory = int(group["dram_bytes"].sum()), int(group["bytes_compulsory"].sum())
        shown = ["-" if pd.isna(text) else str(text) for text in (layer, phase)]
        ratio = f"{measured / compulsory:.2f}" if compulsory else "-"
        cells = [*shown, str(len(group)), f"{compulsory / 1e6:.2f}" if compulsory else "-", f"{measured / 1e6:.2f}"]
        lines.append(f"| {' | '.join(cells)} | {ratio} |")
    missing = int(rows["dram_bytes"].isna().sum())
    lines += ["", f"{missing} of {len(rows)} kernels of the step have no counters and are left out."]
    return lines


def main() -> int:
    """Write the table."""
    recording = open_recording(sys.argv[1])
    steps = recording.frame("steps")
    kernels = recording.frame("kernels")
    last = int(steps.loc[steps["profiled"].astype(bool), "step"].max())
    lines = table(kernels[kernels["step"] == last])
    Path(sys.argv[2]).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
