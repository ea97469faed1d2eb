"""Imports several files, one batch size each, as one recording: profiles as a sweep, results of
benchmarks as a table.

Every step of a profile is profiled, so T(b) is the time of profiled steps, and the profiling
overhead is unknown.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...base.errors import CurvescopeError
from ..recording.inside import remove_on_failure
from ..recording.remote_store import AnyPath
from ..recording.schema import OPERATORS, PEAKS, TABLES, conform
from ..recording.store import Recording, RecordingWriter, new_recording_path, open_recording
from . import ImportDocument, Options, describe_import, import_profile, serving_results
from .source import Source

NAME = "sweep of profiles"


def are_results(paths: Sequence[Path]) -> bool:
    """Whether all files are results of benchmarks."""
    for path in paths:
        with Source(path) as source:
            if not serving_results.recognises(source):
                return False
    return True


def import_results(paths: Sequence[Path], target: AnyPath | None = None) -> ImportDocument:
    """One table of several results; CurvescopeError if one cannot be read, or none has a point."""
    points: list[serving_results.Point] = []
    for path in paths:
        with Source(path) as source:
            try:
                points += serving_results.points_of(source)
            except CurvescopeError as error:
                raise CurvescopeError(f"{path}: {error}") from error
    meta = {
        "imported_from": serving_results.NAME,
        **dict.fromkeys(("network", "device", "batches")),
    }
    writer = RecordingWriter(target or new_recording_path("imported"), meta)
    with remove_on_failure(writer.path):
        with writer:
            serving_results.write_points(points, writer)
        return describe_import(writer.path)


def import_sweep(
    sources: Sequence[Path],
    target: AnyPath | None = None,
    batches: Sequence[int] = (),
    options: Options | None = None,
) -> ImportDocument:
    """Import profiles of any formats as one sweep; files of the same batch size become its rounds.

    Batches are the samples per step, one per file; default: from ranges or shapes.
    """
    options = options or Options()
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        recordings = []
        for index, source in enumerate(sources):
            own = replace(options, batch=batches[index] if batches else options.batch)
            done = import_profile(source, Path(folder) / str(index), own)
            recordings.append(open_recording(done.path))
            steps = recordings[-1].arrow("steps")
            if not steps.num_rows:
                raise CurvescopeError(
                    f"{source}: the profile has no step, so it cannot be part of a sweep; import "
                    "it alone."
                )
            if steps["batch"].null_count:
                raise CurvescopeError(
                    f"{source}: the batch size cannot be derived from ranges or shapes; "
                    "write one batch size per file with --batch 8,16,…"
                )
        path = target or new_recording_path("sweep")
        writer = RecordingWriter(path, _meta(recordings))
        with remove_on_failure(path):
            with writer:
                _merge(recordings, writer)
            return describe_import(path)


def _meta(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Metadata that the profiles share; None where they differ."""
    meta: dict[str, Any] = {
        "recording_type": "sweep",
        "imported_from": NAME,
        "network": None,
        "mode": None,
    }
    for name in ("device", "steps_from", "batch_from", "profiler"):
        values = [recording.meta.get(name) for recording in recordings]
        meta[name] = values[0] if all(value == values[0] for value in values) else None
    if meta["steps_from"] is None:
        sources = {str(recording.meta.get("steps_from")) for recording in recordings}
        meta["steps_from"] = "; ".join(sorted(sources))
    shares = [recording.meta.get("device_time_in_steps") for recording in recordings]
    stated = [share for share in shares if share is not None]
    meta["device_time_in_steps"] = min(stated) if len(stated) == len(shares) else None
    missing: dict[str, str] = {}
    formats = set()
    batches: set[int] = set()
    for recording in recordings:
        missing |= recording.meta.get("missing", {})
        formats.add(str(recording.meta["imported_from"]))
        batches.update(map(int, recording.arrow("steps")["batch"].to_pylist()))
    return meta | {"missing": missing, "formats": sorted(formats), "batches": sorted(batches)}


def _merge(recordings: Sequence[Recording], writer: RecordingWriter) -> None:
    first_step = 0
    rounds: Counter[int] = Counter()
    for recording in recordings:
        steps = recording.arrow("steps")
        batches = [int(batch) for batch in steps["batch"].to_pylist()]
        counts: Counter[int] = Counter()
        index = []
        for batch in batches:
            index.append(counts[batch])
            counts[batch] += 1
        recorded = pa.array(list(rounds), pa.int64())
        columns = {name: steps[name] for name in steps.column_names}
        columns["step"] = pc.add(steps["step"], first_step)
        columns["index"] = pa.array(index)
        columns["round"] = pa.array([rounds[batch] for batch in batches])
        rounds.update(counts.keys())
        writer.write("steps", pa.table(columns))
        for table in TABLES.keys() - {"steps"}:
            for part in recording.parts(table):
                rows = conform(TABLES[table], pq.read_table(part))
                if table in (OPERATORS.name, PEAKS.name):  # one step per batch size has them
                    again = pc.is_in(rows["batch"], recorded)
                    rows = rows.filter(pc.invert(again))
                if "step" in rows.column_names:
                    index_of_step = rows.column_names.index("step")
                    rows = rows.set_column(index_of_step, "step", pc.add(rows["step"], first_step))
                writer.write(table, rows)
        for name, entry in recording.meta["lost"].items():
            writer.count_lost(name, entry["count"], entry["sentence"])
        first_step += int(pc.max(steps["step"]).as_py()) + 1
