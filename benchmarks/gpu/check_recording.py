"""What recordings contain, as Markdown; fails if a recording lacks what its recorder should have recorded.

Arguments: device, file to write, recordings. A recording on a GPU needs kernels, all with their geometry, API calls,
and a collector that recorded; one on a CPU needs kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import scripts

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.cupti_names import GPU_COPIES
from curvescope.profiling.recording.store import Recording, open_recording

_HEAD = ("recording", "kernels", "with geometry", "with a layer", "API calls", "clock samples in visits", "lost")


def faults(recording: Recording, on_gpu: bool) -> Iterator[str]:
    kernels = recording.frame("kernels")
    if kernels.empty:
        yield "no kernel was recorded"
        return
    if not on_gpu:
        return
    on_device = kernels[kernels["device"].notna() & ~kernels["name"].str.startswith(GPU_COPIES)]
    if on_device.empty:
        yield "no kernel ran on a GPU"
    elif without := int(on_device[["grid_x", "block_x", "registers_per_thread"]].isna().any(axis=1).sum()):
        yield f"{without} of {len(on_device)} kernels have no geometry"
    if not recording.count_rows("api_calls"):
        yield "no API call was recorded"
    statuses = {str(one["cupti_status"]) for one in recording.meta.get("collectors", ()) if "cupti_status" in one}
    if recording.meta.get("recorder") == "cupti" and "recording" not in statuses:
        yield f"the collector did not record: {', '.join(statuses) or 'no process used CUDA'}"


def row(name: str, recording: Recording) -> tuple[str, ...]:
    kernels, steps, clocks = (recording.frame(table) for table in ("kernels", "steps", "clocks"))
    lost = ", ".join(f"{what} {entry['count']}" for what, entry in recording.meta["lost"].items())
    counts = (len(kernels), kernels["grid_x"].notna().sum(), kernels["layer"].notna().sum())
    inside = _samples_in_visits(clocks, steps)
    return (
        name,
        *map(str, counts),
        str(recording.count_rows("api_calls")),
        f"{inside} of {len(clocks)}",
        lost or "none",
    )


def _samples_in_visits(clocks: pd.DataFrame, steps: pd.DataFrame) -> int:
    """Number of clock samples between the first and the last step of a visit."""
    if clocks.empty or steps.empty:
        return 0
    ends = steps.assign(end_ns=steps["start_ns"] + steps["duration_ns"]).groupby(["batch", "round"], dropna=False)
    visits = ends.agg({"start_ns": "min", "end_ns": "max"})
    return sum(bool(((visits["start_ns"] <= time) & (time < visits["end_ns"])).any()) for time in clocks["start_ns"])


def main() -> int:
    device, target, *paths = sys.argv[1:]
    lines = [f"| {' | '.join(_HEAD)} |", f"| --- {'| ---: ' * 5}| --- |"]
    found = []
    for path in paths:
        try:
            recording = open_recording(Path(path))
        except CurvescopeError as error:
            found.append(f"{path}: there is no recording ({error})")
            continue
        lines.append(f"| {' | '.join(row(path, recording))} |")
        found += [f"{path}: {fault}" for fault in faults(recording, device != "cpu")]
    Path(target).write_text("\n".join([*lines, "", *(f"- **{fault}**" for fault in found)]) + "\n")
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    scripts.run(main)
