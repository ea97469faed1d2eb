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
_FRAMEWORKS = ("PyTorch", "TensorFlow")  # that launch one kernel for each operator
_MOST_NAMES = 4  # of a run
# Runs by what they do, per step: kernels, runs, ms, least_ms (of one kernel instead).
RUNS = ("what", "kernels", "runs", "ms", "least_ms")


def pointwise_runs(recording: Recording, used: pd.DataFrame) -> pd.DataFrame:
    """The runs of the steps used on one GPU, without runs of the optimizer; none where a compiler
    fused.
    """
    empty = pd.DataFrame({name: [] for name in RUNS})
    number = used["step"].to_numpy(np.int64)
    pieces = []
    for piece in recording.pieces("kernels", _COLUMNS):
        inside, _ = of_steps(piece, number)
        if inside.num_rows:
            pieces.append(inside)
    if not pieces:
        return empty
    # Texts stay codes: of millions of kernels each name is read once.
    table = pa.concat_tables(pieces).unify_dictionaries()
    rows = table.to_pandas(strings_to_categorical=True)
    names = list(map(str, rows["name"].cat.categories))
    if any(_COMPILED.search(name) for name in names):
        return empty
    rows = rows.sort_values(["step", "device", "stream", "start_ns"], kind="stable")
    operators = rows["op"].cat.categories
    outside = {op: _OUTSIDE.search(str(op)) is not None for op in operators}
    pointwise = {name: _is_pointwise(name) for name in names}
    is_pointwise = rows["name"].map(pointwise).astype(bool)
    is_outside = rows["op"].map(outside).astype(object).eq(True)
    in_optimizer = rows["phase"].eq("optimizer")
    fits = is_pointwise & ~in_optimizer & ~is_outside
    place = rows[["step", "device", "stream"]].astype("Int64").fillna(-1)
    moves = (place != place.shift()).any(axis=1)
    begins = ~fits | ~fits.shift(fill_value=False) | moves
    run = begins.cumsum()[fits]
    rows = rows[fits]
    family_of = {name: read_name(name).family for name in names}
    family = rows["name"].astype(str).map(family_of)
    op = rows["op"].astype(object).where(rows["op"].notna(), family)
    op = op.astype(str).str.removeprefix("aten::")
    by_run = rows.assign(op=op).groupby(run)
    runs = by_run.agg(
        step=("step", "first"),
        device=("device", "first"),
        what=("op", _join),
        kernels=("op", "size"),
        ms=("duration_ns", "sum"),
        least_ms=("duration_ns", "min"),
    )
    runs = runs[runs["kernels"] > 1].assign(runs=1)
    if runs.empty:
        return empty
    # A bound is of one GPU, the one with the largest saving in a step.
    runs["device"] = runs["device"].fillna(-1)
    saved = (runs["ms"] - runs["least_ms"]).groupby([runs["step"], runs["device"]]).sum()
    largest = saved.groupby(level="step").idxmax().tolist()
    runs = runs[pd.MultiIndex.from_frame(runs[["step", "device"]]).isin(largest)]
    by_operator = runs.groupby("what")[["kernels", "runs", "ms", "least_ms"]]
    sums = by_operator.sum().astype(float)
    sums[["ms", "least_ms"]] /= 1e6
    return (sums / len(used)).reset_index()


def _is_pointwise(name: str) -> bool:
    """Whether it is a framework's own; conversions of a library's operands cannot be fused."""
    read = read_name(name)
    own = read.library in _FRAMEWORKS and read.family in (ELEMENTWISE, LAYOUT)
    return own and _FUSED.search(name) is None


def _join(names: pd.Series) -> str:
    listed: list[str] = []
    more = 0
    for name, same in groupby(names):
        count = len(list(same))
        if len(listed) == _MOST_NAMES:
            more += count
        else:
            listed.append(name if count == 1 else f"{count} x {name}")
    text = ", ".join(listed)
    if more:
        return f"{text} and {more} more"
    return text
