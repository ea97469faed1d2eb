"""What an import says of each profile in a folder: steps and their origin, and explained shares of device time.

For every file one row: the steps, where they come from, their batch size, and the share of device time (kernels,
memcpys and memsets, exclusive of nothing: plain sums of durations) that lies in steps, and that has a layer, an
operator, FLOPs, and a known kernel family. Kernels without times do not count. The CPU time is that of all threads, the
least of several imports in one process: the first one also loads libraries.

    python benchmarks/profile_coverage.py FOLDER [--imports N] [--write FILE.json] [--against FILE.json] [--page]

`--write` keeps the rows, e.g. in benchmarks/results/profile_coverage.json; `--against` prints the shares of such a file
before those of today, as "before > now". `--page` writes docs/profile-coverage.md, against
benchmarks/results/profile_coverage_before.json unless another file is given: what version 04d8d3b said.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from evidence import beginning

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.kernel_names import UNKNOWN, family
from curvescope.profiling.readers import Options, import_profile
from curvescope.profiling.recording.store import open_recording

SHARES = ("in_steps", "layer", "op", "flops", "family")
PAGE = Path(__file__).parents[1] / "docs" / "profile-coverage.md"
BEFORE = Path(__file__).parent / "results" / "profile_coverage_before.json"
FURTHER = BEFORE.with_name("profile_coverage_further.json")
# Replays of graphs, and the traces of their captures: one more row, with the capture.
CAPTURES = {"tl_sglang_decode.json.gz": "tl_sglang_capture_bs32.json.gz"}
_CAPTURED = " with its capture"
_MOST_UNKNOWN = 0.05  # of the time of kernels: a family beyond it is missing

_ABOUT = """`python benchmarks/profile_coverage.py FOLDER --page` writes this page. The profiles are those of
`tests/data/profiles/README.md`, complete. A share is a sum of durations over that of all kernels, memcpys and memsets
(in steps) or all kernels (the others), in per cent; `a > b` is that of version 04d8d3b, then today's; `-` is unknown.
A profile without times, names of layers, shapes or operators can have none of what follows from them. CPU s is the CPU
time of an import, all threads, here the least of six in one process, in the second table of a single one.

"""

_FURTHER = """
## Profiles that were tried afterwards

These were not at hand while the readers were built: `tl_…` are of AMD-AGI/TraceLens @ 171dd747 (tests/), `nsysai_…` of
GindaChen/nsys-ai @ ab196ea (tests/fixtures/), `raja_…` of RajaATAli/SC23_Programming-Your-GPU-with-OpenMP_Tutorial. All
were read; what they showed was mended and has a test: blocks of a transformer taken for steps, all-reduces taken for
steps, and three families of kernels.

