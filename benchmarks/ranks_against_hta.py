"""`curvescope ranks` against HolisticTraceAnalysis on the same traces of the PyTorch profiler, in turn, in one run.

    python3 -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    python benchmarks/ranks_against_hta.py --hta-python /tmp/hta/bin/python

The traces are of N ranks that repeat a real step (`generate_ranks.py`), one of them slow. Curvescope reads the traces,
imports them and looks for stragglers, balance, waiting and the slow rank's difference; HolisticTraceAnalysis does its
kernel breakdown, temporal breakdown, overlap of communication, and potential stragglers. Each run is a process of its
own; CPU time is of it and the processes it starts, memory is resident memory of all of them together, sampled every
0.2 s. Both must name the slow rank, and agree on how long kernels and collectives ran in all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import results
from generate_ranks import Plan, generate, real_step
from ranks import EXPLAIN, watch

HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
# Without that it leaves out the last step.
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
by_type, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6, duration_ratio=1.0)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
slow = analysis.get_potential_stragglers(num_candidates=1)
shared = kernels["name"].str.startswith("nccl")
total = [float(kernels.loc[rows, "sum (us)"].sum()) / 1e6 for rows in (~shared, shared)]
print(json.dumps({"slow": [int(rank) for rank in slow], "kernels_s": total[0], "collectives_s": total[1]}))
"""


def run(command: list[str]) -> tuple[dict[str, float], dict[str, object]]:
    """Wall time, CPU time and memory of a command, and the JSON that it printed last."""
    before = os.times()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=out, stderr=said)
        together, _, _ = watch(process, kill=False)
        after = os.times()
        for file in (out, said):
            file.seek(0)
        if process.returncode:
            raise SystemExit(said.read().decode()[-3000:])
        found = json.loads(out.read().decode().splitlines()[-1])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall_s": after.elapsed - before.elapsed, "cpu_s": cpu, "peak_mb": together / 1e6}, found


def told(document: dict[str, object]) -> dict[str, object]:
    """What the document of `curvescope ranks` says of the same."""
    per_step = document["ranks"] * document["steps"] / 1e3
    return {
        "slow": [one["rank"] for one in document["stragglers"]],
        "kernels_s": sum(one["mean_ms"] for one in document["imbalances"]) * per_step,
        "collectives_s": sum(one["duration_ms"] for one in document["waits"]) * per_step,
    }


def main() -> None:
    """Make the traces, run both in turn, print and leave the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta-python", required=True, help="Python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10, help="of each rank, 1,463 kernels each")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    kernels = args.steps * (len(real_step()) + 1)
    plan = Plan(args.ranks, kernels, args.steps, slow_rank=3, slow_layer="block3", factor=3.0)
    found: dict[str, list[dict[str, float]]] = {"curvescope": [], "HolisticTraceAnalysis": []}
    with tempfile.TemporaryDirectory() as folder:
        generate(plan, Path(folder), "traces")
        commands = {
            "curvescope": [sys.executable, "-c", EXPLAIN, "ranks", folder, "--json"],
            "HolisticTraceAnalysis": [args.hta_python, "-E", "-W", "ignore", "-c", HTA, folder],
        }
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(f"{args.ranks} traces of {kernels:,} kernels, {size / 1e6:.0f} MB compressed", flush=True)
        for pair in range(args.pairs):
            answers = {}
            for name in sorted(commands, reverse=pair % 2 == 1):
                facts, document = run(commands[name])
                found[name].append(facts)
                answers[name] = told(document) if name == "curvescope" else document
                shown = f"{facts['wall_s']:.1f} s wall, {facts['cpu_s']:.1f} s CPU, {facts['peak_mb']:.0f} MB"
                print(f"{name:<22} {shown}, load {os.getloadavg()[0]:.1f}; {answers[name]}", flush=True)
            check(*answers.values(), plan)
    print(f"Both named rank {plan.slow_rank}, and agree on the total of kernels and of collectives to a millionth.")
    rows = [_row(what, unit, key, *found.values(), args) for what, unit, key in WHAT]
    for row in rows:
        print(f"{row.what}: {row.ratio[0]:.2f} ({row.ratio[1]:.2f} … {row.ratio[2]:.2f}), n = {row.n}")
    results.write(results.Result("ranks_against_hta", "Many ranks against HolisticTraceAnalysis", rows, PEERS_BETTER))


WHAT = (("wall time", "s", "wall_s"), ("CPU time", "s", "cpu_s"), ("peak memory", "MB", "peak_mb"))
PEERS_BETTER = (
    "HolisticTraceAnalysis also has queue lengths, launch statistics, the critical path and plots, and hands out each "
    "trace as a pandas frame."
)


def _row(
    what: str,
    unit: str,
    key: str,
    ours: list[dict[str, float]],
    theirs: list[dict[str, float]],
    args: argparse.Namespace,
) -> results.Row:
    pair = [[facts[key] for facts in one] for one in (ours, theirs)]
    ratios = [their / our for our, their in zip(*pair, strict=True)]
    return results.Row.of(f"{what}, {args.ranks} traces", "HolisticTraceAnalysis 0.5.0", unit, *pair, ratios)


def check(one: dict[str, object], other: dict[str, object], plan: Plan) -> None:
    """The same answers."""
    assert one["slow"] == other["slow"] == [plan.slow_rank], (one, other)
    for key in ("kernels_s", "collectives_s"):
        assert abs(one[key] / other[key] - 1) < 1e-6, (one, other)


if __name__ == "__main__":
    main()
