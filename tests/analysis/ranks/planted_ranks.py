"""Ranks of a made-up job: steps of some layers, an all-reduce at the end that waits for the last rank."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from curvescope.analysis.ranks.reduction import RankId, reduce_rank
from curvescope.profiling.recording.schema import TABLES

from ..synthetic import work_of

COLUMNS = ("step", "start_ns", "duration_ns", "layer", "phase", "name", "collective", "communicator", "stream")
LAYERS = ("conv1", "conv2", "fc")
LAYER_NS = 1_000_000
ALL_REDUCE_NS = 500_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def rank_tables(ranks=8, steps=12, slow=lambda rank, step, layer: 1.0, noise=0.01, seed=0):
    """By rank, its `steps` table and its `kernels`: every step ends with an all-reduce that all leave together."""
    random = np.random.default_rng(seed)
    shape = (ranks, steps, len(LAYERS))
    work = np.empty(shape)
    for place in np.ndindex(shape):
        work[place] = LAYER_NS * slow(place[0], place[1], LAYERS[place[2]]) * (1 + noise * random.standard_normal())
    work = np.rint(work).astype(np.int64)
    arrival = work.sum(axis=2)
    end = arrival.max(axis=0) + ALL_REDUCE_NS
    found = {}
    for rank in range(ranks):
        rows, step_rows, start = [], [], 1_000
        for step in range(steps):
            at = start
            for place, layer in enumerate(LAYERS):
                duration = int(work[rank, step, place])
                rows.append(row(f"{layer}_kernel", at, duration, step, layer, 7))
                at += duration
            rows.append(row(ALL_REDUCE, at, start + int(end[step]) - at, step, None, 20))
            step_rows.append({"step": step, "start_ns": start, "duration_ns": int(end[step]), "profiled": True})
            start += int(end[step]) + 100
        found[rank] = (pd.DataFrame(step_rows), kernels(rows))
    return found


def row(name, start_ns, duration_ns, step, layer=None, stream=7, communicator=None, phase="forward"):
    placed = {"step": step, "start_ns": start_ns, "duration_ns": duration_ns, "stream": stream}
    return {"name": name, "layer": layer, "phase": phase, "communicator": communicator, **placed}


def kernels(rows):
    return pa.Table.from_pylist(rows, pa.schema([TABLES["kernels"].arrow.field(column) for column in COLUMNS]))


def reduce_planted(found, node=lambda rank: rank // 4):
    return {
        rank: reduce_rank(RankId(rank, node(rank), rank % 4), steps, work_of(table))
        for rank, (steps, table) in found.items()
    }
