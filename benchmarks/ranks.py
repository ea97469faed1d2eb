"""`curvescope ranks` over a thousand ranks of a million kernels: time, memory, growth with ranks, a killed worker.

Build: `python benchmarks/ranks.py`, `--small` for a smaller one. Ranks are made by `generate_ranks.py` (not timed),
each with numbers of its own and in its own files, one of them slow, whose finding is checked. Each run is a process of
its own with all of it: start of the workers, reading from disk (the page cache is as it is), explaining the slow rank.
CPU time is of all its processes, workers included, and hardly depends on what else the machine does; the wall time
does, so the load stands beside it. Memory is resident memory, sampled every 0.2 s: of all processes together (what they
share is counted for each), and of the largest. n = 1 for each row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import psutil
from generate_ranks import Plan, generate, real_step

from curvescope.profiling.hardware.host import describe_host, describe_versions

# Which part of the ranks, with how many workers, and whether one is killed: growth, one worker, and equal answers.
RUNS = (
    (4, 2, False),
    (4, 2, True),
    (1, 2, False),
    (2, 2, False),
    (8, 2, False),
    (1, 1, False),
    (8, 1, False),
)

EXPLAIN = "import sys; from curvescope.cli import main; sys.exit(main(sys.argv[1:]))"


def measure(root: Path, ranks: int, workers: int, kill: bool = False) -> dict[str, object]:
    """One run over the first ranks; with `kill`, a worker is killed as soon as it has worked."""
    with tempfile.TemporaryDirectory() as folder:
        some = Path(folder) / "job"
        some.mkdir()
        for rank in range(ranks):
            (some / f"rank{rank}").symlink_to(root / f"rank{rank}")
        command = [sys.executable, "-c", EXPLAIN, "ranks", str(some), "--workers", str(workers), "--json"]
        out = Path(folder) / "out.json"
        before, load_before = os.times(), os.getloadavg()[0]
        with out.open("wb") as file:
            process = subprocess.Popen(command, stdout=file)
            together, largest, killed = watch(process, kill)
        after = os.times()
        if process.returncode != 0:
            raise SystemExit(f"{ranks} ranks with {workers} workers ended with exit code {process.returncode}")
        document = json.loads(out.read_text())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    row = {"ranks": ranks, "workers": workers, "kernels": document["kernels"], "wall_s": after.elapsed - before.elapsed}
    row |= {"cpu_s": cpu, "load_before": load_before, "load_after": os.getloadavg()[0]}
    return {**row, "killed": killed, "together_bytes": together, "largest_bytes": largest, "document": document}


def watch(process: subprocess.Popen[bytes], kill: bool) -> tuple[int, int, bool]:
    """Peaks of resident memory until it ends, of all its processes and of the largest, and whether one was killed."""
    together = largest = 0
    killed = False
    parent = psutil.Process(process.pid)
    while process.poll() is None:
        sizes = {}
        try:
            for one in (parent, *parent.children(recursive=True)):
                sizes[one] = one.memory_info().rss
        except psutil.Error:
            continue
        together, largest = max(together, sum(sizes.values())), max(largest, *sizes.values())
        if kill and not killed:
            killed = _kill_worker([one for one in sizes if one.pid != process.pid])
        time.sleep(0.02 if kill and not killed else 0.2)
    return together, largest, killed


def _kill_worker(children: list[psutil.Process]) -> bool:
    """Kill a worker in the middle of reading a recording."""
    for one in children:
        try:
            if any(file.path.endswith(".parquet") for file in one.open_files()):
                os.kill(one.pid, signal.SIGKILL)
                return True
        except (psutil.Error, ProcessLookupError):
            continue
    return False


def comparable(document: dict[str, object]) -> dict[str, object]:
    """What must not depend on how it was computed."""
    return {key: document[key] for key in ("ranks", "steps", "kernels", "stragglers", "imbalances", "waits")}


def main() -> None:
    """Make the ranks, measure, print a table and the projection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=1_000_000, help="of each rank, at least")
    parser.add_argument("--small", action="store_true", help="48 ranks of 40,000 kernels")
    parser.add_argument(
        "--folder", type=Path, help="where to make the ranks; they are kept, and used if they are there"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="write what was found there as JSON")
    args = parser.parse_args()
    ranks, kernels = (48, 40_000) if args.small else (args.ranks, args.kernels)
    # Steps as long as the real one, an all-reduce after it.
    steps = math.ceil(kernels / (len(real_step()) + 1))
    plan = Plan(ranks, kernels, steps, slow_rank=1, slow_layer="block3", factor=3.0)
    plan = replace(plan, kernels=steps * (len(real_step()) + 1))
    root = args.folder or Path(tempfile.mkdtemp(prefix="curvescope-ranks-"))
    try:
        if not (root / f"rank{ranks - 1}").is_dir():
            began = time.perf_counter()
            generate(plan, root)
            print(f"{ranks} ranks made in {time.perf_counter() - began:.0f} s")
        size = sum(path.stat().st_size for path in root.rglob("*.parquet"))
        print(f"{size / 1e9:.2f} GB of Parquet, {plan.kernels:,} kernels in {steps} steps for each rank", flush=True)
        print(
            f"{'ranks':>6} {'workers':>7} {'kernels':>13} {'CPU s':>8} {'per 10^6':>8} {'wall s':>8} {'load':>11} "
            f"{'MB all':>8} {'MB largest':>10}"
        )
        rows: list[dict[str, object]] = []
        for part, workers, kill in RUNS:
            row = measure(root, ranks // part, workers, kill)
            print(line(row), flush=True)
            check(row, rows, plan)
            rows.append(row)
            if args.save:  # after each, so that an interrupted run keeps what it has
                save(args.save, plan, size, rows)
        print(
            f"Every run named rank {plan.slow_rank} in {plan.slow_layer}, and no other; equal runs gave equal answers."
        )
        if not any(row["killed"] for row in rows):
            print("No worker was killed: the run was too short.")
        grown = [row for row in rows if row["workers"] == 2 and not row["killed"]]
        counts, times = (np.array([row[name] for row in grown]) for name in ("ranks", "cpu_s"))
        slope, start = np.polyfit(counts, times, 1)
        residual = max(abs(np.polyval([slope, start], counts) - times) / times)
        print(f"2 workers: CPU time {start:.1f} s + {slope:.3f} s for each rank (largest departure {residual:.1%})")
        print(f"Projected, not measured: 10,000 such ranks {(start + slope * 10_000) / 60:.1f} minutes of CPU time")
    finally:
        if args.folder is None:
            shutil.rmtree(root, ignore_errors=True)


def line(row: dict[str, object]) -> str:
    """A row of the table."""
    megabytes = [row[name] / 1e6 for name in ("together_bytes", "largest_bytes")]
    text = f"{row['ranks']:6} {row['workers']:7} {row['kernels']:13,} {row['cpu_s']:8.1f}"
    text += f" {row['cpu_s'] / row['kernels'] * 1e6:8.3f} {row['wall_s']:8.1f}"
    text += f" {row['load_before']:5.1f}-{row['load_after']:<5.1f} {megabytes[0]:8.0f} {megabytes[1]:10.0f}"
    return text + ("  a worker killed" if row["killed"] else "")


def save(path: Path, plan: Plan, size: int, rows: list[dict[str, object]]) -> None:
    """Keep the rows without what each of them found."""
    kept = [{key: value for key, value in row.items() if key != "document"} for row in rows]
    document = {"plan": asdict(plan), "parquet_bytes": size, "rows": kept}
    document |= {"host": describe_host(), "versions": describe_versions()}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def check(row: dict[str, object], before: list[dict[str, object]], plan: Plan) -> None:
    """It named the slow rank and its layer alone, and says the same as the runs before it over the same ranks."""
    named = [(one["rank"], one["terms"][0]["layer"]) for one in row["document"]["stragglers"]]
    assert named == [(plan.slow_rank, plan.slow_layer)], named
    assert not row["document"]["unreadable"]
    for other in before:
        if other["ranks"] == row["ranks"]:
            assert comparable(row["document"]) == comparable(other["document"]), f"{row['ranks']} ranks: two answers"


if __name__ == "__main__":
    main()
