"""Runs of pointwise kernels: two or more, one right after another in one stream, that one kernel
could replace.

One kernel in place of a run takes at least as long as the shortest of them, so it saves at most the
rest.
"""

from __future__ import annotations

import re
from itertools import groupby

import numpy as np
import pandas as pd
import pyarrow as pa

from ...profiling.attribution.kernel_names import ELEMENTWISE, LAYOUT, read_name
from ...profiling.recording.store import Recording
from .kernel_times import of_steps

_COLUMNS = ("step", "start_ns", "duration_ns", "device", "stream", "name", "op", "phase")
_FUSED = re.compile(r"^triton_|^cpp_fused|fused|fusion", re.IGNORECASE)  # by a compiler, or by hand
_COMPILED = re.compile(r"^triton_\w*fused")
_OUTSIDE = re.compile("distributed|AccumulateGrad")  # operators that do not belong to the network
_MOST_NAMES = 4  # of a run
# Runs by what they do, per step: kernels, runs, ms, least_ms (of one kernel instead).
RUNS = ("what", "kernels", "runs", "ms", "least_ms")


def pointwise_runs(recording: Recording, used: pd.DataFrame) -> pd.DataFrame:
    """The runs of the steps used on one GPU, without those of the optimizer; none where a compiler
    fused.
    """
    empty = pd.DataFrame({name: [] for name in RUNS})
    if used.empty:
        return empty
    pieces = [
        of_steps(piece, used["step"].to_numpy(np.int64))[0]
        for piece in recording.pieces("kernels", _COLUMNS)
    ]
    if not (pieces := [piece for piece in pieces if len(piece)]):
        return empty
    # Texts stay codes: of millions of kernels each name is read once.
    table = pa.concat_tables(pieces).unify_dictionaries()
    rows = table.to_pandas(strings_to_categorical=True)
    names = list(map(str, rows["name"].cat.categories))
    if any(_COMPILED.search(name) for name in names):
        return empty
    rows = rows.sort_values(["step", "device", "stream", "start_ns"], kind="stable")
    of_name = {name: _is_pointwise(name) for name in names}
    outside = {op: _OUTSIDE.search(str(op)) is not None for op in rows["op"].cat.categories}
    fits = rows["name"].map(of_name).astype(bool) & rows["phase"].ne("optimizer")
    fits &= ~rows["op"].map(outside).astype(object).fillna(False).astype(bool)
    place = rows[["step", "device", "stream"]].astype("Int64").fillna(-1)
    begins = ~fits | ~fits.shift(fill_value=False) | (place != place.shift()).any(axis=1)
    rows, begins = rows[fits], begins.cumsum()[fits]
    kind = rows["name"].astype(str).map({name: read_name(name).family for name in names})
    what = rows["op"].astype(object).where(rows["op"].notna(), kind).astype(str)
    runs = (
        rows.assign(run=begins, op=what.str.removeprefix("aten::"))
        .groupby("run")
        .agg(
            device=("device", "first"),
            what=("op", _join),
            kernels=("op", "size"),
            ms=("duration_ns", "sum"),
            least_ms=("duration_ns", "min"),
        )
    )
    runs = runs[runs["kernels"] > 1].assign(runs=1)
    # A bound is of one GPU: that on which most would be saved.
    saved = (runs["ms"] - runs["least_ms"]).groupby(runs["device"].fillna(-1)).sum()
    runs = runs[runs["device"].fillna(-1) == saved.idxmax()] if len(saved) else runs
    sums = runs.groupby("what")[["kernels", "runs", "ms", "least_ms"]].sum().astype(float)
    sums[["ms", "least_ms"]] /= 1e6
    return (sums / len(used)).reset_index()


def _is_pointwise(name: str) -> bool:
    """Whether it is one of PyTorch's own; conversions of a library's operands cannot be fused."""
    read = read_name(name)
    own = read.library == "PyTorch" and read.family in (ELEMENTWISE, LAYOUT)
    return own and _FUSED.search(name) is None


def _join(names: pd.Series) -> str:
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    listed = [name if count == 1 else f"{count} x {name}" for name, count in runs[:_MOST_NAMES]]
    more = sum(count for _, count in runs[_MOST_NAMES:])
    return ", ".join(listed) + (f" and {more} more" if more else "")
