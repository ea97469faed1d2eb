"""Nests the spans of host threads by time, over columns: a moment lies in the innermost span that
contains it.

A span that ends after the one around it is cut to that end, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

NONE = -1  # in arrays of codes and indices: no layer, no phase, no span


@dataclass
class Nest:
    """The nesting of the spans of several threads; arrays of shape (spans,)."""

    parent: Ints  # index of the innermost span around each, or `NONE`
    end_ns: Ints  # ends, cut to that of the parent
    levels: list[Ints]  # indices of the spans inside another one, by depth, outermost first
    cut: int  # number of ends that were cut
    # moments in order, and the innermost span from each of them on, by thread
    timelines: dict[int, tuple[Ints, Ints]]

    def innermost(self, thread: Ints, moment_ns: Ints) -> Codes:
        """The innermost span around each (thread, moment), or `NONE`; shape (moments,)."""
        innermost = np.full(len(moment_ns), NONE, np.int32)
        for key, rows in _groups(thread):
            if (timeline := self.timelines.get(key)) is not None:
                times, states = timeline
                at = last_at(times, moment_ns[rows])
                innermost[rows] = np.where(at >= 0, states[at], NONE)
        return innermost

    def outermost(self, own: Ints, restarts: Bools | None = None) -> Ints:
        """The value of the outermost span around each, itself included, that has one; spans in
        `restarts` go anew.
        """
        value = own.copy()
        for rows in self.levels:
            above = value[self.parent[rows]]
            hidden = above == NONE if restarts is None else (above == NONE) | restarts[rows]
            value[rows] = np.where(hidden, value[rows], above)
        return value


def last_at(times: Ints, moments: Ints) -> Ints:
    """Index of the last of the sorted times that is not after each moment; -1 if all are."""
    if not len(moments):
        return np.zeros(0, np.int64)
    # Moments of one batch are close together: a search among the times around them stays in the
    # caches.
    first, last = np.searchsorted(times, [moments.min(), moments.max()], side="right")
    at: Ints = np.searchsorted(times[first:last], moments, side="right") + (first - 1)
    return at


def nest(thread: Ints, start_ns: Ints, end_ns: Ints) -> Nest:
    """Nest spans by thread and time; a span without duration contains nothing."""
    parent = np.full(len(start_ns), NONE, np.int64)
    depth = np.zeros(len(start_ns), np.int64)
    nest = Nest(parent, end_ns.copy(), [], 0, {})
    for key, rows in _groups(thread):
        rows = rows[end_ns[rows] > start_ns[rows]]
        rows = rows[np.lexsort((-end_ns[rows], start_ns[rows]))]
        nest.cut += _nest(rows, start_ns, nest.end_ns, parent, depth)
        if len(rows):
            nest.timelines[key] = _timeline(rows, start_ns, nest.end_ns, parent)
    instants = np.flatnonzero(end_ns <= start_ns)
    around = nest.innermost(thread[instants], start_ns[instants])
    parent[instants] = around
    inner = around != NONE
    depth[instants[inner]] = depth[around[inner]] + 1
    nest.levels = _levels(depth, parent)
    return nest


def _nest(rows: Ints, start_ns: Ints, end_ns: Ints, parent: Ints, depth: Ints) -> int:
    """Set parent and depth of one thread's ranges, in order of start; return the number of ends
    that were cut.
    """
    ended = np.searchsorted(np.sort(end_ns[rows]), start_ns[rows], side="right")
    level = np.arange(len(rows)) - ended
    up = np.full(len(rows), NONE, np.int64)
    for d in range(1, int(level.max(initial=0)) + 1):
        here = np.flatnonzero(level == d)
        above = np.flatnonzero(level == d - 1)
        up[here] = above[np.searchsorted(above, here) - 1]
    inner = up != NONE
    if (end_ns[rows[inner]] <= end_ns[rows[up[inner]]]).all():
        parent[rows[inner]] = rows[up[inner]]
        depth[rows] = level
        return 0
    # Some ranges cross: go through them one by one; each lies inside the last open one.
    cut = 0
    stack: list[int] = []
    for row in rows.tolist():
        while stack and end_ns[stack[-1]] <= start_ns[row]:
            stack.pop()
        if stack:
            parent[row], depth[row] = stack[-1], len(stack)
            if end_ns[row] > end_ns[stack[-1]]:
                end_ns[row] = end_ns[stack[-1]]
                cut += 1
        stack.append(row)
    return cut


def _timeline(rows: Ints, start_ns: Ints, end_ns: Ints, parent: Ints) -> tuple[Ints, Ints]:
    times = np.concatenate([end_ns[rows], start_ns[rows]])
    states = np.concatenate([parent[rows], rows])
    # At one moment: ends from the inside out, then starts from the outside in.
    position = np.arange(len(rows))
    depth = np.concatenate([-position, position])
    is_start = np.repeat([0, 1], len(rows))
    order = np.lexsort((depth, is_start, times))
    return times[order], states[order]


def _levels(depth: Ints, parent: Ints) -> list[Ints]:
    inner = np.flatnonzero(parent != NONE)
    if not len(inner):
        return []
    order = inner[np.argsort(depth[inner], kind="stable")]
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    return np.split(order, edges)


def _groups(key: Ints) -> list[tuple[int, Ints]]:
    if not len(key):
        return []
    if (key == key[0]).all():
        return [(int(key[0]), np.arange(len(key)))]
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    return [(int(key[rows[0]]), rows) for rows in np.split(order, edges)]
