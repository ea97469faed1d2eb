"""What recordings contain, a row each; fails if a recording lacks what its recorder should have
recorded.

Arguments: file of the rows, recordings. A recording needs kernels, all with their geometry, API
calls, and a collector that recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import scripts

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.cupti_names import GPU_COPIES
from curvescope.profiling.recording.store import Recording, open_recording


def faults(recording: Recording) -> Iterator[str]:
    kernels = recording.frame("kernels")
    if kernels.empty:
        yield "no kernel was recorded"
        return
    on_device = kernels[kernels["device"].notna() & ~kernels["name"].str.startswith(GPU_COPIES)]
    if on_device.empty:
        yield "no kernel ran on a GPU"
    elif without := int(
        on_device[["grid_x", "block_x", "registers_per_thread"]].isna().any(axis=1).sum()
    ):
        yield f"{without} of {len(on_device)} kernels have no geometry"
    if not recording.count_rows("api_calls"):
        yield "no API call was recorded"
    statuses = {
        str(one["cupti_status"])
        for one in recording.meta.get("collectors", ())
        if "cupti_status" in one
    }
    if recording.meta.get("recorder") == "cupti" and "recording" not in statuses:
        yield f"the collector did not record: {', '.join(statuses) or 'no process used CUDA'}"


def row(name: str, recording: Recording) -> dict[str, Any]:
    kernels, steps, clocks = (recording.frame(table) for table in ("kernels", "steps", "clocks"))
    lost = ", ".join(f"{what} {entry['count']}" for what, entry in recording.meta["lost"].items())
    return {
        "recording": name,
        "kernels": len(kernels),
        "with geometry": int(kernels["grid_x"].notna().sum()),
        "with a layer": int(kernels["layer"].notna().sum()),
        "API calls": recording.count_rows("api_calls"),
        "clock samples in visits": f"{_samples_in_visits(clocks, steps)} of {len(clocks)}",
        "lost": lost or "none",
    }


def _samples_in_visits(clocks: pd.DataFrame, steps: pd.DataFrame) -> int:
    """Number of clock samples between the first and the last step of a visit."""
    if clocks.empty or steps.empty:
        return 0
    ends = steps.assign(end_ns=steps["start_ns"] + steps["duration_ns"]).groupby(
        ["batch", "round"], dropna=False
    )
    visits = ends.agg({"start_ns": "min", "end_ns": "max"})
    return sum(
        bool(((visits["start_ns"] <= time) & (time < visits["end_ns"])).any())
        for time in clocks["start_ns"]
    )


def main() -> int:
    target, *paths = sys.argv[1:]
    bad = False
    for path in paths:
        try:
            recording = open_recording(Path(path))
        except CurvescopeError as error:
            found, said = {"recording": path}, [f"there is no recording ({error})"]
        else:
            found, said = row(path, recording), list(faults(recording))
        scripts.add_row(target, {**found, "faults": "; ".join(said) or "none"})
        bad |= bool(said)
        print(*(f"{path}: {one}" for one in said), sep="\n")
    return int(bad)


if __name__ == "__main__":
    scripts.run(main)
