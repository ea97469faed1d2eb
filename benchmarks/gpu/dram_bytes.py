"""Measured DRAM bytes of a step against its compulsory ones, by layer and phase, as Markdown.

Arguments: a recording of the step by torch.profiler (layers and compulsory bytes), one of the same program by ncu
(DRAM bytes; no layers and no times of the step), the file to write. Both list the kernels of a step in the order of
their launches, so that their names, aligned as two texts are, say which is which; kernels without a counterpart are
counted, never guessed.
"""

from __future__ import annotations

import sys
from difflib import SequenceMatcher
from pathlib import Path

import pandas as pd

from curvescope.profiling.attribution.kernel_names import short_name
from curvescope.profiling.recording.store import open_recording


def joined(watched: pd.DataFrame, counted: pd.DataFrame) -> pd.DataFrame:
    """The kernels of one step with `measured_bytes` beside them; null where there is no counterpart.

    Args:
        watched: kernels of one step by torch.profiler, in the order of their starts.
        counted: kernels by ncu in the order of their launches, of this step and of what ran before it.
    """
    names = [_base(name) for name in watched["name"]]
    # The step is what the program ends with.
    tail = counted.tail(len(watched))
    matcher = SequenceMatcher(None, names, [_base(name) for name in tail["name"]], autojunk=False)
    measured = pd.Series(pd.NA, index=watched.index, dtype="Int64")
    for block in matcher.get_matching_blocks():
        for place in range(block.size):
            measured.iloc[block.a + place] = tail["dram_bytes"].iloc[block.b + place]
    return watched.assign(measured_bytes=measured)


def _base(name: str) -> str:
    """Without template arguments, which the two tools print in different forms."""
    return short_name(name).partition("<")[0]


def table(rows: pd.DataFrame) -> list[str]:
    """A row per layer and phase, most measured bytes first, and the whole."""
    lines = ["| layer | phase | kernels | compulsory MB | measured MB | ratio |", "| --- | --- " + "| ---: " * 4 + "|"]
    known = rows[rows["measured_bytes"].notna()]
    groups = [(key, group) for key, group in known.groupby(["layer", "phase"], dropna=False)]
    groups.sort(key=lambda pair: -int(pair[1]["measured_bytes"].sum()))
    for (layer, phase), group in [*groups, (("all", ""), known)]:
        measured, compulsory = int(group["measured_bytes"].sum()), int(group["bytes_compulsory"].sum())
        shown = ["-" if pd.isna(text) else str(text) for text in (layer, phase)]
        ratio = f"{measured / compulsory:.2f}" if compulsory else "-"
        cells = [*shown, str(len(group)), f"{compulsory / 1e6:.2f}" if compulsory else "-", f"{measured / 1e6:.2f}"]
        lines.append(f"| {' | '.join(cells)} | {ratio} |")
    missing = int(rows["measured_bytes"].isna().sum())
    lines += ["", f"{missing} of {len(rows)} kernels of the step have no counterpart in ncu's and are left out."]
    return lines


def main() -> int:
    """Write the table."""
    watched, counted = (open_recording(path) for path in sys.argv[1:3])
    steps = watched.frame("steps")
    kernels = watched.frame("kernels")
    last = int(steps.loc[steps["profiled"].astype(bool), "step"].max())
    step = kernels[kernels["step"] == last].sort_values("start_ns")
    lines = table(joined(step, counted.frame("kernels")))
    Path(sys.argv[3]).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
