"""Host ranges nested by thread, and where among them a launch lies; over columns, without a Python step per row.

Rules, in the order they apply:
- Push/pop ranges of one thread nest by time. A range that outlasts the one around it is cut to it, and counted.
- A launch lies in the innermost range of its thread that contains its start.
- Layer: a range that names a whole path has it; another layer range adds its name to the path of what is around it.
- Phase and step: the innermost range that tells. Operator: the outermost.
- A backward node has the layer of the last forward operator before it, in its process, with its sequence number. A
  forward operator whose number some backward node carries is in the forward phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .range_names import RangeName

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

NONE = -1  # in code columns: no layer, no phase, no range


@dataclass
class HostRanges:
    """Push/pop ranges, one entry each, all arrays of shape (ranges,).

    Attributes:
        start_ns: starts.
        end_ns: ends.
        thread: number of the thread, unique over processes.
        process: number of the process.
        name: index into `said`.
        said: what each distinct name says.
    """

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    process: Ints
    name: Ints
    said: Sequence[RangeName]


@dataclass
class Nest:
    """Spans of several threads, each in the innermost one of its thread that contains it; arrays of shape (spans,).

    Attributes:
        parent: index of the span around each, or `NONE`.
        end_ns: ends, cut to that of the parent.
        levels: the spans that lie in another one, by depth, outermost first.
        cut: how many ends were cut.
        timelines: by thread, moments in order and the innermost span from each of them on.
    """

    parent: Ints
    end_ns: Ints
    levels: list[Ints]
    cut: int
    timelines: dict[int, tuple[Ints, Ints]]

    def innermost(self, thread: Ints, moment_ns: Ints) -> Codes:
        """The innermost span around each (thread, moment); `NONE` where there is none. Shape (moments,)."""
        found = np.full(len(moment_ns), NONE, np.int32)
        for key, rows in _groups(thread):
            if (timeline := self.timelines.get(key)) is not None:
                times, states = timeline
                at = last_at(times, moment_ns[rows])
                found[rows] = np.where(at >= 0, states[at], NONE)
        return found


@dataclass
class Placement:
    """Where each range lies; code columns have `NONE` for nothing.

    Attributes:
        layer: index into `layers`.
        phase: index into `phases`.
        op: index into `ops`.
        layers: paths.
        phases: phases.
        ops: operators.
        nest: how they nest.
        unjoined: backward nodes whose forward operator was not found.
    """

    layer: Ints
    phase: Ints
    op: Ints
    layers: list[str]
    phases: list[str]
    ops: list[str]
    nest: Nest
    unjoined: int

    def take(self, ranges: Ints | Codes) -> dict[str, pa.Array]:
        """Columns layer, phase and op for things that lie in these ranges (`NONE`: in no range)."""
        return {
            "layer": _decode(self.layer, ranges, self.layers),
            "phase": _decode(self.phase, ranges, self.phases),
            "op": _decode(self.op, ranges, self.ops),
        }


def last_at(times: Ints, moments: Ints) -> Ints:
    """Place of the last of some rising times that is not after each moment; -1 where all are."""
    if not len(moments):
        return np.zeros(0, np.int64)
    # Moments that are read together lie together: a search among what lies around them stays in the caches.
    first, last = np.searchsorted(times, [moments.min(), moments.max()], side="right")
    at: Ints = np.searchsorted(times[first:last], moments, side="right") + (first - 1)
    return at


def nest(thread: Ints, start_ns: Ints, end_ns: Ints) -> Nest:
    """Nest spans by thread and time; one without extent contains nothing."""
    parent = np.full(len(start_ns), NONE, np.int64)
    depth = np.zeros(len(start_ns), np.int64)
    found = Nest(parent, end_ns.copy(), [], 0, {})
    for key, rows in _groups(thread):
        rows = rows[end_ns[rows] > start_ns[rows]]
        rows = rows[np.lexsort((-end_ns[rows], start_ns[rows]))]
        found.cut += _nest(rows, start_ns, found.end_ns, parent, depth)
        if len(rows):
            found.timelines[key] = _timeline(rows, start_ns, found.end_ns, parent)
    instants = np.flatnonzero(end_ns <= start_ns)
    parent[instants] = found.innermost(thread[instants], start_ns[instants])
    inner = parent[instants] != NONE
    depth[instants[inner]] = depth[parent[instants[inner]]] + 1
    found.levels = _levels(depth, parent)
    return found


def place(ranges: HostRanges) -> Placement:
    """Nest the ranges and give each its layer, phase and operator."""
    nested = nest(ranges.thread, ranges.start_ns, ranges.end_ns)
    parent, levels = nested.parent, nested.levels
    said = ranges.said
    sequence = _lookup(said, [NONE if s.sequence is None else s.sequence for s in said], ranges.name)
    backward = _lookup(said, [s.backward for s in said], ranges.name).astype(bool)
    phases = ["forward", "backward", "optimizer"]
    own_phase = _lookup(said, [phases.index(s.phase) if s.phase else NONE for s in said], ranges.name)
    forward = ~backward & (sequence >= 0)
    number = _pair(ranges.process, sequence)
    joined = join_forward(ranges.start_ns, number, forward, backward & (sequence >= 0))
    # Only a number that a backward node carries was drawn; others show the number that is next.
    drawn = forward & np.isin(number, number[backward & (sequence >= 0)])
    own_phase[drawn & (own_phase == NONE)] = phases.index("forward")
    layers = _Paths(said, ranges.name)
    layer = layers.spread(levels, parent, np.full(len(parent), NONE, np.int64))
    fixed = np.full(len(parent), NONE, np.int64)
    nodes = np.flatnonzero(joined != NONE)
    fixed[nodes] = layer[joined[nodes]]
    follow(fixed, ranges.thread, ranges.start_ns, backward, backward & (sequence >= 0))
    if len(nodes):
        layer = layers.spread(levels, parent, fixed)
    ops = sorted({s.op for s in said if s.op is not None})
    place_of = {op: i for i, op in enumerate(ops)}
    own_op = _lookup(said, [NONE if s.op is None else place_of[s.op] for s in said], ranges.name)
    phase, op = own_phase.copy(), own_op.copy()
    for rows in levels:
        above = parent[rows]
        phase[rows] = np.where(own_phase[rows] == NONE, phase[above], own_phase[rows])
        op[rows] = np.where(op[above] == NONE, own_op[rows], op[above])
    unjoined = int(np.count_nonzero(backward & (sequence >= 0) & (joined == NONE)))
    return Placement(layer, phase, op, layers.paths, phases, ops, nested, unjoined)


def _nest(rows: Ints, start_ns: Ints, end_ns: Ints, parent: Ints, depth: Ints) -> int:
    """Fill in parent and depth of one thread's ranges, given in order of start; returns how many ends were cut."""
    ended = np.searchsorted(np.sort(end_ns[rows]), start_ns[rows], side="right")
    level = np.arange(len(rows)) - ended
    up = np.full(len(rows), NONE, np.int64)
    for d in range(1, int(level.max(initial=0)) + 1):
        here, above = np.flatnonzero(level == d), np.flatnonzero(level == d - 1)
        up[here] = above[np.searchsorted(above, here) - 1]
    inner = up != NONE
    if (end_ns[rows[inner]] <= end_ns[rows[up[inner]]]).all():
        parent[rows[inner]] = rows[up[inner]]
        depth[rows] = level
        return 0
    # Ranges that cross: taken one by one, each inside the last one that is open.
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
    """Moments in order, and the innermost open range from each of them on."""
    times = np.concatenate([end_ns[rows], start_ns[rows]])
    states = np.concatenate([parent[rows], rows])
    # At one moment: ends from the inside out, then starts from the outside in.
    position = np.arange(len(rows))
    order = np.lexsort((np.concatenate([-position, position]), np.repeat([0, 1], len(rows)), times))
    return times[order], states[order]


