"""What `curvescope record` costs a torch program on the CPU: time per training step with its windows and without.

Two networks, one of many small operators and one of few large ones, in processes of their own, turn by turn. The mean
holds the cuts, at which a window is written; the median step lies inside one.

    python benchmarks/torch_windows.py [--rounds 3] [--steps 40]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_NETWORKS = ("small operators", "large operators")


def train(network: str, steps: int) -> list[float]:
    """Seconds of each step, in this process."""
    import torch
    from torch import nn

    if network == "small operators":
        layers = [part for _ in range(20) for part in (nn.Linear(64, 64), nn.ReLU())]
        net, x = nn.Sequential(*layers), torch.randn(8, 64)
    else:
        layers = [part for _ in range(4) for part in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())]
        net, x = nn.Sequential(*layers), torch.randn(8, 64, 56, 56)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    seconds = []
    for _ in range(steps + 5):
        began = time.perf_counter()
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    return seconds[5:]


def run(network: str, steps: int, recorded: bool) -> tuple[np.ndarray, int, int]:
    """Step times in milliseconds of a process of its own, and how many operators were recorded in how many bytes."""
    from curvescope.profiling.collect.inject import FOLDER_VARIABLE, STARTUP

    with tempfile.TemporaryDirectory() as folder:
        more = {"PYTHONPATH": str(STARTUP), FOLDER_VARIABLE: folder} if recorded else {}
        command = [sys.executable, __file__, "--only", network, "--steps", str(steps)]
        seconds = json.loads(subprocess.check_output(command, env={**os.environ, **more}, text=True))
        windows = list(Path(folder).glob("*.window.json"))
        operators = sum(len(json.loads(window.read_bytes())["events"]) for window in windows)
        return np.array(seconds) * 1e3, operators, sum(window.stat().st_size for window in windows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(train(args.only, args.steps)))
        return
    for network in _NETWORKS:
        bare, watched, operators, size = [], [], 0, 0
        for _ in range(args.rounds):
            bare.append(run(network, args.steps, False)[0])
            times, count, written = run(network, args.steps, True)
            watched.append(times)
            operators, size = operators + count, size + written
        per_step = operators / args.rounds / (args.steps + 5)
        print(f"{network}: {per_step:.0f} operators a step, {size / operators:.0f} bytes each")
        for name, statistic in (("median", np.median), ("mean", np.mean)):
            without, with_it = (float(np.median([statistic(t) for t in runs])) for runs in (bare, watched))
            more = (with_it - without) * 1e3 / per_step
            print(f"  {name:<6} {without:8.2f} ms a step, recorded {with_it:8.2f} ms: {more:.1f} us an operator")


if __name__ == "__main__":
    main()
