"""The founding benchmark on this machine: networks in several frameworks, forward and with
backward, and the layers and kernels that make them differ.

Each cell is `curvescope compare --framework`, whose processes take turns, and becomes a line of
`results/frameworks.jsonl`. `print` prints the tables; docs/case-studies/frameworks.md shows a part
of them.

    python benchmarks/framework_table.py measure alexnet --batch 64 --mode forward
    python benchmarks/framework_table.py print

A cell whose steps take seconds needs several runs: those that `--runs FOLDER` kept are taken
together, as their processes are what counts.

Where JAX_COMPILATION_CACHE_DIR is set, `compile` fills that folder with JAX's function first, so
that the time to measure goes to steps; the result says how long that took.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from curvescope.analysis.change import Change
from curvescope.analysis.compare import compare
from curvescope.analysis.decompose.marked import step_times
from curvescope.analysis.side import ALIGNMENT_COLUMNS, Side, side
from curvescope.base.numbers import number
from curvescope.profiling.recording.store import TOGETHER, Recording, open_recording
from curvescope.profiling.workload.framework_step import FrameworkStep

RESULTS = Path(__file__).parent / "results" / "frameworks.jsonl"
FRAMEWORKS = "torch,jax,keras-tensorflow"
_NOTE = "note.json"  # of each run, beside its recordings
_LAYERS = 4  # of each pair
_SHARE = 0.05  # of the difference, below which a layer is not named


def main() -> None:
    """Measure a cell, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("compile", "measure", "pool", "print"))
    parser.add_argument("network", nargs="?")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--mode", default="forward+backward")
    parser.add_argument("--framework", default=FRAMEWORKS)
    parser.add_argument("--time-limit", type=int, default=150)
    parser.add_argument("--runs", type=Path, help="folder that keeps the runs of each cell")
    args = parser.parse_args()
    if args.what == "compile":
        compile_first(args)
        return
    if args.what in ("measure", "pool"):
        with TemporaryDirectory() as temporary:
            runs = args.runs or Path(temporary)
            if args.what == "measure":
                measure(args, _cell(args, runs))
            found = pooled(args, _cell(args, runs))
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found, indent=1))
        return
    rows = shown()
    print(*table(rows), "", *why(rows), sep="\n")


def compile_first(args: argparse.Namespace) -> None:
    """Have JAX compile a network into its folder; how long it took until a step had run is kept."""
    steps = FrameworkStep(args.network, "jax", args.mode)
    steps.load_libraries()
    began = time.monotonic()
    steps.try_step(args.batch)
    _compiled_note(args).write_text(str(round(time.monotonic() - began, 1)))


def _compiled_note(args: argparse.Namespace) -> Path:
    name = f"{args.network}-{args.mode}-{args.batch}.seconds"
    return Path(os.environ["JAX_COMPILATION_CACHE_DIR"], name)


def _cell(args: argparse.Namespace, runs: Path) -> Path:
    """The folder of the runs of one network in one mode, at one batch size and on as many cores."""
    cores = len(os.sched_getaffinity(0))
    return runs / f"{args.network}-{args.mode}-{args.batch}-{cores}"


