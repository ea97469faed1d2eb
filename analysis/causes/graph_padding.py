"""Graph padding: a step replays the CUDA graph captured for a larger batch size, and computes its empty rows.

An inference server captures graphs for some sizes, which marks tell; else the largest size whose steps run the same
kernels in the same grids stands for it. Modelled: a graph of the exact size lies on the line between captured ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise

import pandas as pd

from ..decompose.terms import COMMUNICATION, IDLE, KERNELS
from .case import Case, Claim, Intervention, seen

CAUSE = "graph padding"
INTERVENTION = Intervention(
    expected="With a graph that is captured for the batch size itself, the excess goes away.",
    untested="no factor changes the batch sizes that a server captures",
)
_REPLAY = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_GRID = ["name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_SAME = 0.8  # least share of the time in equal kernels: what runs outside of the graph depends on the batch
# A mark is a fact, equal grids are a sign; both before quantisation, which sees the padded rows as blocks.
_SCORE_MARKED, _SCORE = 0.95, 0.91


def weigh(case: Case) -> Claim | None:
    """Claim the time beyond the line between captured sizes."""
    batches = case.functional.conditions
    graphs = {batch: case.facts[batch].graph_batch for batch in batches}
    captured = {batch: size for batch, size in graphs.items() if size is not None}
    if case.share.key.kind not in (KERNELS, COMMUNICATION) or len(captured) < len(batches):
        return None
    times: dict[int, list[float]] = {}
    for batch, size in captured.items():
        times.setdefault(size, []).append(case.time_ms(batch))
    nodes = sorted((size, math.fsum(found) / len(found)) for size, found in times.items())
    if len(nodes) < 2 or all(size == batch for batch, size in captured.items()):
        return None
    exact = {
        batch: case.time_ms(batch) if batch == captured[batch] else _on_line(nodes, batch)
        for batch in batches
    }
    amount = case.evaluate(lambda batch: case.time_ms(batch) - exact[batch])
    if not amount:
        return None
    marked = all(case.facts[batch].graph_marked for batch in batches)
    where = "steps.graph_batch" if marked else "kernels.name, grid_x; api_calls.name"
    what = "batch size that the replayed graph was captured for" + ("" if marked else ", at least")
    evidence = (
        seen(what, map(captured.get, case.sides), "", where),
        seen(
            "share of it that is empty",
            (1 - batch / captured[batch] for batch in case.sides),
            "1",
            where,
        ),
        seen("time on the line between captured sizes", map(exact.get, case.sides), "ms", "model"),
    )
    refutation = "With a graph that is captured for the batch size itself, the excess is as large."
    return Claim(CAUSE, amount, _SCORE_MARKED if marked else _SCORE, evidence, refutation)


def _on_line(nodes: list[tuple[int, float]], batch: int) -> float:
    """Time at a batch size on the line between its neighbours."""
    (low, low_ms), (high, high_ms) = next(
        (pair for pair in pairwise(nodes) if batch <= pair[1][0]), nodes[-2:]
    )
    return max(0.0, low_ms + (high_ms - low_ms) * (batch - low) / (high - low))


def graph_batches(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, api_calls: pd.DataFrame | None
) -> Mapping[int, tuple[int, bool]]:
    """The batch size of the graph that the steps of each batch size replay, and whether marks tell it.

    Empty if no graph is replayed.
    """
    if "graph_batch" in steps and steps["graph_batch"].notna().any():
        marked = steps[steps["graph_batch"].notna() & steps["batch"].notna()]
        sizes = marked.groupby("batch")["graph_batch"].max()
        return {int(batch): (max(int(size), int(batch)), True) for batch, size in sizes.items()}
    if api_calls is None or not any(
        _REPLAY.match(str(name)) for name in api_calls["name"].unique()
    ):
        return {}
    work = kernel_times[kernel_times["name"] != IDLE]
    grouped = work.groupby(["batch", *_GRID], dropna=False, observed=True)[
        ["exclusive_ms", "calls"]
    ].sum()
    count = work.groupby("batch")["step"].nunique()
    kernels: dict[int, dict[tuple[object, ...], float]] = {}
    for row in grouped.reset_index().itertuples(index=False):
        batch, *grid = row[: len(_GRID) + 1]
        key = (
            *("" if pd.isna(value) else value for value in grid),
            round(float(row.calls) / count[batch], 3),
        )
        kernels.setdefault(int(batch), {})[key] = float(row.exclusive_ms)
    return {
        batch: (max(b for b in kernels if b >= batch and _equal(kernels, batch, b)), False)
        for batch in kernels
    }


def _equal(kernels: Mapping[int, Mapping[tuple[object, ...], float]], one: int, other: int) -> bool:
    """Whether the kernels of two batch sizes are the same, in the same grids, for most of their time."""
    return all(
        math.fsum(time for key, time in kernels[a].items() if key in kernels[b])
        >= _SAME * math.fsum(kernels[a].values())
        for a, b in ((one, other), (other, one))
    )
