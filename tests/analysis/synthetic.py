"""Synthetic sweeps: steps and kernels with a known cost, for tests of what is found in them."""

import numpy as np
import pandas as pd
import pyarrow as pa

from curvescope.analysis.decompose.kernel_times import kernel_times
from curvescope.profiling.recording.schema import KERNELS

BATCHES = (1, 2, 4, 8, 16, 32)


def timed_steps(
    cost_ms, random, *, batches=BATCHES, rounds=8, per_round=3, noise=0.02, drift=0.03, spikes=0.05
):
    """The `steps` table of a sweep: lognormal noise, drift that a round shares, and now and then a
    step half as long again, as neighbours on a shared machine cause it.
    """
    rows = []
    for round_ in range(rounds):
        shared = 1 + drift * random.standard_normal()
        for batch in batches:
            for index in range(per_round):
                factor = shared * np.exp(noise * random.standard_normal())
                if random.random() < spikes:
                    factor *= 1.5
                rows.append((batch, round_, index, round(cost_ms(batch) * factor * 1e6)))
    frame = pd.DataFrame(rows, columns=["batch", "round", "index", "duration_ns"])
    return frame.assign(
        step=range(len(frame)), mode="training", start_ns=0, profiled=False, process=pd.NA
    )


def profiled_step(step, batch, round_, kernels, idle_ms=1.0):
    """A profiled step whose kernels, each (layer, phase, name, ms[, further columns]), run one
    after the other; where the name is None nothing
    runs for that time.
    """
    start = position = step * 10**12
    rows = []
    unknown = {"op": "aten::mm", "source": "torch", "flops": pd.NA, "bytes_compulsory": pd.NA}
    for layer, phase, name, time_ms, *further in kernels:
        if name is None:
            position += round(time_ms * 1e6)
            continue
        place = {"step": step, "start_ns": position, "duration_ns": round(time_ms * 1e6)}
        rows.append(
            {
                "name": name,
                "phase": phase,
                "layer": layer,
                **place,
                **unknown,
                **(further or [{}])[0],
            }
        )
        position += place["duration_ns"]
    window = {
        "start_ns": start,
        "duration_ns": position - start + round(idle_ms * 1e6),
        "process": pd.NA,
    }
    key = {
        "step": step,
        "batch": batch,
        "round": round_,
        "index": 99,
        "mode": "training",
        "profiled": True,
    }
    return {**key, **window}, rows


def sweep(cost_ms, layers, random, **options):
    """Steps of `cost_ms(batch)` and kernels of `layers(batch)`, as `profiled_step` takes them, of a
    whole sweep.
    """
    steps = timed_steps(cost_ms, random, **options)
    rows, kernels = [], []
    for round_ in range(5):
        for batch in options.get("batches", BATCHES):
            row, launched = profiled_step(len(steps) + len(rows), batch, round_, layers(batch))
            rows.append(row)
            kernels += launched
    return pd.concat([steps, pd.DataFrame(rows)], ignore_index=True), pd.DataFrame(kernels)


def work_of(*kernels):
    """Device work as analysis reads it: these frames or Arrow tables, piece by piece; missing
    columns are empty.
    """

    def pieces(columns):
        schema = pa.schema([KERNELS.arrow.field(column).with_nullable(True) for column in columns])
        for piece in kernels:
            if isinstance(piece, pa.Table):
                known = {
                    column: piece[column] for column in columns if column in piece.column_names
                }
                yield pa.table(
                    [known.get(f.name, pa.nulls(piece.num_rows, f.type)) for f in schema], columns
                )
            else:
                yield pa.Table.from_pandas(
                    piece.reindex(columns=list(columns)), schema, preserve_index=False
                )

    return pieces


def times_of(steps, kernels, *, place_idle=False):
    """Exclusive times of these kernels."""
    return kernel_times(work_of(kernels), steps, place_idle=place_idle)
