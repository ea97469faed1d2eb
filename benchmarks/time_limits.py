"""What runs of `diagnose` take over what they promise.

A step multiplies matrices, so many at a batch size that it takes about 1 ms to 5 s at the largest.
Each run is one command with a time limit; what it promises is in its first line, and it takes from
that line, and from its start, to its end. `python -m benchmarks.time_limits STEP_MS:LIMIT_S …`
runs and keeps them, and prints the table of all kept runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.compiler import NOTHING, WHAT, beside
from benchmarks.evidence import markdown
from curvescope.base.arguments import total_s

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "results" / "time_limits.jsonl"
BATCHES = (1, 2, 4, 8, 16, 32)
_STEP_MS = "CURVESCOPE_BENCHMARK_STEP_MS"
_SIDE = 256
_PRODUCT_MS = 0.35  # of matrices of that side, about
_PROMISE = re.compile(r"at most [\d.]+ \w+ in all")
HEAD = ("step ms", "sizes", "beside", "promised s", "from the line s", "from the start s", "ratio")


def make_step(batch: int) -> Callable[[], object]:
    """Products of matrices: a fifth of them whatever the batch size, the rest in proportion."""
    import torch

    products = float(os.environ[_STEP_MS]) / _PRODUCT_MS
    count = max(1, round(products * (0.2 + 0.8 * batch / BATCHES[-1])))
    left, right = torch.randn(2, _SIDE, _SIDE)

    def step() -> None:
        for _ in range(count):
            torch.mm(left, right)

    return step


def run(step_ms: float, limit_s: int, what: str) -> dict[str, Any]:
    """One command, and what it promised and took."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(f"{folder}/out.json", "w+") as out,  # a pipe that nobody reads yet would hold it up
        beside(what),
    ):
        words = [
            *(sys.executable, "-m", "curvescope", "diagnose"),
            *("--step", f"{__spec__.name if __spec__ else __name__}:make_step"),
            *("--batch", ",".join(map(str, BATCHES)), "--time-limit", str(limit_s)),
            *("--json", "-o", f"{folder}/run"),
        ]
        began_s = time.monotonic()
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, _STEP_MS: str(step_ms), "COLUMNS": "500"},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        said, line_s = "", None
        for line in process.stderr:
            said += line
            if line_s is None and _PROMISE.search(" ".join(said.split())):
                line_s = time.monotonic()
        process.wait()
        ended_s = time.monotonic()
        out.seek(0)
        document = json.loads(out.read() or "{}")
    assert line_s is not None, said
    return {
        "step_ms": document["curve"][-1]["time_ms"]["value"],
        "sizes": len(document["curve"]),
        "limit_s": limit_s,
        "beside": what,
        "promised_s": total_s("cpu", limit_s),
        "from_line_s": round(ended_s - line_s, 1),
        "from_start_s": round(ended_s - began_s, 1),
        "experiments": len(document.get("experiments") or ()),
        "date": time.strftime("%Y-%m-%d"),
    }


def kept_runs() -> list[dict[str, Any]]:
    """The runs that are kept."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()]


def share_of_promise(run: dict[str, Any]) -> float:
    """What a run took from its first line on, over what it promised."""
    return float(run["from_line_s"] / run["promised_s"])


def rows(runs: list[dict[str, Any]]) -> list[list[str]]:
    """A row of the table for each run."""
    ordered = sorted(runs, key=lambda run: (WHAT.index(run["beside"]), run["step_ms"]))
    return [
        [
            f"{run['step_ms']:.3g}",
            str(run["sizes"]),
            run["beside"],
            f"{run['promised_s']:.0f}",
            f"{run['from_line_s']:.0f}",
            f"{run['from_start_s']:.0f}",
            f"{share_of_promise(run):.2f}",
        ]
        for run in ordered
    ]


def main() -> None:
    """Run what is asked for, and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="STEP_MS:LIMIT_S")
    parser.add_argument("--beside", choices=WHAT, default=NOTHING)
    parser.add_argument("--file", type=Path, default=KEPT, help="where the runs are kept")
    args = parser.parse_args()
    for wanted in args.runs:
        step_ms, _, limit_s = wanted.partition(":")
        found = run(float(step_ms), int(limit_s), args.beside)
        print(found, flush=True)
        with args.file.open("a") as file:
            file.write(json.dumps(found) + "\n")
    print(*markdown(HEAD, rows(kept_runs())), sep="\n")


if __name__ == "__main__":
    main()
