"""Runs the benchmarks one after the other and writes docs/benchmarks.md from what they found: `make bench`.

Every script prints; one that leaves documents (`results.py`) gets a table of ratios besides. What was run is kept in
benchmarks/results.json with the machine it ran on: `--page-only` writes the page anew, `--only NAME` replaces one
benchmark and leaves the others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from results import FOLDER_VARIABLE

from curvescope.profiling.host import describe_host, describe_versions

HERE = Path(__file__).parent
KEPT = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Benchmark:
    """One script with its arguments, and what peers do better as far as the script does not say it itself."""

    name: str
    title: str
    command: tuple[str, ...]
    peers_better: str = ""


BENCHMARKS = (
    Benchmark("startup", "Start of the command line", ("startup.py",)),
    Benchmark("annotate", "Cost of annotating layers", ("annotate_cost.py",)),
    Benchmark("published", "The detector on published times", ("published_pairs.py",)),
    Benchmark("causes", "Causes found where they were planted", ("causes_matrix.py",)),
    Benchmark("cubins", "Compiling the CUDA kernels", ("compile_cubins.py",)),
    Benchmark("sample", "Cost of a microbenchmark's sample", ("sample_overhead.py",)),
    Benchmark("gemm", "A product alone", ("bare_gemm.py",)),
    Benchmark("stream", "Memory bandwidth against STREAM", ("stream.py",)),
    Benchmark(
        "collector",
        "The collector against a JSON writer and cupti-python",
        ("collector.py",),
        "cupti-python takes any activity and metric of CUPTI with a few lines of Python; ours takes what a step needs.",
    ),
    Benchmark("analyse", "Analysing a recording of a million kernels", ("analyse_million.py",)),
    Benchmark(
        "read",
        "Reading a profile against sqlite3 with pandas, and HolisticTraceAnalysis",
        ("read_profiles.py", "nsys", "--kernels", "1000000"),
        "sqlite3 answers any question in SQL with no import; HolisticTraceAnalysis looks at many ranks together.",
    ),
    Benchmark("method", "The microbenchmark's method against its peers", ("method_against.py",)),
)


def run(benchmark: Benchmark) -> dict[str, Any]:
    """Run one script: what it printed, its documents, how long it took, and on what."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="curvescope-bench-") as folder:
        done = subprocess.run(
            [sys.executable, str(HERE / benchmark.command[0]), *benchmark.command[1:]],
            cwd=HERE.parent,
            env={**os.environ, FOLDER_VARIABLE: folder},
            stdout=subprocess.PIPE,
            text=True,
        )
        documents = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return {
        "printed": done.stdout.strip(),
        "exit_code": done.returncode,
        "documents": documents,
        "took_s": round(time.monotonic() - began, 1),
        "at_utc": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "host": describe_host(),
        "versions": describe_versions(),
    }


def page(kept: dict[str, Any]) -> str:
    """The page as Markdown; what was never run is named."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. What is compared was measured in one run, in turn, and is given as a ratio with its "
        "least and most; above 1 the peer takes more. Times by themselves are this machine's.",
    ]
    for benchmark in BENCHMARKS:
        lines += ["", f"## {benchmark.title}", ""]
        found = kept.get(benchmark.name)
        if found is None:
            lines.append("Not measured yet.")
            continue
        host = found["host"]
        lines.append(
            f"`python benchmarks/{' '.join(benchmark.command)}`, {found['took_s']:.0f} s, {found['at_utc'][:10]}, "
            f"{host['usable_cores']} cores of {host['cpu']}, load {host['load_average_1min']} when it ended."
        )
        if found["exit_code"]:
            lines += ["", f"**It failed** with exit code {found['exit_code']}; what it printed before is below."]
        better = [benchmark.peers_better]
        for document in found["documents"]:
            lines += ["", *_table(document["rows"])]
            better.append(document["peers_better"])
        if found["printed"]:
            lines += ["", "```text", found["printed"].replace("```", "'''"), "```"]
        if any(better):
            lines += ["", f"What peers do better: {' '.join(filter(None, better))}"]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| what | peer | ours | theirs | ratio | least … most | n |", "|---|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        ours, theirs = ("" if v is None else f"{v:.4g} {row['unit']}" for v in (row["ours"], row["theirs"]))
        ratio, spread = "", ""
        if row["ratio"] is not None:
            middle, least, most = row["ratio"]
            ratio, spread = f"{middle:.2f}", f"{least:.2f} … {most:.2f}"
        lines.append(f"| {row['what']} | {row['peer']} | {ours} | {theirs} | {ratio} | {spread} | {row['n']} |")
    return lines


def main() -> int:
    """Run what is asked for and write the page; exit code 1 where a script failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[b.name for b in BENCHMARKS], help="run these")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    args = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    failed = 0
    for benchmark in BENCHMARKS:
        if args.page_only or (args.only and benchmark.name not in args.only):
            continue
        print(f"== {benchmark.title}", flush=True)
        kept[benchmark.name] = run(benchmark)
        print(kept[benchmark.name]["printed"], flush=True)
        failed += kept[benchmark.name]["exit_code"] != 0
        # After each, so that an interrupted run keeps what it has.
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(kept))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
