"""Recordings of many ranks, made of the kernels of a real step: a trace of ResNet-50 on a V100 (pytorch/kineto).

Every rank repeats that step's kernels, each duration with 1 % noise of its own, and ends each step with an all-reduce
that all ranks leave together. The trace names no layers: fifty kernels in a row stand for one, `block0`, `block1`, …
Planted: one rank has one block slower. The same can be written as traces of the PyTorch profiler, for peers.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import RecordingWriter, open_recording

TRACE = Path(__file__).parents[1] / "tests" / "data" / "profiles" / "kineto_resnet50_w0_a.pt.trace.json.gz"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, ncclDevKernelArgsStorage<4096ul>*)"
# As NCCL spelled it up to 2.18: the only one that HolisticTraceAnalysis 0.5.0 looks for stragglers in.
ALL_REDUCE_IN_TRACES = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
ALL_REDUCE_NS, GAP_NS, NOISE = 5_000_000, 2_000, 0.01
RANKS_PER_NODE = 8
_BLOCK = 50


@dataclass(frozen=True)
class Plan:
    """What to make: `slow_rank` takes `factor` times as long in `slow_layer`."""

    ranks: int
    kernels: int  # per rank, at most
    steps: int
    slow_rank: int
    slow_layer: str
    factor: float


def real_step() -> pd.DataFrame:
    """Names, phases and durations of the kernels of one real step, by start."""
    with tempfile.TemporaryDirectory() as folder:
        recording = open_recording(import_profile(TRACE, Path(folder) / "real").path)
        kernels = recording.frame("kernels")
        steps = recording.frame("steps")
        step = int(steps["step"].iloc[len(steps) // 2])
        rows = kernels[kernels["step"] == step].sort_values("start_ns")
        rows = rows[["name", "phase", "duration_ns"]].reset_index(drop=True).astype({"duration_ns": np.int64})
    return rows.assign(layer=[f"block{i // _BLOCK}" for i in range(len(rows))])


def _durations(plan: Plan, rank: int, step: pd.DataFrame, copies: int) -> np.ndarray:
    """Durations of a rank's kernels, shape (steps, kernels per step)."""
    random = np.random.default_rng(rank)
    real = np.tile(step["duration_ns"].to_numpy(np.float64), copies)
    times = real * (1 + NOISE * random.standard_normal((plan.steps, len(real)), dtype=np.float32))
    if rank == plan.slow_rank:
        times[:, np.tile((step["layer"] == plan.slow_layer).to_numpy(), copies)] *= plan.factor
    return np.maximum(times, 1).astype(np.int64)


