"""Recordings for notebooks and programs: what the commands show of a recording, as DataFrames."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from .profiling.recording import store

if TYPE_CHECKING:
    import pandas as pd

    from .profiling.recording.remote_store import RemotePath


class Recording(store.Recording):
    """A recording for reading, with its analyses.

    Times are in ms, rates in units of their names, missing is NaN.

    Every analysis raises CurvescopeError where the recording lacks data, and says how to record it.
    """

    def breakdown(self, by: str = "layer", batch: int | None = None) -> pd.DataFrame:
        """Time of a step by layer, kernel, phase or op, idle and overhead last. The rows add up to
        the measured step.

        Args:
            by: kind of a row: layer, kernel, phase or op.
            batch: a measured batch size; default: the largest.
        """
        from .analysis.decompose.breakdown import break_down_recording

        return _frame(map(asdict, break_down_recording(self, by, batch).rows))

    def roofline(self, by: str = "kernel", batch: int | None = None) -> pd.DataFrame:
        """Arithmetic intensity and rates: a row per point and memory level, longest first, after a
        row per roof.

        Args:
            by: kind of a point: kernel, layer or phase.
            batch: a profiled batch size; default: the largest.
        """
        from .analysis.roofline import csv_rows, read_roofline

        return _frame(csv_rows(read_roofline(self, by, batch)))

    def compare(
        self, other: store.Recording, by: str | None = None, batch: int | None = None
    ) -> pd.DataFrame:
        """Times of another recording beside this one's, and the speedup, above 1 if it is faster,
        with its interval.

        Args:
            other: the recording to compare with this one.
            by: kind of a row: batch, layer, op, family or kernel; default: layer if both have some
                in common, else op if all name operators, else family.
            batch: batch size of the rows; default: the largest that is profiled in both.
        """
        from .analysis.compare import compare
        from .analysis.side import prepare_side

        sides = [
            prepare_side(str(recording.path), recording, recording.frame("steps"))
            for recording in (self, other)
        ]
        comparison = compare(sides, None if by == "batch" else by, batch)
        rows = []
        for line in comparison.steps if by == "batch" else comparison.rows:
            time_ms, other_ms = line.times_ms
            row: dict[str, Any] = {"label": line.label, "time_ms": time_ms, "other_ms": other_ms}
            if (change := line.changes[0]) is not None:
                row |= {**asdict(change), "real": change.real}
                row |= {} if isfinite(change.high) else {"low": None, "high": None}
            rows.append(row)
        return _frame(rows)

    def ranks(self, *others: store.Recording) -> pd.DataFrame:
        """Stragglers among the ranks of a job, largest excess first; empty if no rank delays the
        others.

        Args:
            others: recordings of the other ranks; default: all in the folder of this one.
        """
        from .analysis.ranks.jobs import find_ranks, reduce_jobs
        from .analysis.ranks.stragglers import analyse
        from .analysis.ranks.tables import combine

        paths = [self.path.parent]
        if others:
            paths = [other.path for other in (self, *others)]
        jobs, bad = find_ranks([str(path) for path in paths])
        analysed = analyse(combine([reduce_jobs(jobs), bad]))
        rows = []
        for straggler in analysed.stragglers:
            row = asdict(straggler)
            excess_ms = row.pop("excess_ms")
            row["excess_ms"] = excess_ms["value"]
            row["low_ms"], row["high_ms"] = excess_ms["low"], excess_ms["high"]
            del row["terms"]
            rows.append(row)
        return _frame(rows)


def open_recording(path: str | os.PathLike[str] | RemotePath) -> Recording:
    """Open a recording in a folder or at a URL, e.g. `s3://bucket/job/rank3`; one that was cut is
    completed.

    Raises:
        CurvescopeError: `path` has no recording, it is unreadable, or a newer Curvescope wrote it.
    """
    recording = store.open_recording(path)
    if store.has_chunks(recording.path):
        from .profile_files import open_completed

        recording = open_completed(recording.path)
    return Recording(recording.path, recording.meta)


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)