def measure(args: argparse.Namespace, cell: Path) -> None:
    """Run all frameworks once more, into a new folder of the cell."""
    load, began = os.getloadavg()[0], time.time()
    cell.mkdir(parents=True, exist_ok=True)
    folder = cell / f"run-{len(list(cell.iterdir()))}"
    command = [sys.executable, "-m", "curvescope", "compare", "--framework", args.framework]
    command += [args.network, "--batch", str(args.batch), "--mode", args.mode]
    command += ["--time-limit", str(args.time_limit), "-o", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    note = {
        "cores": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": round(time.time() - began),
        "load": [load, *os.getloadavg()[:2]],
        "failed": ran.stderr.strip().splitlines()[-1] if ran.returncode else None,
    }
    folder.mkdir(exist_ok=True)
    (folder / _NOTE).write_text(json.dumps(note))


def pooled(args: argparse.Namespace, cell: Path) -> dict[str, Any]:
    """What the runs of a cell measured together; of those that failed, why."""
    notes = {path.parent: json.loads(path.read_text()) for path in sorted(cell.glob("*/" + _NOTE))}
    whole = [folder for folder, note in notes.items() if note["failed"] is None]
    told = [notes[folder] for folder in whole] or list(notes.values())
    found = {
        "network": args.network,
        "mode": args.mode,
        "batch": args.batch,
        "cores": told[0]["cores"],
        "date": told[-1]["date"],
        "seconds": sum(note["seconds"] for note in told),
        "runs": len(told),
        "load": [round(fmean(loads), 2) for loads in zip(*(n["load"] for n in told), strict=True)],
    }
    if "JAX_COMPILATION_CACHE_DIR" in os.environ and (note := _compiled_note(args)).is_file():
        found["compiled_before_s"] = float(note.read_text())
    if not whole:
        return {**found, "failed": told[-1]["failed"]}
    recordings = {
        name: [open_recording(folder / name) for folder in whole]
        for name in args.framework.split(",")
    }
    sides = {name: pooled_side(name, ones) for name, ones in recordings.items()}
    facts = {name: _facts(side, recordings[name]) for name, side in sides.items()}
    return {**found, "frameworks": facts, "pairs": list(_pairs(sides))}


def pooled_side(name: str, recordings: Sequence[Recording]) -> Side:
    """The processes of several runs of one framework, as if one run had made them."""
    steps, kernels, processes, first_step = [], [], 0, 0
    for recording in recordings:
        own = recording.frame("steps")
        times = step_times(recording, own, ALIGNMENT_COLUMNS, (), by_instance=True).table
        rounds = recording.meta[TOGETHER]["rounds_of_process"]
        process = own["round"] // rounds + processes
        steps.append(own.assign(round=process, step=own["step"] + first_step))
        kernels.append(times.assign(step=times["step"] + first_step))
        processes, first_step = int(process.max()) + 1, int(steps[-1]["step"].max()) + 1
    last = recordings[-1]
    together = {**last.meta[TOGETHER], "run": "pooled", "rounds_of_process": 1}
    meta = {**last.meta, TOGETHER: together}
    return side(name, meta, pd.concat(steps), pd.concat(kernels), last.statistic)


def _facts(side: Side, recordings: Sequence[Recording]) -> dict[str, Any]:
    """Median time, its quartiles, and conditions of one framework."""
    timed = side.steps[~side.steps["profiled"]]["duration_ns"] / 1e6
    meta = recordings[-1].meta
    return {
        "version": meta.get("frameworks") or {"torch": meta["versions"].get("torch")},
        "ms": round(float(timed.median()), 3),
        "quartiles_ms": [round(float(timed.quantile(share)), 3) for share in (0.25, 0.75)],
        "steps": len(timed),
        "processes": int(side.steps["round"].nunique()),
        "profiled_steps": int(side.steps["profiled"].sum()),
        "first_step_s": meta.get("setup_s"),
        "threads": meta.get("framework_threads") or {"torch": meta["device"].get("threads")},
    }


def _pairs(sides: Mapping[str, Side]) -> Iterator[dict[str, Any]]:
    """Each pair: how many times as long, and the layers that make most of it."""
    kernels = {name: _kernels(side.kernel_times) for name, side in sides.items()}
    for first, second in combinations(sides, 2):
        found = compare([sides[first], sides[second]])
        line = found.steps[0]
        change = line.changes[0]
        assert change is not None
        before, after = (float(ms or 0) for ms in line.times_ms)
        growth = [((b or 0) - (a or 0), row) for row in found.rows for a, b in [row.times_ms]]
        signed = [(ms if after > before else -ms, row) for ms, row in growth]
        signed.sort(key=lambda one: -one[0])
        yield {
            "pair": [first, second],
            "times": [round(1 / change.speedup, 4), *_ends(change)],
            "significant": change.real,
            "layers": [
                {
                    "layer": row.label,
                    "ms": [None if ms is None else round(ms, 3) for ms in row.times_ms],
                    "kernels": [kernels[name].get(_key(row.label)) for name in (first, second)],
                }
                for ms, row in signed[:_LAYERS]
                if ms > _SHARE * abs(after - before)
            ],
        }


def _ends(change: Change) -> list[float]:
    """The interval of how many times as long; empty if unknown."""
    known = math.isfinite(change.high) and change.low > 0
    return [round(1 / end, 4) for end in (change.high, change.low)] if known else []


def _key(label: str) -> str:
    """A row's label without the class of its layer, as `conv1 backward`."""
    layer, _, rest = label.partition(" (")
    shown = layer + rest.partition(")")[2] if rest else label
    return shown.removesuffix(" forward")


def _kernels(times: Any) -> dict[str, str]:
    """The kernel with most time, by layer and phase."""
    known = times[times["layer"].notna()]
    phase = known["phase"].fillna("").replace("forward", "")
    label = (known["layer"] + " " + phase).str.strip()
    by_kernel = known.groupby([label, "name"])["exclusive_ms"].sum()
    longest = by_kernel.groupby(level=0).idxmax()
    return {layer: str(name)[:60] for layer, (_, name) in longest.items()}


def shown() -> list[dict[str, Any]]:
    """The results, of each cell that of most runs, and of these with the least load."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    rows.sort(key=lambda one: (one.get("runs", 1), -one["load"][0]))
    cells = {tuple(one[key] for key in ("network", "mode", "batch", "cores")): one for one in rows}
    order = sorted(cells, key=lambda cell: (-cell[3], cell[1] != "forward+backward", cell[0]))
    return [cells[cell] for cell in order]


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line of the table for each cell."""
    return [_row(one) for one in rows]


def _row(one: Mapping[str, Any]) -> str:
    cells = [one["network"], one["mode"], str(one["batch"]), str(one["cores"])]
    if "failed" in one:
        return f"| {' | '.join(cells)} | {one['failed']} |"
    names = FRAMEWORKS.split(",")
    ratio = {tuple(pair["pair"]): pair for pair in one["pairs"]}
    for name in names:
        side = one["frameworks"][name]
        cell = number(side["ms"])
        if pair := ratio.get((names[0], name)):
            cell += f" ({_times(pair)})"
        cells.append(cell)
    processes = min(side["processes"] for side in one["frameworks"].values())
    cells += [str(processes), " to ".join(f"{load:.1f}" for load in one["load"][:2])]
    return f"| {' | '.join(cells)} |"


def _times(pair: Mapping[str, Any]) -> str:
    """How many times as long, with its interval where it is known."""
    times, *ends = pair["times"]
    within = f", {ends[0]:.2f} … {ends[1]:.2f}" if ends else ""
    return f"{times:.2f}×{within}{'' if pair['significant'] else ', open'}"


def why(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each pair of the cells with backward: the layers that make the difference."""
    return [
        f"| {one['network']} {one['batch']} | {' → '.join(pair['pair'])} "
        f"| {'; '.join(_layers(pair)) or 'no layer of both makes a twentieth of it'} |"
        for one in rows
        if one["mode"] == "forward+backward"
        for pair in one.get("pairs", ())
    ]


def _layers(pair: Mapping[str, Any]) -> list[str]:
    """The layers of a pair that both frameworks name, and what is idle."""
    named = [row for row in pair["layers"] if None not in row["ms"]]
    return [_layer(row) for row in named if not re.search("→|^others", row["layer"])]


def _layer(row: Mapping[str, Any]) -> str:
    times = " → ".join(map(number, row["ms"]))
    kernels = " → ".join(f"`{name}`" if name else "unknown" for name in row["kernels"])
    return f"{row['layer']} {times} ms" + (f" ({kernels})" if any(row["kernels"]) else "")


if __name__ == "__main__":
    main()
