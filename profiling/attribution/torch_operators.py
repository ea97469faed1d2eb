"""Operators of PyTorch's host threads, as columns: how they nest, their layers and phases, and the work they do.

The rules are those of `attribution.events`, where rows are few enough to be objects:
- A layer and a phase are the innermost enclosing ranges that tell one; an operator inside of another has that one's.
- An operator that shows a sequence number is in the forward pass, unless it names a forward thread: that is a backward
  node, and has the layer of the last forward operator before it that drew the number on that thread.
- AccumulateGrad nodes carry no number; the engine runs them right after the node whose gradient they take.
- The work of an operator's call is counted once, at the outermost operator whose work is known, on its longest kernel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..measure.visit import count_work
from .events import LAYER_RANGE, NODE_PREFIX, PHASE_RANGE, Operation
from .nesting import NONE, Bools, Codes, Ints, Placement, follow, join_forward, nest
from .timeline import DeviceWork, Timeline

MODULE = "nn.Module: "
_OPTIMIZER = "Optimizer.step#"
# Operators whose operand of this place has the batch as its first extent.
_BATCH_OPERAND = {f"aten::{name}": 0 for name in ("conv1d", "conv2d", "conv3d", "convolution", "linear", "matmul")}
_BATCH_OPERAND |= {"aten::mm": 0, "aten::addmm": 1}


@dataclass
class HostEvents:
    """Operators and ranges of one process in any order, arrays of shape (events,).

    Texts go by their place among the texts of the trace. Missing numbers are `NONE`.
    """

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    name: Codes
    is_range: Bools
    sequence: Ints
    forward_thread: Ints  # the profiler's own number; over 0 for backward nodes
    shapes: Codes
    concrete: Codes
    dtypes: Codes


class TorchOperators:
    """Where the events lie, and what they know.

    Attributes:
        placement: by the index of the event.
    """

    def __init__(self, events: HostEvents, texts: Sequence[str]) -> None:
        self._events, self._texts = events, texts
        self._nest = nest(events.thread, events.start_ns, events.end_ns)
        self._is_operator = ~events.is_range
        code, names = pd.factorize(events.name)
        self._name_code: Ints = code
        self._names = [texts[name] for name in names.tolist()]
        layer, layers, phase, phases, unjoined = self._layers_and_phases()
        ops = [name.removeprefix(NODE_PREFIX) for name in self._names]
        op = _at(code, self._outermost())
        self.placement = Placement(layer, phase, op, layers, phases, ops, self._nest, unjoined)

    def segments(self) -> tuple[Ints, Ints, Codes]:
        """What each operator's children leave of it, as starts, ends and events, in order of start."""
        none = np.zeros(0, np.int64)
        pieces = [(none, none, none.astype(np.int32))]
        for times, states in self._nest.timelines.values():
            rows = np.flatnonzero((states[:-1] != NONE) & (times[1:] > times[:-1]))
            rows = rows[self._is_operator[states[rows]]]
            pieces.append((times[rows], times[rows + 1], states[rows].astype(np.int32)))
        start, end, event = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        order = np.argsort(start, kind="stable")
        return start[order], end[order], event[order]

    def count_work(self, work: DeviceWork) -> dict[str, pa.Array]:
        """Columns flops and bytes_compulsory of all device work."""
        amounts, call = self._calls()
        for rows in self._nest.levels:  # from the outside in
            above = call[self._nest.parent[rows]]
            call[rows] = np.where(above == NONE, call[rows], above)
        of_row = _at(call, work.range_)
        rows = np.flatnonzero((of_row != NONE) & work.timed & (work.kernel_name != NONE))
        duration = work.end_ns[rows] - work.start_ns[rows]
        rows = rows[np.lexsort((-rows, duration, of_row[rows]))]  # of the longest of a call the first comes last
        rows = rows[np.append(np.diff(of_row[rows]) != 0, [True] * (len(rows) > 0)).astype(bool)]
        counted = {}
        for name, known in zip(("flops", "bytes_compulsory"), amounts, strict=True):
            values = np.full(len(of_row), NONE, np.int64)
            values[rows] = known[of_row[rows]]
            counted[name] = pa.array(values, mask=values == NONE)
        return counted

    def batches(self, built: Timeline) -> list[int | None]:
        """The batch that the first operator in each step tells by its shapes."""
        events = self._events
        batches: list[int | None] = [None] * len(built.step_rows)
        rows = np.flatnonzero(self._named(_BATCH_OPERAND.__contains__) & (events.shapes != NONE))
        rows = rows[np.lexsort((-events.end_ns[rows], events.start_ns[rows]))]
        step = built.marked.step_of(np.full(len(rows), NONE), events.start_ns[rows])
        batch_of = cache(self._batch_of)
        for row, at in zip(rows.tolist(), step.tolist(), strict=True):
            if at != NONE and batches[at] is None:
                batches[at] = batch_of(int(self._name_code[row]), int(events.shapes[row]))
        return batches

    def _batch_of(self, name: int, shapes: int) -> int | None:
        place, listed = _BATCH_OPERAND[self._names[name]], self._list(shapes)
        shape = listed[place] if len(listed) > place else None
        told = shape[0] if isinstance(shape, list) and shape else None
        return told if isinstance(told, int) and 0 < told < 1 << 31 else None

    def _layers_and_phases(self) -> tuple[Ints, list[str], Ints, list[str], int]:
        """Layer and phase of each event, their texts, and the number of backward nodes without their forward one."""
        events, is_operator = self._events, self._is_operator
        layers, phases = list[str](), ["forward", "backward", "optimizer"]
        label = np.full((2, len(self._names)), NONE)
        for code, name in enumerate(self._names):
            if name.startswith((MODULE, LAYER_RANGE)):
                label[0, code] = len(layers)
                layers.append(name.removeprefix(MODULE).removeprefix(LAYER_RANGE))
            elif name.startswith((PHASE_RANGE, _OPTIMIZER)):
                phase = "optimizer" if name.startswith(_OPTIMIZER) else name.removeprefix(PHASE_RANGE)
                if phase not in phases:
                    phases.append(phase)
                label[1, code] = phases.index(phase)
        own_layer, own_phase = np.where(events.is_range, label[:, self._name_code], NONE)
        backward = is_operator & (events.forward_thread > 0) & (events.sequence >= 0)
        draws = is_operator & ~backward & (events.sequence >= 0)
        accumulates = is_operator & self._named(lambda name: "AccumulateGrad" in name)
        own_phase[draws & self._is_outer()] = phases.index("forward")
        own_phase[backward | accumulates] = phases.index("backward")
        number = self._numbers(draws, backward)
        joined = join_forward(events.start_ns, number, draws, backward)
        layer = self._inherit(own_layer)
        fixed = _at(layer, joined)
        follow(fixed, events.thread, events.start_ns, (joined != NONE) | accumulates, joined != NONE)
        if (fixed != NONE).any():
            layer = self._inherit(np.where(fixed == NONE, own_layer, fixed))
        unjoined = np.count_nonzero(backward & ~np.isin(number, number[draws]))
        return layer, layers, self._inherit(own_phase), phases, int(unjoined)

    def _numbers(self, draws: Bools, backward: Bools) -> Ints:
        """Thread and sequence number as one number; a backward node's is the one of its forward operator.

        The profiler numbers forward threads in its own way: the thread meant is the one that drew the most of the
        sequence numbers that nodes with that number carry.
        """
        events = self._events
        sequence, distinct = pd.factorize(events.sequence)
        thread, threads = pd.factorize(events.thread)
        drawn = [np.unique(sequence[draws & (thread == place)]) for place in range(len(threads))]
        meant = thread.copy()
        for name in np.unique(events.forward_thread[backward]).tolist():
            nodes = backward & (events.forward_thread == name)
            taken = np.unique(sequence[nodes])
            meant[nodes] = np.argmax([np.isin(taken, numbers).sum() for numbers in drawn])
        return np.asarray(meant * len(distinct) + sequence, np.int64)

    def _calls(self) -> tuple[tuple[Ints, Ints], Ints]:
        """FLOPs and bytes of each operator's call whose work is known, and the number of the call, else `NONE`."""
        events = self._events
        call = np.full(len(events.name), NONE, np.int64)
        rows = np.flatnonzero(self._is_operator & (events.shapes != NONE))
        code = self._name_code[rows]
        for column in (events.shapes, events.concrete, events.dtypes):
            code, _ = pd.factorize(code * (len(self._texts) + 1) + column[rows] + 1)
        first = np.zeros(int(code.max(initial=-1)) + 1, np.int64)
        first[code[::-1]] = rows[::-1]
        known = [self._work(row) for row in first.tolist()]
        flops, size = np.array(known, np.int64).reshape(-1, 2).T
        there = (flops[code] != NONE) | (size[code] != NONE)
        call[rows[there]] = np.arange(np.count_nonzero(there))
        return (flops[code[there]], size[code[there]]), call

    def _work(self, row: int) -> tuple[int, int]:
        events = self._events
        shapes = self._list(int(events.shapes[row]))
        if not shapes:
            return NONE, NONE
        name, dtypes, concrete = (
            self._texts[events.name[row]],
            self._list(int(events.dtypes[row])),
            self._list(int(events.concrete[row])),
        )
        flops, size = count_work(Operation(name, shapes, dtypes, concrete))
        return NONE if flops is None else flops, NONE if size is None else size

    def _list(self, text: int) -> list[Any]:
        found = [] if text == NONE else json.loads(self._texts[text])
        return found if isinstance(found, list) else []

    def _named(self, test: Callable[[str], bool]) -> Bools:
        """The events whose name passes."""
        return np.array([test(name) for name in self._names], np.bool_)[self._name_code]

    def _is_outer(self) -> Bools:
        """The events that do not lie in an operator directly."""
        parent = self._nest.parent
        outer: Bools = (parent == NONE) | ~self._is_operator[parent]
        return outer

    def _outermost(self) -> Ints:
        """The outermost operator around each operator, itself included; `NONE` for ranges."""
        found = np.where(self._is_operator, np.arange(len(self._is_operator)), NONE)
        inner = self._is_operator & ~self._is_outer()
        for rows in self._nest.levels:
            rows = rows[inner[rows]]
            found[rows] = found[self._nest.parent[rows]]
        return found

    def _inherit(self, own: Ints) -> Ints:
        """The innermost value around each event, its own first."""
        found, parent = own.copy(), self._nest.parent
        for rows in self._nest.levels:
            found[rows] = np.where(found[rows] == NONE, found[parent[rows]], found[rows])
        return found


def _at(values: Ints, places: Ints | Codes) -> Ints:
    """Values at places; `NONE` where the place is `NONE`."""
    if not len(values):
        return np.full(len(places), NONE, np.int64)
    return np.where(places == NONE, NONE, values[places])
