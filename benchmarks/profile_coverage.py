"""What an import says of each profile in a folder: steps and their origin, and explained shares of device time.

For every file one row: the steps, where they come from, their batch size, and the share of device time (kernels,
memcpys and memsets, exclusive of nothing: plain sums of durations) that lies in steps, and that has a layer, an
operator, FLOPs, and a known kernel family. Kernels without times do not count. CPU seconds are those of the import.

    python benchmarks/profile_coverage.py FOLDER [--write FILE.json] [--against FILE.json]

`--write` keeps the rows, e.g. in benchmarks/results/profile_coverage.json; `--against` prints the shares of such a file
before those of today, as "before > now".
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from curvescope.profiling.attribution.kernel_names import UNKNOWN, family
from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

SHARES = ("in_steps", "layer", "op", "flops", "family")


def describe(file: Path, folder: Path) -> dict[str, Any]:
    """One row of the table; a file that is refused has the first line of the reason instead of shares."""
    began = time.process_time()
    try:
        done = import_profile(file, folder)
    except CurvescopeError as error:
        return {"file": file.name, "refused": str(error).split(": ", 1)[-1][:90]}
    seconds = time.process_time() - began
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
        "file": file.name,
        "format": done.format,
        "kernels": len(kernels),
        "steps": len(steps),
        "from": done.steps_from,
        "batches": sorted({int(batch) for batch in steps["batch"].dropna()}) if len(steps) else [],
        "in_steps": in_steps / total if total else None,
        **shares,
        "seconds": round(seconds, 2),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE", help="file for the rows")
    parser.add_argument("--against", type=Path, metavar="FILE", help="rows of an earlier run")
    args = parser.parse_args()
    before = {row["file"]: row for row in json.loads(args.against.read_text())} if args.against else {}
    rows = []
    columns = " | ".join(f"{name.replace('_', ' '):>12}" for name in SHARES)
    print(f"{'file':44} | {'steps':>12} | {'from':38} | {'batch':>10} | {columns} | CPU s")
    for file in sorted(path for path in args.folder.iterdir() if path.suffix != ".md"):
        with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
            row = describe(file, Path(folder) / "recording")
        rows.append(row)
        old = before.get(row["file"], {})
        if "refused" in row:
            print(f"{row['file']:44} | refused: {row['refused']}")
            continue
        shares = " | ".join(
            f"{_change(_percent(old.get(name)), _percent(row[name]), bool(old)):>12}" for name in SHARES
        )
        steps = _change(str(old.get("steps", "")), str(row["steps"]), bool(old))
        batches = ",".join(map(str, row["batches"][:4]))
        print(
            f"{row['file']:44} | {steps:>12} | {row['from'] or '':38} | {batches:>10} | {shares} | {row['seconds']:.2f}"
        )
    if args.write:
        args.write.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


def _change(before: str, now: str, has_before: bool) -> str:
    return f"{before} > {now}" if has_before and before != now else now


if __name__ == "__main__":
    raise SystemExit(main())
