"""Imports a table of measured times, e.g. from a paper or benchmark suite, as a recording without
kernels.

The columns of the CSV: `problem`, `batch`, and one of `time_ns`, `time_us`, `time_ms`, `time_s`;
optional: `device`, `n` (steps that the time is the mean or median of) and `spread` (standard
deviation of one step divided by its time). Rows with the same problem, device and batch are
repeats. Others are refused, so that no ignored column looks as if read.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ..recording.remote_store import AnyPath
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter, new_recording_path
from . import ImportDocument
from .values import LATEST_NS, MOST_I32

NAME = "table of times"
_NS_PER = {"time_ns": 1.0, "time_us": 1e3, "time_ms": 1e6, "time_s": 1e9}
_COLUMNS = ("problem", "device", "batch", *_NS_PER, "n", "spread")


def import_table(
    source: Path, target: AnyPath | None = None, noise: float | None = None
) -> ImportDocument:
    """Convert a CSV of times in UTF-8 to a recording, by default in a dated folder under `runs`.

    Noise is the standard error of a time as a fraction of it, for times with neither repeats nor a
    published spread; default: estimated from the table when it is explained. Refusals name the
    line.
    """
    try:
        if source.exists() and not source.is_file():
            raise CurvescopeError(
                f"{source} is no regular file; give a file of comma-separated values."
            )
        with source.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            unit = _time_column(source, reader.fieldnames)
            rows = [_step(source, reader.line_num, row, unit) for row in reader]
    except OSError as error:
        raise CurvescopeError(
            f"{source} cannot be read ({error.strerror}); check the path."
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise CurvescopeError(
            f"{source} is not CSV in UTF-8 ({error}); export it again."
        ) from error
    if not rows:
        raise CurvescopeError(f"{source} has no rows; it needs one line per measured time.")
    repeats: Counter[tuple[Any, ...]] = Counter()
    for step, row in enumerate(rows):
        key = (row["problem"], row["device_name"], row["batch"])
        row.update(step=step, round=repeats[key], index=0, mode="published", profiled=False)
        repeats[key] += 1
    names = sorted({row["device_name"] for row in rows} - {None})
    meta = {
        "recording_type": "table",
        "imported_from": NAME,
        "network": None,
        "device": {"name": names[0]} if len(names) == 1 else None,
        "noise": noise,
        "batches": sorted({row["batch"] for row in rows}),
    }
    with RecordingWriter(target or new_recording_path("table"), meta) as writer:
        columns = [c.name for c in TABLES["steps"].columns]
        writer.write("steps", {name: [row.get(name) for row in rows] for name in columns})
    return ImportDocument(str(writer.path), NAME, {"steps": len(rows)}, {})


def _time_column(source: Path, names: Any) -> str:
    columns: list[str] = list(names or ())
    times = [name for name in columns if name in _NS_PER]
    missing = {"problem", "batch"} - set(columns)
    if missing or len(times) != 1:
        lacking = sorted(missing) + ["one of time_ns, time_us, time_ms and time_s"] * (
            len(times) != 1
        )
        raise CurvescopeError(
            f"{source} needs the columns problem, batch and time_ms in its first line; "
            f"it lacks {' and '.join(lacking)}."
        )
    if unknown := [name for name in columns if name not in _COLUMNS]:
        raise CurvescopeError(
            f"{source} has unknown columns: {', '.join(unknown)}. Combine columns that distinguish "
            "problems into `problem` and remove the rest."
        )
    return times[0]


def _step(source: Path, line: int, row: dict[str, Any], unit: str) -> dict[str, Any]:
    if None in row or None in row.values():
        raise CurvescopeError(
            f"{source}, line {line}: the number of values differs from the number of columns in "
            "the first line."
        )
    return {
        "problem": row["problem"],
        "device_name": row.get("device") or None,
        "batch": round(_positive(source, line, row, "batch", whole=True)),
        "duration_ns": max(1, _nanoseconds(source, line, row, unit)),
        "averaged_steps": round(_positive(source, line, row, "n", whole=True))
        if row.get("n")
        else None,
        "relative_spread": _positive(source, line, row, "spread") if row.get("spread") else None,
    }


def _nanoseconds(source: Path, line: int, row: dict[str, Any], unit: str) -> int:
    most = LATEST_NS / _NS_PER[unit]
    return round(_positive(source, line, row, unit, most=most) * _NS_PER[unit])


def _positive(
    source: Path,
    line: int,
    row: dict[str, Any],
    column: str,
    *,
    whole: bool = False,
    most: float = MOST_I32,
) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = float("nan")
    if not 0 < value <= most or (whole and value != round(value)):
        raise CurvescopeError(
            f"{source}, line {line}: {column} is {row[column]!r}; it must be a "
            f"{'whole ' * whole}number above 0, and at most {most:.3g}."
        )
    return value