def _levels(depth: Ints, parent: Ints) -> list[Ints]:
    """The ranges that lie in another one, by depth, outermost first."""
    inner = np.flatnonzero(parent != NONE)
    order = inner[np.argsort(depth[inner], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []


def join_forward(start_ns: Ints, number: Ints, forward: Bools, backward: Bools) -> Ints:
    """For each backward node the forward operator whose number it carries: the last one before it, else `NONE`."""
    joined = np.full(len(number), NONE, np.int64)
    made, nodes = np.flatnonzero(forward), np.flatnonzero(backward)
    if not len(made) or not len(nodes):
        return joined
    both = np.concatenate([made, nodes])
    key = number[both]
    order = np.lexsort((start_ns[both], key))
    both, key = both[order], key[order]
    is_forward = forward[both]
    last = np.maximum.accumulate(np.where(is_forward, np.arange(len(both)), NONE))
    found = ~is_forward & (last != NONE)
    found[found] = key[last[found]] == key[found]
    joined[both[found]] = both[last[found]]
    return joined


def follow(layer: Ints, thread: Ints, start_ns: Ints, backward: Bools, leads: Bools) -> None:
    """Give backward nodes that have no number (AccumulateGrad) the layer of the last one before them that leads."""
    nodes = np.flatnonzero(backward)
    nodes = nodes[np.lexsort((start_ns[nodes], thread[nodes]))]
    if not len(nodes):
        return
    own = leads[nodes]
    last = np.maximum.accumulate(np.where(own, np.arange(len(nodes)), NONE))
    take = ~own & (last != NONE)
    take[take] = thread[nodes[last[take]]] == thread[nodes[take]]
    layer[nodes[take]] = layer[nodes[last[take]]]


class _Paths:
    """Layer paths, each once."""

    def __init__(self, said: Sequence[RangeName], name: Ints) -> None:
        self.paths: list[str] = []
        self._index: dict[str, int] = {}
        parts = [s.layer for s in said]
        texts = sorted({part for part in parts if part is not None})
        place_of = {text: i for i, text in enumerate(texts)}
        self._texts = texts
        self._part = _lookup(said, [NONE if part is None else place_of[part] for part in parts], name)
        self._whole = _lookup(said, [s.whole_layer for s in said], name).astype(bool)

    def spread(self, levels: Sequence[Ints], parent: Ints, fixed: Ints) -> Ints:
        """The path of every range, from the outermost in; `fixed` gives some of them theirs."""
        layer = np.full(len(parent), NONE, np.int64)
        for rows in [np.flatnonzero(parent == NONE), *levels]:
            above = np.where(parent[rows] == NONE, NONE, layer[parent[rows]])
            part = self._part[rows]
            path = np.where(part == NONE, above, NONE)
            adds = part != NONE
            above[self._whole[rows]] = NONE
            pairs, which = np.unique((above[adds] + 1) * len(self._texts) + part[adds], return_inverse=True)
            codes = [
                self._code(pair // len(self._texts) - 1, self._texts[pair % len(self._texts)])
                for pair in pairs.tolist()
            ]
            path[adds] = np.array(codes, np.int64)[which]
            layer[rows] = np.where(fixed[rows] == NONE, path, fixed[rows])
        return layer

    def _code(self, above: int, text: str) -> int:
        path = text if above == NONE else f"{self.paths[above]}/{text}"
        if path not in self._index:
            self._index[path] = len(self.paths)
            self.paths.append(path)
        return self._index[path]


def _lookup(said: Sequence[RangeName], values: Sequence[int], name: Ints) -> Ints:
    """One value per range from one value per distinct name."""
    return np.array(values, np.int64)[name] if len(said) else np.zeros(len(name), np.int64)


def _pair(process: Ints, sequence: Ints) -> Ints:
    """Process and sequence number as one number."""
    _, code = np.unique(process, return_inverse=True)
    _, number = np.unique(sequence, return_inverse=True)
    return (code * (int(number.max(initial=0)) + 1) + number).astype(np.int64)


def _groups(key: Ints) -> list[tuple[int, Ints]]:
    """Rows of each distinct key."""
    if not len(key):
        return []
    if (key == key[0]).all():
        return [(int(key[0]), np.arange(len(key)))]
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    return [(int(key[rows[0]]), rows) for rows in np.split(order, edges)]


def _decode(code: Ints, ranges: Ints | Codes, texts: list[str]) -> pa.Array:
    """Strings of the ranges' codes, dictionary-encoded; null for none."""
    if not texts:
        return pa.nulls(len(ranges), pa.dictionary(pa.int32(), pa.string()))
    codes = np.where(ranges == NONE, NONE, code[ranges]) if len(code) else ranges
    indices = pa.array(codes.astype(np.int32), mask=codes == NONE)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
