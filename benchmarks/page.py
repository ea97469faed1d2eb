"""Runs the benchmarks one after the other and writes docs/benchmarks.md from what they found:
`make bench`.

What a script prints is kept in benchmarks/results.json with the machine it ran on, and the page is
written after each: what is done when it is interrupted stays, and `--missing` runs the rest.
`--page-only` writes the page anew, `--only NAME` replaces one benchmark and leaves the others.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from evidence import beginning

from curvescope.profiling.hardware.host import describe_host, describe_versions

HERE = Path(__file__).parent
KEPT = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"


# Benchmark, pattern of a figure in what it prints, sentence.
FIGURES = (
    ("stream", r"best over best ([\d.]+)",
     "The memory bandwidth that Curvescope measures is {} of STREAM's, best over best."),
    ("gemm", r"best over best ([\d.]+)",
     "A matrix product takes {} times as long as in a bare loop, best over best."),
    ("sample", r"the timer, a sample .*median ([\d.]+ \S+)",
     "The timer takes {} for each sample of a microbenchmark."),
)  # fmt: skip


@dataclass(frozen=True)
class Benchmark:
    """One script."""

    name: str  # for `--only`
    title: str
    script: str
    quiet_s: int  # about how long it takes on two quiet cores
    peers_better: str = ""  # what peers do better


BENCHMARKS = (
    Benchmark("startup", "Start of the command line", "startup.py", 10),
    Benchmark("annotate", "Cost of annotating layers", "annotate_cost.py", 30),
    Benchmark("instruments", "What instruments cost a step", "instrument_cost.py", 120),
    Benchmark("sample", "Cost of a sample in a microbenchmark", "sample_overhead.py", 20),
    Benchmark("gemm", "A matrix product in isolation", "bare_gemm.py", 60),
    Benchmark("stream", "Memory bandwidth against STREAM", "stream.py", 60),
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


def page(kept: dict[str, Any]) -> str:
    """The page as Markdown; what was never run is named."""
    lines = [
        beginning("Benchmarks", *(_figure(kept, *one) for one in FIGURES))
        + "`make bench` writes this page. Each comparison measures both tools alternately in one "
        "run and gives the "
        "ratio with its minimum and maximum; above 1 the peer takes more. Single times hold for "
        "this machine only.",
    ]
    for benchmark in BENCHMARKS:
        lines += ["", f"## {benchmark.title}", ""]
        found = kept.get(benchmark.name)
        if found is None:
            lines.append("Not measured yet.")
            continue
        host = found["host"]
        lines.append(
            f"`python benchmarks/{benchmark.script}`, {found['took_s']:.0f} s, "
            f"{found['at_utc'][:10]}, {host['usable_cores']} cores of {host['cpu']}, load "
            f"{host['load_average_1min']} at the end."
        )
        if found["exit_code"]:
            lines += ["", f"**It failed** with exit code {found['exit_code']}; its output follows."]
        if found["printed"]:
            lines += ["", "```text", found["printed"].replace("```", "'''"), "```"]
        if benchmark.peers_better:
            lines += ["", f"What peers do better: {benchmark.peers_better}"]
    return "\n".join(lines) + "\n"


def _figure(kept: dict[str, Any], name: str, pattern: str, sentence: str) -> str:
    found = re.search(pattern, kept.get(name, {}).get("printed", ""))
    return sentence.format(f"**{found[1] if found else 'not measured yet'}**")


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
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    args = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wanted = [
        benchmark
        for benchmark in BENCHMARKS
        if not args.page_only
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
                "`python benchmarks/page.py --missing`."
            )
            return 130
        if found["exit_code"]:
            failed.append(benchmark.name)
        kept[benchmark.name] = found
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        PAGE.write_text(page(kept))
    PAGE.write_text(page(kept))
    if failed:
        print(f"Failed: {', '.join(failed)}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
