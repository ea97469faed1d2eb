"""Which layer, phase and operator every span of the host has, and so the device work that was launched in it.

Spans are ranges (NVTX, annotations) and a framework's operators, of every recorder and file format alike. Rules, in the
order they apply:
- Work that a thread launches lies in the innermost span of the thread at that moment.
- Layer: a span that names a whole path has it; another layer range adds its name to the path of what is around it.
- A backward node has the layer of the last forward operator before it, in its process and on its forward thread, with
  its sequence number. Several forward operators may show one number (one that made no node does not use it up): the
  last of them made the node.
- AccumulateGrad nodes carry no number; the engine runs them right after the node whose gradient they take, and they get
  its layer.
- Phase: the innermost span that tells; backward for a backward node. Where nothing around them tells, operators that
  drew a sequence number, and calls of modules, are forward.
- Operator: the outermost one around it, back to the innermost module's call or annotation of a framework; inside a call
  of torch.distributed it is that call, so that what communication costs beside its collectives (copies into buckets
  and back) is told from the layer it runs under.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from .nesting import NONE, Bools, Codes, Ints, Nest, nest
from .operator_work import Operation, batch_of
from .range_names import COMMUNICATION, MODULE_CALL, RangeName

FORWARD, BACKWARD = "forward", "backward"


@dataclass
class HostSpans:
    """Ranges and operators, one entry each, all arrays of shape (spans,).

    Attributes:
        start_ns: starts.
        end_ns: ends.
        thread: number of the thread, unique over processes.
        process: number of the process.
        name: index into `said`.
        said: what each distinct name says.
        sequence: autograd's number, `NONE` where there is none; None where only names tell it.
        forward_thread: of backward nodes the profiler's own number of the thread that drew their sequence number; 0 or
            less where that is not known; None where it never is.
        call: index into `operations`; `NONE` where no shapes were recorded; None where they never were.
        operations: what operators were called with, each distinct call once.
    """

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    process: Ints
    name: Ints
    said: Sequence[RangeName]
    sequence: Ints | None = None
    forward_thread: Ints | None = None
    call: Ints | None = None
    operations: Sequence[Operation] = field(default=())

    def of_names(self, values: Sequence[int | None]) -> Ints:
        """One value per span from one value per distinct name, `NONE` for None."""
        each = np.array([NONE if value is None else value for value in values], np.int64)
        return each[self.name] if len(each) else np.zeros(len(self.name), np.int64)

    @property
    def is_operator(self) -> Bools:
        """Whether each span is an operator."""
        return self.of_names([said.op is not None for said in self.said]).astype(np.bool_)

    def batches(self) -> Ints:
        """Samples in a step, as each span's name or shapes tell; 0 where they do not."""
        told = self.of_names([said.batch or 0 for said in self.said])
        if self.call is not None and self.operations:
            of_call = np.array([batch_of(one.name, one.shapes) or 0 for one in self.operations], np.int64)
            told = np.where((told == 0) & (self.call != NONE), of_call[self.call], told)
        return told

    def select(self, rows: Bools) -> HostSpans:
        """Some of the spans."""
        values = {name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return HostSpans(**{**vars(self), **values})


@dataclass
class Placement:
    """Where each span lies; code columns have `NONE` for nothing.

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

    def take(self, spans: Ints | Codes) -> dict[str, pa.Array]:
        """Columns layer, phase and op for things that lie in these spans (`NONE`: in no span)."""
        return {
            "layer": _decode(self.layer, spans, self.layers),
            "phase": _decode(self.phase, spans, self.phases),
            "op": _decode(self.op, spans, self.ops),
        }


def place(spans: HostSpans) -> Placement:
    """Nest the spans and give each its layer, phase and operator."""
    nested, said = nest(spans.thread, spans.start_ns, spans.end_ns), spans.said
    is_operator = spans.is_operator
    sequence = spans.of_names([one.sequence for one in said])
    if spans.sequence is not None:
        sequence = np.where(spans.sequence == NONE, sequence, spans.sequence)
    accumulates = spans.of_names(["AccumulateGrad" in (one.op or "") for one in said]).astype(np.bool_)
    sequence[~is_operator | accumulates] = NONE
    is_node = spans.of_names([one.backward for one in said]).astype(np.bool_)
    if spans.forward_thread is not None:
        is_node |= (spans.forward_thread > 0) & (sequence != NONE)
    draws, takes = ~is_node & (sequence != NONE), is_node & (sequence != NONE)
    number = _numbers(spans, sequence, draws, takes)
    joined = join_forward(spans.start_ns, number, draws, takes)

    layers = _Paths(spans)
    layer = layers.spread(nested, np.full(len(number), NONE, np.int64))
    fixed = np.full(len(number), NONE, np.int64)
    nodes = np.flatnonzero(joined != NONE)
    fixed[nodes] = layer[joined[nodes]]
    follow(fixed, spans.thread, spans.start_ns, takes | accumulates, takes)
    if (fixed != NONE).any():
        layer = layers.spread(nested, fixed)

    phases = sorted({one.phase for one in said if one.phase} - {FORWARD, BACKWARD})
    phases = [FORWARD, BACKWARD, *phases]
    own_phase = spans.of_names([phases.index(one.phase) if one.phase else None for one in said])
    own_phase[is_node] = phases.index(BACKWARD)
    phase = _inherit(own_phase, nested)
    if spans.sequence is None:
        # A name shows the number that is next: only what a backward node carries was drawn.
        draws &= np.isin(number, number[takes])
    computes = draws | spans.of_names([one.role == MODULE_CALL for one in said]).astype(np.bool_)
    phase = _inherit(np.where(computes & (phase == NONE), phases.index(FORWARD), phase), nested)

    op, ops = _operators(spans, nested)
    unjoined = int(np.count_nonzero(takes & (joined == NONE)))
    return Placement(layer, phase, op, layers.paths, phases, ops, nested, unjoined)


def _operators(spans: HostSpans, nested: Nest) -> tuple[Ints, list[str]]:
    """The operator of each span, as an index into the second value."""
    ops = sorted({said.op for said in spans.said if said.op is not None})
    place_of = {op: i for i, op in enumerate(ops)}
    own = spans.of_names([None if said.op is None else place_of[said.op] for said in spans.said])
    is_call = spans.of_names([(said.op or "").startswith(COMMUNICATION) for said in spans.said]).astype(np.bool_)
    begins = spans.of_names([said.op is None and said.role is not None for said in spans.said]).astype(np.bool_)
    found, parent = own.copy(), nested.parent
    for rows in nested.levels:
        above = found[parent[rows]]
        alone = (above == NONE) | begins[rows] | is_call[rows]
        found[rows] = np.where(alone, own[rows], above)
    return found, ops


def _inherit(own: Ints, nested: Nest) -> Ints:
    """The innermost value around each span, its own first."""
    found, parent = own.copy(), nested.parent
    for rows in nested.levels:
        found[rows] = np.where(found[rows] == NONE, found[parent[rows]], found[rows])
    return found


def _numbers(spans: HostSpans, sequence: Ints, draws: Bools, takes: Bools) -> Ints:
    """Process, forward thread and sequence number of each span as one number.

    The profiler numbers forward threads in its own way: the thread meant is the one of the process that drew the most
    of the sequence numbers that nodes with that number carry. Where no node tells its thread, the process alone counts.
    """
    process, processes = pd.factorize(spans.process)
    code, distinct = pd.factorize(sequence)
    thread, threads = pd.factorize(spans.thread)
    meant = np.zeros(len(code), np.int64)
    if spans.forward_thread is not None:
        for one in range(len(processes)):
            mine = process == one
            told = np.unique(spans.forward_thread[mine & takes]).tolist()
            if not any(number > 0 for number in told):
                continue
            meant[mine] = thread[mine]
            drawing = np.unique(thread[mine & draws]).tolist()
            drawn = [np.unique(code[draws & (thread == place)]) for place in drawing]
            for number in told if drawn else ():
                nodes = mine & takes & (spans.forward_thread == number)
                taken = np.unique(code[nodes])
                meant[nodes] = drawing[np.argmax([np.isin(taken, numbers).sum() for numbers in drawn])]
    return np.asarray((process * (len(threads) + 1) + meant) * (len(distinct) + 1) + code, np.int64)


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

    def __init__(self, spans: HostSpans) -> None:
        self.paths: list[str] = []
        self._index: dict[str, int] = {}
        self._texts = sorted({said.layer for said in spans.said if said.layer is not None})
        place_of = {text: i for i, text in enumerate(self._texts)}
        self._part = spans.of_names([None if said.layer is None else place_of[said.layer] for said in spans.said])
        self._whole = spans.of_names([said.whole_layer for said in spans.said]).astype(np.bool_)

    def spread(self, nested: Nest, fixed: Ints) -> Ints:
        """The path of every span, from the outermost in; `fixed` gives some of them theirs."""
        parent = nested.parent
        layer = np.full(len(parent), NONE, np.int64)
        for rows in [np.flatnonzero(parent == NONE), *nested.levels]:
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


def _decode(code: Ints, spans: Ints | Codes, texts: list[str]) -> pa.Array:
    """Strings of the spans' codes, dictionary-encoded; null for none."""
    if not texts:
        return pa.nulls(len(spans), pa.dictionary(pa.int32(), pa.string()))
    codes = np.where(spans == NONE, NONE, code[spans]) if len(code) else spans
    indices = pa.array(codes.astype(np.int32), mask=codes == NONE)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
