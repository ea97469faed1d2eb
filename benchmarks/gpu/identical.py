"""Pairs of processes that differ in nothing: how much do their times differ, and how often would
the steps of two processes alone call them different?

Arguments: network, device, batch sizes with commas between them, pairs, file of the rows, which is
written anew after every pair.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scripts

from curvescope.analysis.decompose.statistics import block_estimate, mean_error
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

_STEPS, _DISCARDED = 20, 5
Times = dict[str, list[float]]  # milliseconds of steps, by batch size


def sample(network: str, device: str, batches: Sequence[int]) -> Times:
    """Time steps of each batch size in this process."""
    workload, times = Workload(get_network(network), device), {}
    for batch in batches:
        workload.load(batch)
        taken = [workload.time_step()[1] / 1e6 for _ in range(_DISCARDED + _STEPS)]
        times[str(batch)] = taken[_DISCARDED:]
    return times


def run_sample(words: Sequence[str]) -> Times:
    command = [sys.executable, __file__, "--sample", *words]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def differs(pair: Sequence[Sequence[float]]) -> bool:
    """Whether the steps of two processes are said to differ, had each step been a sample."""
    logs = [np.log(times) for times in pair]
    error = math.hypot(*map(mean_error, logs))
    freedom = sum(map(len, logs)) - 2.0
    found = block_estimate(float(logs[1].mean() - logs[0].mean()), error, freedom, 1.0)
    return not found.low <= 0 <= found.high


def row(batch: str, pairs: Sequence[Sequence[Times]]) -> dict[str, Any]:
    """What the pairs say of a batch size."""
    times = [[process[batch] for process in pair] for pair in pairs]
    medians = [[statistics.median(one) for one in pair] for pair in times]
    logs = np.log([second / first for first, second in medians])
    ratio = None
    if len(logs) > 1:
        found = block_estimate(float(logs.mean()), mean_error(logs), len(logs) - 1.0, 1.0)
        ratio = f"{math.exp(found.low):.4f} to {math.exp(found.high):.4f}"
    return {
        "batch": batch,
        "pairs": len(pairs),
        "step_ms": statistics.median(ms for pair in medians for ms in pair),
        "second over first": math.exp(float(logs.mean())),
        "interval over processes": ratio,
        "widest pair": math.exp(float(abs(logs).max())),
        "pairs whose steps differ": sum(map(differs, times)),
    }


def main() -> int:
    if sys.argv[1] == "--sample":
        network, device, batches = sys.argv[2:]
        print(json.dumps(sample(network, device, list(map(int, batches.split(","))))))
        return 0
    *words, count, path = sys.argv[1:]
    pairs: list[list[Times]] = []
    for _ in range(int(count)):
        pairs.append([run_sample(words) for _ in range(2)])
        Path(path).unlink(missing_ok=True)
        for batch in words[-1].split(","):
            scripts.add_row(path, row(batch, pairs))
    return 0


if __name__ == "__main__":
    scripts.run(main)
