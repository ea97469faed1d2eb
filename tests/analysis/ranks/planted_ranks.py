"""Ranks of a made-up job: steps of some layers, an all-reduce at the end that waits for the last
rank.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from curvescope.analysis.ranks.reduction import RankId, reduce_rank
from curvescope.profiling.recording.schema import TABLES
from curvescope.profiling.recording.store import RecordingWriter

from ..synthetic import work_of

COLUMNS = (
    "step",
    "start_ns",
    "duration_ns",
    "layer",
    "phase",
    "name",
    "collective",
    "communicator",
    "stream",
)
LAYERS = ("conv1", "conv2", "fc")
LAYER_NS = 1_000_000
ALL_REDUCE_NS = 500_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def rank_tables(ranks=8, steps=12, slow=lambda rank, step, layer: 1.0, noise=0.01, seed=0):
    """By rank, its `steps` table and its `kernels`: every step ends with an all-reduce that all
    leave together.
    """
    random = np.random.default_rng(seed)
    shape = (ranks, steps, len(LAYERS))
    work = np.empty(shape)
    for place in np.ndindex(shape):
        work[place] = (
            LAYER_NS
            * slow(place[0], place[1], LAYERS[place[2]])
            * (1 + noise * random.standard_normal())
        )
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
            step_rows.append(
                {"step": step, "start_ns": start, "duration_ns": int(end[step]), "profiled": True}
            )
            start += int(end[step]) + 100
        found[rank] = (pd.DataFrame(step_rows), kernels(rows))
    return found


def row(
    name, start_ns, duration_ns, step, layer=None, stream=7, communicator=None, phase="forward"
):
    placed = {"step": step, "start_ns": start_ns, "duration_ns": duration_ns, "stream": stream}
    return {"name": name, "layer": layer, "phase": phase, "communicator": communicator, **placed}


def kernels(rows):
    return pa.Table.from_pylist(
        rows, pa.schema([TABLES["kernels"].arrow.field(column) for column in COLUMNS])
    )


def reduce_planted(found, node=lambda rank: rank // 4):
    return {
        rank: reduce_rank(RankId(rank, node(rank), rank % 4), steps, work_of(table))
        for rank, (steps, table) in found.items()
    }


def slow_conv2(rank, step, layer):
    return 1.3 if (rank, layer) == (5, "conv2") else 1.0


def write_ranks(
    root, ranks, name="rank{}", slow=slow_conv2, change=lambda kernels: None, said=True, **meta
):
    """Recordings of the ranks, each in a folder of its own; `said`: each tells its number; returns
    their folder.
    """
    for rank, (steps, table) in rank_tables(ranks, 8, slow).items():
        place = {"rank": rank, "world_size": ranks, "local_rank": rank % 4, "node": rank // 4}
        work = table.to_pandas().astype({"name": object, "layer": object}).assign(source="cupti")
        change(work)
        with RecordingWriter(
            root / name.format(rank), {"distributed": place, **meta} if said else meta
        ) as writer:
            writer.write("kernels", work)
            count = [0] * len(steps)
            writer.write("steps", {**steps.to_dict("list"), "round": count, "index": count})
    return root
