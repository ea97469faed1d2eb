"""Converts reports in NVIDIA's own formats (.nsys-rep, .ncu-rep) with NVIDIA's tools, if they are
installed.

Reports of Nsight Compute are read by its Python module, where the extra `ncu` or the toolkit's
folder extras/python provides it (https://docs.nvidia.com/nsight-compute/PythonReportInterface/). It
runs in a process of its own: its copy of libnvperf_host would otherwise serve CUPTI, too, and a
damaged file may end it.
"""

from __future__ import annotations

import csv
import importlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...base.own_process import python_command
from ...base.programs import find_program
from . import metrics
from .ncu_csv import DEVICE_ATTRIBUTES

# The columns of `ncu --csv` that are read.
_COLUMNS = (
    "ID",
    "Process ID",
    "Kernel Name",
    "Grid Size",
    "Block Size",
    "CC",
    "Metric Name",
    "Metric Unit",
)
_CAPABILITY = "device__attribute_compute_capability_"


def convert_report(report: Path, folder: Path) -> Path | None:
    """Convert a report of Nsight Systems or Nsight Compute with an installed tool; None if no tool
    can.
    """
    exported = folder / "profile.sqlite"
    table = folder / "profile.csv"
    if (nsys := find_program("nsys")) is not None:
        command = [
            nsys,
            "export",
            "--type=sqlite",
            "--force-overwrite=true",
            f"--output={exported}",
            str(report),
        ]
        if read_output(command) is not None and exported.exists():
            return exported
    if (
        read_output(python_command(__name__, "write_table", report, table)) is not None
        and table.exists()
    ):
        return table
    ncu = find_program("ncu")
    if ncu and (printed := read_output([ncu, "--import", str(report), "--csv", "--page=raw"])):
        table.write_bytes(printed)
        return table
    return None


def write_table(report: str, table: str) -> None:
    """Write a report of Nsight Compute as long-form CSV, if it has kernels; raises anything where
    it cannot be read.
    """
    if rows := list(_rows(importlib.import_module("ncu_report").load_report(report))):
        with Path(table).open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[*_COLUMNS, "Metric Value"], *rows])


def _rows(report: Any) -> Iterator[list[Any]]:
    """A row per metric that fills a column, at least one per kernel; the first one has its device's
    attributes, too.
    """
    metric_names = metrics.known_names("ncu")
    number = 0
    for which in range(report.num_ranges()):
        of_range = report.range_by_idx(which)
        for index in range(of_range.num_actions()):
            action = of_range.action_by_idx(index)
            present = set(action.metric_names())
            about = [number, 0, action.name(), *_describe_launch(action, present)]
            for name in DEVICE_ATTRIBUTES if number == 0 else ():
                if name in present:
                    metric = action.metric_by_name(name)
                    value = metric.as_string() if name.endswith("_name") else metric.as_uint64()
                    yield [*about, name, metric.unit(), value]
            number += 1
            measured = sorted(metric_names & present)
            for name in measured:
                metric = action.metric_by_name(name)
                yield [*about, name, metric.unit(), repr(metric.as_double())]
            if not measured:
                yield [*about, "", "", ""]


def _describe_launch(action: Any, present: set[str]) -> tuple[str, str, str]:
    """Texts of the grid, the block and the compute capability; empty if unknown."""

    def integers(*names: str) -> list[str]:
        if not present.issuperset(names):
            return []
        return [str(int(action.metric_by_name(name).as_uint64())) for name in names]

    grid = ", ".join(integers(*(f"launch__grid_dim_{axis}" for axis in "xyz")))
    block = ", ".join(integers(*(f"launch__block_dim_{axis}" for axis in "xyz")))
    capability = ".".join(integers(f"{_CAPABILITY}major", f"{_CAPABILITY}minor"))
    return grid and f"({grid})", block and f"({block})", capability


def read_output(command: Sequence[str]) -> bytes | None:
    """Output of a command; None if it fails."""
    try:
        done = subprocess.run(list(command), capture_output=True, timeout=3600, check=False)  # noqa: S603 - NVIDIA's
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