"""


def describe(file: Path, folder: Path, imports: int, capture: Path | None = None) -> dict[str, Any]:
    """One row of the table; a file that is refused has the first line of the reason instead of shares."""
    name = file.name if capture is None else file.name + _CAPTURED
    seconds = []
    for number in range(imports):
        began = time.process_time()
        try:
            done = import_profile(file, folder / str(number), Options(capture=capture))
        except CurvescopeError as error:
            return {"file": name, "refused": str(error).split(": ", 1)[-1][:90]}
        seconds.append(time.process_time() - began)
    recording = open_recording(done.path)
    kernels, memory, steps = (recording.frame(name) for name in ("kernels", "memory", "steps"))
    kernels = kernels[kernels["duration_ns"].notna()]
    memory = memory[memory["duration_ns"].notna()]
    total = int(kernels["duration_ns"].sum()) + int(memory["duration_ns"].sum())
    of_kernels = int(kernels["duration_ns"].sum())
    in_steps = sum(int(table.loc[table["step"].notna(), "duration_ns"].sum()) for table in (kernels, memory))
    known = {
        "layer": kernels["layer"].notna(),
        "op": kernels["op"].notna(),
        "flops": kernels["flops"].notna(),
        "family": kernels["name"].map(lambda name: family(str(name)) != UNKNOWN).astype(bool),
    }
    shares = {
        name: int(kernels.loc[mask, "duration_ns"].sum()) / of_kernels if of_kernels else None
        for name, mask in known.items()
    }
    return {
        "file": name,
        "format": done.format,
        "kernels": len(kernels),
        "steps": len(steps),
        "from": done.steps_from,
        "batches": sorted({int(batch) for batch in steps["batch"].dropna()}) if len(steps) else [],
        "in_steps": in_steps / total if total else None,
        **shares,
        "seconds": round(min(seconds), 3),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--imports", type=int, default=6, help="imports of each file, for the CPU time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="file for the rows")
    parser.add_argument("--against", type=Path, metavar="FILE", help="rows of an earlier run")
    parser.add_argument("--page", action="store_true", help="write the page of the documentation")
    args = parser.parse_args()
    against = args.against or (BEFORE if args.page else None)
    before = {row["file"]: row for row in json.loads(against.read_text())} if against else {}
    rows = []
    columns = " | ".join(f"{name.replace('_', ' '):>12}" for name in SHARES)
    print(f"{'file':44} | {'steps':>12} | {'from':38} | {'batch':>10} | {columns} | CPU s")
    for file in sorted(path for path in args.folder.iterdir() if path.suffix != ".md"):
        captures = [args.folder / CAPTURES[file.name]] if file.name in CAPTURES else []
        for capture in (None, *captures):
            with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
                row = describe(file, Path(folder), args.imports, capture)
            rows.append(row)
            if "refused" in row:
                print(f"{row['file']:44} | refused: {row['refused']}")
                continue
            name, steps, origin, batches, *shares, seconds = _cells(row, before.get(row["file"], {}))
            told = " | ".join(f"{share:>12}" for share in shares)
            print(f"{name:44} | {steps:>12} | {origin:38} | {batches:>10} | {told} | {seconds}", flush=True)
    if args.write:
        args.write.write_text(json.dumps(rows, indent=1) + "\n")
    if args.page:
        PAGE.write_text(_page(rows, before))
    return 0


def _cells(row: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """File, steps, their origin, batch sizes, the shares and the seconds."""
    had = bool(old) and "refused" not in old
    shares = [_change(_percent(old.get(name)), _percent(row[name]), had) for name in SHARES]
    steps = _change(str(old.get("steps", "")), str(row["steps"]), had)
    batches = ",".join(map(str, row["batches"][:4]))
    return [row["file"], steps, row["from"] or "", batches, *shares, f"{row['seconds']:.2f}"]


def _page(rows: list[dict[str, Any]], before: dict[str, dict[str, Any]]) -> str:
    files = [row for row in rows if not row["file"].endswith(_CAPTURED)]
    read = [row for row in files if "refused" not in row]
    timed = [row for row in read if row["in_steps"] is not None and row["family"] is not None]
    whole = sum(row["in_steps"] > 1 - _MOST_UNKNOWN for row in timed)
    traces = [row for row in timed if row["format"].startswith("PyTorch")]
    named = sum(row["family"] >= 1 - _MOST_UNKNOWN for row in traces)
    operators = sum(row["op"] >= 1 - _MOST_UNKNOWN for row in traces)
    text = beginning(
        "What imports say of real profiles",
        f"**{len(read)} of {len(files)}** profiles that other people recorded are read.",
        f"Steps hold at least 95 % of the device time in **{whole} of {len(timed)}** of those with kernels and times.",
        f"In **{named} of {len(traces)}** PyTorch traces at least 95 % of the time of kernels has a known family, in "
        f"{operators} an operator.",
    )
    text += _ABOUT
    further = json.loads(FURTHER.read_text())
    return text + _table(rows, before) + _FURTHER + _table(further, {})


def _table(rows: list[dict[str, Any]], before: dict[str, dict[str, Any]]) -> str:
    heading = ["profile", "steps", "from", "batch", "in steps", "layer", "operator", "FLOPs", "family", "CPU s"]
    lines = [heading, ["---"] * 4 + ["--:"] * 6]
    for row in rows:
        old = before.get(row["file"], {})
        lines.append([row["file"], "refused", row["refused"], *[""] * 7] if "refused" in row else _cells(row, old))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


def _change(before: str, now: str, has_before: bool) -> str:
    return f"{before} > {now}" if has_before and before != now else now


if __name__ == "__main__":
    raise SystemExit(main())
