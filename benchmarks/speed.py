"""Runs the benchmarks of speed one after the other: `make bench`.

What a script prints is kept in benchmarks/results.json with the machine it ran on, after each: what
is done when it is interrupted stays, and `--missing` runs the rest. `--only NAME` replaces one
benchmark and leaves the others; `--print` runs nothing and prints what is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from curvescope.profiling.hardware.host import describe_host, describe_versions

HERE = Path(__file__).parent
KEPT = HERE / "results.json"


@dataclass(frozen=True)
class Benchmark:
    """One script."""

    name: str  # for `--only`
    title: str
    script: str
    quiet_s: int  # about how long it takes on two quiet cores
    peers_better: str = ""  # what peers do better


BENCHMARKS = (
    Benchmark(
        "collector",
        "The collector against a JSON writer and cupti-python",
        "collector.py",
        90,
        "cupti-python reads any activity and metric of CUPTI with few lines of Python; ours reads "
        "what steps need.",
    ),
    Benchmark("analyse", "Analysing a recording of a million kernels", "analyse_million.py", 60),
)


def run(benchmark: Benchmark) -> dict[str, Any]:
    began = time.monotonic()
    printed = []
    command = [sys.executable, "-u", str(HERE / benchmark.script)]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:  # shown as it comes
            print(f"  {line}", end="", flush=True)
            printed.append(line)
    return {
        "printed": "".join(printed).strip(),
        "exit_code": process.returncode,
        "took_s": round(time.monotonic() - began, 1),
        "at_utc": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "host": describe_host(),
        "versions": describe_versions(),
    }


def describe_benchmark(benchmark: Benchmark, found: dict[str, Any] | None) -> list[str]:
    """Lines on what a benchmark printed, and where."""
    if found is None:
        return [f"## {benchmark.title}", "", "Not measured yet.", ""]
    host = found["host"]
    lines = [
        f"## {benchmark.title}",
        "",
        f"`python benchmarks/{benchmark.script}`, {found['took_s']:.0f} s, {found['at_utc'][:10]}, "
        f"{host['usable_cores']} cores of {host['cpu']}, load {host['load_average_1min']} at the "
        "end.",
        "",
    ]
    if found["exit_code"]:
        lines += [f"It failed with exit code {found['exit_code']}; its output follows.", ""]
    lines += [found["printed"], ""]
    if benchmark.peers_better:
        lines += [f"What peers do better: {benchmark.peers_better}", ""]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=[b.name for b in BENCHMARKS], help="run these"
    )
    parser.add_argument(
        "--missing", action="store_true", help="run what was not run yet, or failed"
    )
    parser.add_argument("--print", action="store_true", help="run nothing, print what is kept")
    args = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wanted = [
        benchmark
        for benchmark in BENCHMARKS
        if not args.print
        and (not args.only or benchmark.name in args.only)
        and not (args.missing and kept.get(benchmark.name, {"exit_code": 1})["exit_code"] == 0)
    ]
    failed = []
    for number, benchmark in enumerate(wanted, 1):
        left_s = sum(one.quiet_s for one in wanted[number - 1 :])
        print(
            f"== {number} of {len(wanted)}: {benchmark.title} (about {left_s / 60:.0f} min left)",
            flush=True,
        )
        try:
            found = run(benchmark)
        except KeyboardInterrupt:
            print(
                f"Interrupted; {number - 1} are kept. The others: "
                "`python benchmarks/speed.py --missing`."
            )
            return 130
        if found["exit_code"]:
            failed.append(benchmark.name)
        kept[benchmark.name] = found
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    if args.print:
        for benchmark in BENCHMARKS:
            print(*describe_benchmark(benchmark, kept.get(benchmark.name)), sep="\n")
    if failed:
        print(f"Failed: {', '.join(failed)}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
