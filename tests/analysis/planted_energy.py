"""Sweeps whose energy is planted: a power and a time of a step by batch size."""

import numpy as np

from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ..curvescope.recordings import META, rows_of_table
from .synthetic import timed_steps

COUNTER = {
    "name": "a planted counter",
    "scope": "the planted GPU",
    "least_s": 0.2,
    "averaged": False,
}


def write_energy(
    path, power_w, *, noise=0.002, cost_ms=lambda batch: 5.0 + 10.0 * batch, source=COUNTER
):
    """A sweep whose steps take `cost_ms` and whose device takes `power_w`, both functions of the
    batch size.
    """
    random = np.random.default_rng(3)
    steps = timed_steps(cost_ms, random, noise=noise, drift=noise, spikes=0, batches=(4, 8, 16))
    if power_w is not None:
        times = zip(steps["batch"], steps["duration_ns"], strict=True)
        steps = steps.assign(
            energy_uj=[round(power_w(batch) * duration_ns / 1e3) for batch, duration_ns in times]
        )
    meta = {**META, "batches": [4, 8, 16], "energy": source, "locked_sm_clock_hz": None}
    with RecordingWriter(path, meta) as writer:
        writer.write("steps", rows_of_table("steps", steps))
    return open_recording(path)
