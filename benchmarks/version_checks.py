"""How often `compare --measure --fail-over 3%` fails without a reason, and finds a growth: simulated runs.

Every run is simulated in the order in which it is measured, on a machine with noise of `interval_coverage.SHAPES`, and
judged as the command judges it, look by look. Run: `python benchmarks/version_checks.py --write`, some forty minutes.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.progress import track

try:
    from .evidence import write_section
    from .interval_coverage import PAGE, SHAPES, WAITS, waits_ns
except ImportError:  # run as a script
    from evidence import write_section
    from interval_coverage import PAGE, SHAPES, WAITS, waits_ns
from curvescope.analysis.compare import compare, decided
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.analysis.side import side
from curvescope.profiling.measure.versions import LEAST_PROCESSES, MOST_PROCESSES, ROUNDS_OF_PROCESS
from curvescope.profiling.recording.store import TOGETHER

HEADING = "## Versions measured together"
NAMES = ("base", "head")
OVER = 0.03
GROWTHS = (0.0, 0.05)
STEPS = 4  # of a visit
STEP_NS = 20_000_000
RUNS = 200

Effects = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
# Logarithms of the factors of processes, by name.
PROCESSES: dict[str, Effects] = {
    "2 %": lambda random, shape: 0.02 * random.standard_normal(shape),
    "4 %": lambda random, shape: 0.04 * random.standard_normal(shape),
    "one in five 20 % slower": lambda random, shape: (
        0.01 * random.standard_normal(shape) + np.where(random.random(shape) < 0.2, np.log(1.2), 0.0)
    ),
    "8 %": lambda random, shape: 0.08 * random.standard_normal(shape),
}
MACHINES = ("even", "spikes", "slow visits", "warming", "wandering", "persistent", WAITS)
CASES = [(machine, "2 %") for machine in MACHINES] + [("even", processes) for processes in list(PROCESSES)[1:]]

HEAD = """{heading}

`python benchmarks/version_checks.py --write` writes this section. `compare --measure base=… head=… --fail-over 3%` is simulated {runs} times for each kind of
machine (noise as above) and each spread of equal processes, with nothing changed and with a step that takes 5 % longer; seeds are 0 to {last}. Steps take 20 ms,
{steps} in a visit. The aim: at most 2 of 100 runs fail with nothing changed, and 95 of 100 find the 5 %. *Open*: runs that end with {most} processes
of each version, and say that they do not rule out a growth of 3 %; they pass.

| machine | equal processes differ by | failed, nothing changed | found, 5 % longer | open, nothing changed | open, 5 % longer | processes of each version |
|---|---|--:|--:|--:|--:|--:|
"""


@dataclass(frozen=True)
class Ended:
    """The end of one run: whether it failed, whether it says that it does not know, and processes of each version."""

    failed: bool
    is_open: bool
    processes: int


def run(machine: str, processes: str, growth: float, seed: int) -> Ended:
    random = np.random.default_rng(seed)
    of_process = np.exp(PROCESSES[processes](random, (MOST_PROCESSES, len(NAMES))))
    rounds = MOST_PROCESSES * ROUNDS_OF_PROCESS
    factors = iter(SHAPES[machine](random, rounds * len(NAMES), STEPS))
    rows = []
    for round_ in range(rounds):
        process = round_ // ROUNDS_OF_PROCESS
        for which in random.permutation(len(NAMES)):
            due_ns = STEP_NS * of_process[process, which] * (1 + growth * which)
            for index, factor in enumerate(next(factors)):
                rows.append((NAMES[which], round_, len(rows) * STEP_NS, round(due_ns * factor), due_ns, index))
    columns = ["factor", "round", "start_ns", "duration_ns", "due_ns", "index"]
    steps = pd.DataFrame(rows, columns=columns).assign(batch=1, profiled=False)
    if machine == WAITS:
        steps["run_queue_wait_ns"] = waits_ns(steps["duration_ns"], steps["due_ns"])
    for made in range(LEAST_PROCESSES, MOST_PROCESSES + 1):
        so_far = steps[steps["round"] < made * ROUNDS_OF_PROCESS]
        if decided(so_far, NAMES, OVER, ROUNDS_OF_PROCESS):
            break
    meta = {TOGETHER: {"run": "", "rounds_of_process": ROUNDS_OF_PROCESS}}
    of_names = [so_far[so_far["factor"] == name].drop(columns="factor") for name in NAMES]
    comparison = compare(
        [side(name, meta, one, statistic=FASTER_HALF) for name, one in zip(NAMES, of_names, strict=True)]
    )
    return Ended(bool(comparison.regressions(OVER)), bool(comparison.undecided(OVER)), made)


def _row(case: tuple[str, str], runs: int, pool: ProcessPoolExecutor) -> str:
    ends = [
        list(pool.map(run, *zip(*((*case, growth, seed) for seed in range(runs)), strict=True))) for growth in GROWTHS
    ]
    shares = [f"{sum(one.failed for one in of_growth) / runs:.1%}" for of_growth in ends]
    shares += [f"{sum(one.is_open for one in of_growth) / runs:.1%}" for of_growth in ends]
    needed = " / ".join(f"{np.mean([one.processes for one in of_growth]):.0f}" for of_growth in ends)
    return f"| {case[0]} | {case[1]} | {' | '.join(shares)} | {needed} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="of each kind (default %(default)s)")
    parser.add_argument("--write", action="store_true", help="write the section into docs/statistics.md")
    args = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = [_row(case, args.runs, pool) for case in track(CASES, "simulating")]
    head = HEAD.format(heading=HEADING, runs=args.runs, last=args.runs - 1, steps=STEPS, most=MOST_PROCESSES)
    text = head + "\n".join(rows) + "\n"
    if args.write:
        write_section(PAGE, HEADING, text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
