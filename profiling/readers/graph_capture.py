"""Joins the kernels of CUDA graphs in one trace to the operators of another one in which the graphs
were captured.

A server captures its graphs once, when it starts, and replays them in every step: a trace of the
steps has no operator around the kernels of a graph. In a trace of the capture each launch between
the begin and the end of a stream capture makes one node; ROCm names its kernel, CUDA does not. A
replay fits a capture of as many launches, in the same order by name where these are known. Of
several that fit it takes the next one, and a graph that the trace numbers always the same.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...base.budget import Budget
from ...base.counted import counted
from ...base.errors import CurvescopeError
from ..attribution.columns import int_column
from ..attribution.nesting import NONE, Ints
from ..attribution.range_names import ANNOTATION

_BEGIN = re.compile(r"(?:cuda|cu|hip)StreamBeginCapture\w*")
_END = re.compile(r"(?:cuda|cu|hip)StreamEndCapture\w*")
_LAUNCH = re.compile(r"(?:cuda|cu|hip)\w*Launch\w*Kernel\w*")
_REPLAY = re.compile(r"(?:cuda|cu|hip)GraphLaunch\w*")
_APART_NS = 1_000_000_000  # between the execution and the capture, which are put after it


class _Capture(NamedTuple):
    """The kernel launches of one stream capture, in order, with the names of their kernels if they
    are known.
    """

    names: tuple[str | None, ...]
    time_ns: Ints
    thread: Ints

    def fits(self, kernels: Sequence[str]) -> bool:
        """Whether a replay of these kernels may be one of this capture."""
        if len(self.names) != len(kernels):
            return False
        pairs = zip(self.names, kernels, strict=True)
        return all(own is None or own == name for own, name in pairs)


class _Captures:
    """Captures, found by the kernels of a replay.

    A capture fits a replay of as many kernels, whose names are its own where it knows them. Most
    traces name all kernels of their captures or none, so one look for each set of known names finds
    the captures that fit.
    """

    def __init__(self, captures: Sequence[_Capture], budget: Budget) -> None:
        self.captures = captures
        self._budget = budget
        # by the number of launches and the places of known names, then by these names: indices
        self._known: dict[int, dict[tuple[int, ...], dict[tuple[str, ...], list[int]]]] = {}
        for index, capture in enumerate(captures):
            named = {at: name for at, name in enumerate(capture.names) if name is not None}
            of_size = self._known.setdefault(len(capture.names), {})
            by_names = of_size.setdefault(tuple(named), {})
            by_names.setdefault(tuple(named.values()), []).append(index)

    def fitting(self, kernels: Sequence[str]) -> list[list[int]]:
        """Ascending indices of the captures that fit, in one list for each set of known names."""
        of_size = self._known.get(len(kernels), {})
        self._budget.take_steps(len(of_size) * len(kernels))
        fitting = []
        for places, by_names in of_size.items():
            names = tuple(kernels[place] for place in places)
            if names in by_names:
                fitting.append(by_names[names])
        return fitting

    def next_fitting(self, kernels: Sequence[str], after: int) -> int:
        """The next capture that fits, in circular order; raises `CurvescopeError` if none does."""
        fitting = self.fitting(kernels)
        if not fitting:
            raise self._none_fits(len(kernels))
        nearest = (bisect_right(indices, after) for indices in fitting)
        later = [
            indices[at] for indices, at in zip(fitting, nearest, strict=True) if at < len(indices)
        ]
        if later:
            return min(later)
        return min(indices[0] for indices in fitting)

    def _none_fits(self, kernels: int) -> CurvescopeError:
        sizes = ", ".join(map(str, sorted(self._known)))
        graphs = f"{counted(len(self.captures), 'graph')} of {sizes} launches"
        return CurvescopeError(
            f"--capture: a replay of {counted(kernels, 'kernel')} fits no captured graph "
            f"({graphs}); give the trace of the capture of the same program at the same batch size."
        )


class Joined(NamedTuple):
    """Ranges of a trace and its capture; kernels with graph_node_id, capture_ns and
    capture_thread_key; replays.
    """

    ranges: pa.Table
    kernels: pa.Table
    replays: int
    joined_by: str


class _Replay(NamedTuple):
    """Kernels (rows) of one launch of a graph, and the index of each one's launch in
    the capture.
    """

    rows: Ints
    capture: _Capture
    launches: Ints


def join_capture(
    ranges: pa.Table,
    launches: pa.Table,
    kernels: pa.Table,
    captured_ranges: pa.Table,
    captured_launches: pa.Table,
    budget: Budget,
) -> Joined:
    """Give the kernels of graphs the place of their capture, whose API calls have a column
    `kernel`, null if unknown.
    """
    captures = _Captures(_captures(captured_launches), budget)
    if not captures.captures:
        raise CurvescopeError(
            "--capture: no stream capture with kernel launches is in it; give the trace that was "
            "recorded while the graphs were captured, e.g. at the start of the server."
        )
    replays = _replays(launches, kernels)
    if not replays:
        raise CurvescopeError(
            "--capture: the profile replays no graph, so there is nothing to join; omit it."
        )
    shift = _shift_ns(ranges, kernels, captured_ranges, captured_launches)
    joined = _by_order(kernels, replays, captures)
    how = "names of the kernels"
    if any(None in replay.capture.names for replay in joined):
        how = "order of the kernels; the capture does not name them"
    kernels = _place_kernels(kernels, joined, shift)
    return Joined(
        pa.concat_tables([ranges, _move_ranges(captured_ranges, shift)]), kernels, len(replays), how
    )


def _by_order(kernels: pa.Table, replays: Sequence[Ints], captures: _Captures) -> list[_Replay]:
    names = _texts(kernels, "name")
    graphs = int_column(kernels, "graph_id")
    after = -1
    chosen = []
    of_graph = dict[int, int]()
    for rows in replays:
        of_replay = [names[row] or "" for row in rows]
        graph = int(graphs[rows[0]])
        index = of_graph.get(graph)
        if index is None or graph == NONE or not captures.captures[index].fits(of_replay):
            index = captures.next_fitting(of_replay, after)
        after = of_graph[graph] = index
        chosen.append(_Replay(rows, captures.captures[index], np.arange(len(rows))))
    return chosen


def join_own_capture(launches: pa.Table, kernels: pa.Table, budget: Budget) -> pa.Table:
    """Give the kernels of graphs the place of their capture in the same trace, where exactly one
    fits a replay.
    """
    begins = []
    for name in launches["name"].unique().to_pylist():
        begins.append(bool(_BEGIN.fullmatch(name or "")))
    captures = _Captures(_captures(launches) if any(begins) else [], budget)
    if not captures.captures:
        return kernels
    names = _texts(kernels, "name")
    joined = []
    for rows in _replays(launches, kernels):
        fitting = captures.fitting([names[row] or "" for row in rows])
        if sum(map(len, fitting)) == 1:
            ((index,),) = fitting
            joined.append(_Replay(rows, captures.captures[index], np.arange(len(rows))))
    return _place_kernels(kernels, joined, 0) if joined else kernels


def _replays(launches: pa.Table, kernels: pa.Table) -> list[Ints]:
    """The kernels of each launch of a graph, in order of the nodes where the trace numbers them,
    else of time.
    """
    calls = _texts(launches, "name")
    is_replay = [bool(_REPLAY.fullmatch(name or "")) for name in calls]
    replay_ids = int_column(launches, "correlation_id")[is_replay]
    correlation = int_column(kernels, "correlation_id")
    start = int_column(kernels, "start_ns")
    rows = np.flatnonzero(np.isin(correlation, replay_ids[replay_ids != NONE]))
    rows = rows[np.argsort(start[rows], kind="stable")]
    if not len(rows):
        return []
    rows = rows[np.argsort(correlation[rows], kind="stable")]
    edges = np.flatnonzero(np.diff(correlation[rows])) + 1
    replays = np.split(rows, edges)
    replays.sort(key=lambda replay: int(start[replay[0]]))
    node = int_column(kernels, "graph_node_id")
    return [_order_nodes(replay, node[replay]) for replay in replays]


def _order_nodes(replay: Ints, node: Ints) -> Ints:
    """The kernels of a replay by their nodes, if these number all of them."""
    if (node == NONE).any() or len(np.unique(node)) < len(replay):
        return replay
    return replay[np.argsort(node, kind="stable")]


def _place_kernels(kernels: pa.Table, joined: Sequence[_Replay], shift_ns: int) -> pa.Table:
    """The kernels with the place of their capture; replays without numbers of nodes get them, from
    1 in order.
    """
    recorded = int_column(kernels, "graph_node_id")
    node, time_ns, thread = (
        recorded.copy(),
        *(np.full(kernels.num_rows, NONE, np.int64) for _ in range(2)),
    )
    for replay in joined:
        rows, capture, at = replay
        if (recorded[rows] == NONE).any():
            node[rows] = at + 1
        time_ns[rows] = capture.time_ns[at] + shift_ns
        thread[rows] = capture.thread[at]
    columns = {"graph_node_id": node, "capture_ns": time_ns, "capture_thread_key": thread}
    kernels = kernels.drop_columns([name for name in columns if name in kernels.column_names])
    for name, values in columns.items():
        kernels = kernels.append_column(name, pa.array(values, mask=values == NONE))
    return kernels


def _captures(launches: pa.Table) -> list[_Capture]:
    names = _texts(launches, "name")
    kernels = _texts(launches, "kernel")
    start = int_column(launches, "start_ns")
    thread = int_column(launches, "thread_key")
    captures: list[_Capture] = []
    open_rows: list[int] | None = None
    for row in np.argsort(start, kind="stable").tolist():
        name = names[row] or ""
        if _BEGIN.fullmatch(name):
            open_rows = []
        elif _END.fullmatch(name):
            if open_rows:
                of_capture = np.array(open_rows)
                captures.append(
                    _Capture(
                        tuple(kernels[r] for r in open_rows), start[of_capture], thread[of_capture]
                    )
                )
            open_rows = None
        elif open_rows is not None and _LAUNCH.fullmatch(name):
            open_rows.append(row)
    return captures


def _shift_ns(
    ranges: pa.Table, kernels: pa.Table, captured_ranges: pa.Table, captured_launches: pa.Table
) -> int:
    """The shift that puts the capture after the execution, so that no moment belongs to both."""
    ends = [int_column(table, "end_ns") for table in (ranges, kernels)]
    starts = [int_column(table, "start_ns") for table in (captured_ranges, captured_launches)]
    last = max(int(column.max(initial=0)) for column in ends)
    first = min(int(column.min()) for column in starts if len(column))
    return last + _APART_NS - first


def _move_ranges(ranges: pa.Table, shift_ns: int) -> pa.Table:
    """The operators and modules of a capture, later; its annotations mark other steps."""
    ranges = ranges.filter(
        pa.array([role != ANNOTATION for role in _texts(ranges, "role")], pa.bool_())
    )
    for name in ("start_ns", "end_ns"):
        at = ranges.column_names.index(name)
        ranges = ranges.set_column(at, name, pa.array(int_column(ranges, name) + shift_ns))
    return ranges


def _texts(table: pa.Table, column: str) -> list[str | None]:
    if column not in table.column_names:
        return [None] * table.num_rows
    return [None if text is None else str(text) for text in table[column].to_pylist()]
