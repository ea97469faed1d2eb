"""Recordings of planted sweeps, written to disk, for the commands that read them."""

import pandas as pd

from curvescope.profiling.recording.schema import TABLES
from curvescope.profiling.recording.store import RecordingWriter

from ..analysis.causes.planted_causes import planted

META = {
    "recording_type": "sweep",
    "network": "planted",
    "mode": "training",
    "device": {"name": "GeForce GTX 1080", "kind": "cuda"},
    "protocol": {"name": "default", "statistic": "median"},
}


def write_planted(
    path,
    cause="algorithm switch",
    seed=1,
    change=lambda steps, kernels: None,
    keep=lambda steps: steps,
    **meta,
):
    """A recording of a planted sweep.

    Args:
        change: edits the steps and kernels before they are written.
        keep: gives the steps that are written.
    """
    steps, kernels, recorded = planted(cause, seed)
    change(steps, kernels)
    steps = keep(steps)
    with RecordingWriter(path, {**META, "batches": [4, 8, 16], **meta}) as writer:
        for name, frame in (
            ("steps", steps),
            ("kernels", kernels),
            ("api_calls", recorded.api_calls),
            ("clocks", recorded.clocks),
        ):
            if frame is not None:
                writer.write(name, rows_of_table(name, frame))
    return path


def rows_of_table(table, frame):
    """The columns of a table in a frame, for a `RecordingWriter`."""
    known = [c.name for c in TABLES[table].columns if c.name in frame]
    rows = frame[known].astype(object).where(pd.notna(frame[known]), None)
    if table == "api_calls":
        rows = rows.assign(source="cupti")
    return rows.to_dict("list")