def timeline(plan: Plan, rank: int, step: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Starts and durations, shape (steps, kernels), the all-reduce last; starts of the steps; their wall time."""
    copies = max(1, plan.kernels // plan.steps // (len(step) + 1))
    real_ns = int(step["duration_ns"].sum()) * copies
    slow_ns = int(step.loc[step["layer"] == plan.slow_layer, "duration_ns"].sum() * copies * (plan.factor - 1))
    busy = _durations(plan, rank, step, copies)
    # Room for the slow rank and the noise: all ranks' steps are as long as that.
    wall = int(1.02 * real_ns) + slow_ns + GAP_NS * (busy.shape[1] + 1) + ALL_REDUCE_NS
    begin = np.arange(plan.steps, dtype=np.int64) * (wall + 1_000_000)
    starts = begin[:, None] + np.cumsum(busy + GAP_NS, axis=1) - busy
    last = starts[:, -1] + busy[:, -1] + GAP_NS
    starts = np.column_stack([starts, last])
    return starts, np.column_stack([busy, begin + wall - last]), begin, wall


def write_rank(plan: Plan, rank: int, step: pd.DataFrame, root: Path) -> None:
    """One recording."""
    starts, durations, begin, wall = timeline(plan, rank, step)
    count, each = durations.shape
    copies = each // len(step)
    tail = pd.DataFrame([{"name": ALL_REDUCE, "phase": "backward", "layer": None}])
    rows = pd.concat([*[step[["name", "phase", "layer"]]] * copies, tail], ignore_index=True)
    stream = np.full(each, 7, np.int64)
    stream[-1] = 20
    place = {
        "rank": rank,
        "world_size": plan.ranks,
        "local_rank": rank % RANKS_PER_NODE,
        "node": rank // RANKS_PER_NODE,
    }
    text = {}
    for name in ("name", "phase", "layer"):
        code, distinct = pd.factorize(rows[name])
        indices = pa.array(np.tile(code.astype(np.int32), count), mask=np.tile(code < 0, count))
        text[name] = pa.DictionaryArray.from_arrays(indices, pa.array(list(distinct), pa.string()))
    numbers = np.arange(count)
    with RecordingWriter(
        root / f"rank{rank}", {"distributed": place, "network": "resnet50", "synthetic": True}
    ) as writer:
        writer.write(
            "kernels",
            pa.table(
                {
                    **text,
                    "start_ns": starts.ravel(),
                    "duration_ns": durations.ravel(),
                    "stream": np.tile(stream, count),
                    "step": np.repeat(numbers, each),
                    "source": pa.DictionaryArray.from_arrays(
                        pa.array(np.zeros(count * each, np.int32)), pa.array(["cupti"])
                    ),
                }
            ),
        )
        zero = np.zeros(count, np.int32)
        timed = {"start_ns": begin, "duration_ns": np.full(count, wall), "profiled": np.ones(count, bool)}
        writer.write("steps", pa.table({"step": numbers, "round": zero, "index": numbers, **timed}))


def write_trace(plan: Plan, rank: int, step: pd.DataFrame, root: Path) -> None:
    """The same as a trace of the PyTorch profiler, with the launches and operators that its readers join by.

    Times are whole microseconds: HolisticTraceAnalysis keeps no more of them.
    """
    starts, durations, begin, wall = timeline(plan, rank, step)
    ends, starts, begin, wall = ((t // 1000) * 1000 for t in (starts + durations, starts, begin, wall))
    durations = ends - starts
    names = [*step["name"].tolist() * (durations.shape[1] // len(step)), ALL_REDUCE_IN_TRACES]
    events: list[dict[str, object]] = []
    correlation = 0
    for number in range(len(begin)):
        at = begin[number] / 1e3
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": wall / 1e3, "tid": 1}
        events.append({"ph": "X", "pid": 1, **mark})
        for place, name in enumerate(names):
            correlation += 1
            stream = 20 if name == ALL_REDUCE_IN_TRACES else 7
            launch = {"ph": "X", "pid": 1, "tid": 1, "ts": at + place * 1.5, "dur": 1.0}
            events.append({**launch, "cat": "cpu_op", "name": "aten::op", "args": {"External id": correlation}})
            linked = {"External id": correlation, "correlation": correlation}
            events.append({**launch, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": linked})
            args = {**linked, "device": 0, "context": 1, "stream": stream, "grid": [1, 1, 1], "block": [128, 1, 1]}
            timed = {"ts": starts[number, place] / 1e3, "dur": durations[number, place] / 1e3}
            events.append({"ph": "X", "pid": 0, "tid": stream, "cat": "kernel", "name": name, **timed, "args": args})
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Tesla V100", "numSms": 80}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": plan.ranks},
        "traceEvents": events,
    }
    with gzip.open(root / f"rank-{rank}.json.gz", "wt", compresslevel=1) as file:
        json.dump(document, file)


def _write(arguments: tuple[str, Plan, int, pd.DataFrame, Path]) -> None:
    what, plan, rank, step, root = arguments
    (write_rank if what == "recordings" else write_trace)(plan, rank, step, root)


def generate(plan: Plan, root: Path, what: str = "recordings") -> None:
    """All ranks, as `recordings` or `traces`, by two processes."""
    root.mkdir(parents=True, exist_ok=True)
    step = real_step()
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(_write, ((what, plan, rank, step, root) for rank in range(plan.ranks))))
