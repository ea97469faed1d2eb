"""Reports that only NVIDIA's own tools can read (.nsys-rep, .ncu-rep), exported by them where they are on PATH.

Reports of Nsight Compute are read through its Python module where that can be imported (`ncu_report`, in its folder
extras/python, https://docs.nvidia.com/nsight-compute/PythonReportInterface/): no program needs to run then.
"""

from __future__ import annotations

import csv
import importlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import metrics

# Columns of `ncu --csv`, as far as they are read from it.
_COLUMNS = ("ID", "Process ID", "Kernel Name", "Grid Size", "Block Size", "CC", "Metric Name", "Metric Unit")
_CAPABILITY = "device__attribute_compute_capability_"


def convert_report(report: Path, folder: Path) -> Path | None:
    """A report of Nsight Systems or Nsight Compute as something readable, by the tool that is here; null by none.

    Args:
        report: the file; whether it is one, only the tools can tell.
        folder: where to write.
    """
    exported, table = folder / "profile.sqlite", folder / "profile.csv"
    if (nsys := shutil.which("nsys")) is not None:
        command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={exported}", str(report)]
        if printed_by(command) is not None and exported.exists():
            return exported
    if _write_table(report, table):
        return table
    if (ncu := shutil.which("ncu")) is not None:
        printed = printed_by([ncu, "--import", str(report), "--csv", "--page=raw"])
        if printed:
            table.write_bytes(printed)
            return table
    return None


def _write_table(report: Path, table: Path) -> bool:
    """Write a report of Nsight Compute as its long CSV; false where its module is not here or cannot read the file."""
    try:
        opened = importlib.import_module("ncu_report").load_report(str(report))
        rows = list(_rows(opened))
    except Exception:  # a stranger's code: whatever it raises, the next tool is asked
        return False
    with table.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[*_COLUMNS, "Metric Value"], *rows])
    return bool(rows)


def _rows(report: Any) -> Iterator[list[Any]]:
    """One row per metric that fills a column, and one of no metric for a kernel without any."""
    known = metrics.known_names("ncu")
    number = 0
    for which in range(report.num_ranges()):
        of_range = report.range_by_idx(which)
        for place in range(of_range.num_actions()):
            action = of_range.action_by_idx(place)
            there = set(action.metric_names())

            def whole(*names: str, action: Any = action, there: set[str] = there) -> list[int]:
                return [int(action.metric_by_name(n).as_uint64()) for n in names] if there.issuperset(names) else []

            sizes = [whole(*(f"launch__{what}_dim_{axis}" for axis in "xyz")) for what in ("grid", "block")]
            capability = ".".join(map(str, whole(f"{_CAPABILITY}major", f"{_CAPABILITY}minor")))
            texts = [f"({', '.join(map(str, size))})" if size else "" for size in sizes]
            about = [number, 0, action.name(), *texts, capability]
            number += 1
            for name in sorted(known & there) or [""]:
                metric = action.metric_by_name(name) if name else None
                yield [*about, name, *((metric.unit(), repr(metric.as_double())) if metric is not None else ("", ""))]


def printed_by(command: Sequence[str]) -> bytes | None:
    """What a command prints; null where it fails."""
    try:
        done = subprocess.run(list(command), capture_output=True, timeout=3600, check=False)  # noqa: S603 - NVIDIA's
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
