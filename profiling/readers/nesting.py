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
class Placement:
    """Where each range lies; code columns have `NONE` for nothing.

    Attributes:
        layer: index into `layers`.
        phase: index into `phases`.
        op: index into `ops`.
        layers: paths.
        phases: phases.
        ops: operators.
        cut: ranges that outlasted the one around them.
        unjoined: backward nodes whose forward operator was not found.
    """

    layer: Ints
    phase: Ints
    op: Ints
    layers: list[str]
    phases: list[str]
    ops: list[str]
    cut: int
    unjoined: int
    _timelines: dict[int, tuple[Ints, Ints]]

    def innermost(self, thread: Ints, moment_ns: Ints) -> Ints:
        """The innermost range around each (thread, moment); `NONE` where there is none. Shape (moments,)."""
        found = np.full(len(moment_ns), NONE, np.int64)
        for key, rows in _groups(thread):
            if (timeline := self._timelines.get(key)) is not None:
                times, states = timeline
                at = np.searchsorted(times, moment_ns[rows], side="right") - 1
                found[rows] = np.where(at >= 0, states[at], NONE)
        return found

    def take(self, ranges: Ints | Codes) -> dict[str, pa.Array]:
        """Columns layer, phase and op for things that lie in these ranges (`NONE`: in no range)."""
        return {
            "layer": _decode(self.layer, ranges, self.layers),
            "phase": _decode(self.phase, ranges, self.phases),
            "op": _decode(self.op, ranges, self.ops),
        }


def place(ranges: HostRanges) -> Placement:
    """Nest the ranges and give each its layer, phase and operator."""
    parent = np.full(len(ranges.start_ns), NONE, np.int64)
    depth = np.zeros(len(ranges.start_ns), np.int64)
    end_ns = ranges.end_ns.copy()
    timelines: dict[int, tuple[Ints, Ints]] = {}
    cut = 0
    for thread, rows in _groups(ranges.thread):
        rows = rows[end_ns[rows] > ranges.start_ns[rows]]  # an instant contains nothing
        rows = rows[np.lexsort((-end_ns[rows], ranges.start_ns[rows]))]
        cut += _nest(rows, ranges.start_ns, end_ns, parent, depth)
        if len(rows):
            timelines[thread] = _timeline(rows, ranges.start_ns, end_ns, parent)
    levels = _levels(depth, parent)
    said = ranges.said
    sequence = _lookup(said, [NONE if s.sequence is None else s.sequence for s in said], ranges.name)
    backward = _lookup(said, [s.backward for s in said], ranges.name).astype(bool)
    phases = ["forward", "backward", "optimizer"]
    own_phase = _lookup(said, [phases.index(s.phase) if s.phase else NONE for s in said], ranges.name)
    forward = ~backward & (sequence >= 0)
    joined = _join(ranges, sequence, forward, backward)
    # Only a number that a backward node carries was drawn; others show the number that is next.
    drawn = forward & np.isin(
        _pair(ranges.process, sequence), _pair(ranges.process, sequence)[backward & (sequence >= 0)]
    )
    own_phase[drawn & (own_phase == NONE)] = phases.index("forward")
    layers = _Paths(said, ranges.name)
    layer = layers.spread(levels, parent, np.full(len(parent), NONE, np.int64))
    fixed = np.full(len(parent), NONE, np.int64)
    nodes = np.flatnonzero(joined != NONE)
    fixed[nodes] = layer[joined[nodes]]
    _follow(fixed, ranges, backward, sequence)
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
    return Placement(layer, phase, op, layers.paths, phases, ops, cut, unjoined, timelines)


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


def _join(ranges: HostRanges, sequence: Ints, forward: Bools, backward: Bools) -> Ints:
    """For each backward node the forward operator whose number it carries: the last one before it."""
    joined = np.full(len(sequence), NONE, np.int64)
    made, nodes = np.flatnonzero(forward), np.flatnonzero(backward & (sequence >= 0))
    if not len(made) or not len(nodes):
        return joined
    both = np.concatenate([made, nodes])
    key = _pair(ranges.process, sequence)[both]
    order = np.lexsort((ranges.start_ns[both], key))
    both, key = both[order], key[order]
    is_forward = forward[both]
    last = np.maximum.accumulate(np.where(is_forward, np.arange(len(both)), NONE))
    found = ~is_forward & (last != NONE)
    found[found] = key[last[found]] == key[found]
    joined[both[found]] = both[last[found]]
    return joined


def _follow(fixed: Ints, ranges: HostRanges, backward: Bools, sequence: Ints) -> None:
    """Give nodes without a number (AccumulateGrad) the layer of the node before them on their thread."""
    nodes = np.flatnonzero(backward)
    nodes = nodes[np.lexsort((ranges.start_ns[nodes], ranges.thread[nodes]))]
    if not len(nodes):
        return
    own = sequence[nodes] >= 0
    last = np.maximum.accumulate(np.where(own, np.arange(len(nodes)), NONE))
    take = ~own & (last != NONE)
    take[take] = ranges.thread[nodes[last[take]]] == ranges.thread[nodes[take]]
    fixed[nodes[take]] = fixed[nodes[last[take]]]


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
