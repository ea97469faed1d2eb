"""Reading large profiles, beside what people use: sqlite3 with pandas, and HolisticTraceAnalysis.

Each side runs in a process of its own; wall time, CPU time and peak memory are its own. The totals of kernels must be
those of pandas to the nanosecond, the device's time that of HolisticTraceAnalysis (package of that name; it wants a
venv: give its Python).

    python benchmarks/read_profiles.py nsys --kernels 10000000
    python benchmarks/read_profiles.py pytorch --repeat 12 --hta-python /tmp/hta/bin/python
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from generate_nsys import generate

RESNET = Path(__file__).parents[1] / "tests" / "data" / "profiles" / "kineto_resnet50_w0_a.pt.trace.json.gz"
_HERE = "a number of its own in each copy"

# Every program prints one JSON object; `parts` are the times of its own parts.
# ru_maxrss begins with what the process that started it held: the peak is read from where it does not.
MEASURE = """
import json, resource, sys, time
def tell(**facts):
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
    print(json.dumps({**facts, "cpu_s": used.ru_utime + used.ru_stime, "peak_gb": int(peak) * 1024 / 1e9}))
path, target = sys.argv[1:]
began = time.perf_counter()
"""
CURVESCOPE = """
from pathlib import Path
from curvescope.analysis.decompose.breakdown import break_down
from curvescope.analysis.decompose.kernel_times import device_work
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording
done = import_profile(Path(path), Path(target))
imported = time.perf_counter()
recording = open_recording(target)
breakdown = break_down(recording.frame("steps"), device_work(recording), "layer")
ended = time.perf_counter()
total = recording.sql.sql("SELECT sum(duration_ns), count(*) FROM kernels").fetchall()[0]
moved = recording.frame("memory")
moved_ns = int(moved["duration_ns"].sum()) if len(moved) else 0
tell(wall_s=ended - began, import_s=imported - began, breakdown_s=ended - imported, kernel_ns=int(total[0]),
     kernels=int(total[1]), device_ns=int(total[0]) + moved_ns, rows=len(breakdown.rows))
"""
PANDAS = """
import sqlite3
import numpy as np, pandas as pd
database = sqlite3.connect(path)
kernels = pd.read_sql("SELECT start, end, correlationId, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL", database)
calls = pd.read_sql("SELECT start AS called, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME", database)
ranges = pd.read_sql("SELECT n.start, n.end, globalTid, value FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId "
                     "WHERE value LIKE 'layer:%'", database)
joined = kernels.merge(calls, on="correlationId").sort_values("called")
joined = pd.merge_asof(joined, ranges.sort_values("start").rename(columns={"start": "opened", "end": "closed"}),
                       left_on="called", right_on="opened", by="globalTid")
joined.loc[joined["called"] >= joined["closed"], "value"] = None
joined["duration"] = joined["end"] - joined["start"]
by_layer = joined.groupby("value", dropna=False)["duration"].agg(["sum", "count"])
wall_s = time.perf_counter() - began
tell(wall_s=wall_s, kernel_ns=int(joined["duration"].sum()), kernels=len(joined), rows=len(by_layer))
"""
HTA = """
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
# Without that it leaves out the last step.
analysis = TraceAnalysis(trace_files={0: path}, trace_dir=str(Path(path).parent), include_last_profiler_step=True)
_, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6, duration_ratio=1.0)
analysis.get_temporal_breakdown(visualize=False)
ended = time.perf_counter()
tell(wall_s=ended - began, device_ns=round(float(kernels["sum (us)"].sum()) * 1000), rows=len(kernels))
"""


def run(python: str, program: str, *arguments: Path) -> dict[str, float]:
    """What the program tells of itself, in a process of its own."""
    done = subprocess.run(
        [python, "-c", MEASURE + program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    facts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return facts


def show(name: str, facts: dict[str, float], count: float, what: str) -> None:
    """One line."""
    parts = "".join(
        f", {key.removesuffix('_s')} {facts[key]:.1f} s" for key in ("import_s", "breakdown_s") if key in facts
    )
    print(
        f"{name:<22} {facts['wall_s']:6.1f} s wall{parts}; {facts['cpu_s']:.1f} s CPU; {facts['peak_gb']:.2f} GB peak; "
        f"{count / facts['wall_s'] / 1e6:.2f} million {what}/s, {count / facts['cpu_s'] / 1e6:.2f} per CPU second",
        flush=True,
    )


def compare_nsys(kernels: int, folder: Path, peer: bool) -> None:
    """Import and break down by layer, beside the same join in pandas."""
    path = folder / "large.sqlite"
    began = time.perf_counter()
    generate(kernels, path)
    print(f"{kernels} kernels, {path.stat().st_size / 1e9:.2f} GB, generated in {time.perf_counter() - began:.0f} s")
    ours = run(sys.executable, CURVESCOPE, path, folder / "recording")
    show("curvescope", ours, kernels, "kernels")
    if peer:
        theirs = run(sys.executable, PANDAS, path, folder)
        show("sqlite3 and pandas", theirs, kernels, "kernels")
        assert (ours["kernel_ns"], ours["kernels"]) == (theirs["kernel_ns"], theirs["kernels"]), (ours, theirs)
        print("The same kernels and the same total time.")


def write_copies(repeat: int, path: Path) -> int:
    """Write the shared ResNet-50 trace so many times one after the other, as one; returns its number of events."""
    document = json.loads(gzip.decompress(RESNET.read_bytes()))
    events = document.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X"]
    span = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed) + 1000
    most = max(e["args"]["correlation"] for e in timed if "correlation" in e.get("args", {})) + 1
    # What lies between the numbers that change is made into text once.
    numbers, moves = [], []
    for event in events:
        for holder, key, move in ((event, "ts", span), (event.get("args", {}), "correlation", most)):
            if key in holder:
                numbers.append(holder[key])
                moves.append(move)
                holder[key] = _HERE
    between = json.dumps(events)[1:-1].split(f'"{_HERE}"')
    with path.open("w") as file:
        file.write(json.dumps(document)[:-1] + ', "traceEvents": [')
        for copy in range(repeat):
            texts = [*(np.array(numbers) + copy * np.array(moves)).astype(str).tolist(), ""]
            pairs = zip(between, texts, strict=True)
            file.write((",\n" if copy else "") + "".join(itertools.chain.from_iterable(pairs)))
        file.write("]}")
    return repeat * len(events)


def compare_pytorch(repeat: int, folder: Path, hta_python: str | None) -> None:
    """Import and break down by layer, beside the kernel and temporal breakdowns of HolisticTraceAnalysis."""
    path = folder / "trace.json"
    count = write_copies(repeat, path)
    print(f"{count} events, {path.stat().st_size / 1e6:.0f} MB")
    ours = run(sys.executable, CURVESCOPE, path, folder / "recording")
    show("curvescope", ours, count, "events")
    if hta_python is not None:
        theirs = run(hta_python, HTA, path, folder)
        show("HolisticTraceAnalysis", theirs, count, "events")
        assert ours["device_ns"] == theirs["device_ns"], (ours, theirs)
        print("The same total time on the device.")


def main() -> None:
    """Run one comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("nsys", "pytorch"))
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=2, help="copies of the shared ResNet-50 trace")
    parser.add_argument("--hta-python")
    parser.add_argument("--alone", action="store_true", help="without the peer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.what == "nsys":
            compare_nsys(args.kernels, Path(folder), not args.alone)
        else:
            compare_pytorch(args.repeat, Path(folder), args.hta_python)


if __name__ == "__main__":
    main()
