"""Finds the layer, phase and operator of every span of the host, and so of the device work that was
launched in it.

Spans are ranges (NVTX, annotations) and a framework's operators, of every recorder and file format
alike. Rules, in the order of application:
- Work that a thread launches lies in the innermost span of the thread at that moment.
- Layer: a span that names a complete path has this layer; another layer range adds its name to the
  enclosing path.
- A backward node has the layer of the last forward operator before it with its sequence number, in
  its process and on its forward thread. Several forward operators may show one number, because an
  operator without a node does not consume it: the last of them made the node.
- AccumulateGrad nodes carry no number. The engine runs one directly after the node that computes
  its gradient, so it gets the layer of that node.
- Phase: the innermost span with a phase gives it; backward for a backward node. Without one,
  operators that drew a sequence number, and calls of modules, are forward.
- Operator: the outermost operator, up to the innermost enclosing module call or annotation of a
  framework. Inside a call of torch.distributed it is that call, which separates the cost of
  communication beside its collectives (memcpys into buckets and back) from the layer around it. The
  path of operators begins there and leads inwards; shapes are of the outermost operator on it
  with recorded shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ..recording.schema import BACKWARD, FORWARD
from .columns import count_true, factorize, pick
from .nesting import NONE, Bools, Codes, Ints, Nest, nest
from .operation import BatchSource, Operation, batch_of
from .range_names import COMMUNICATION, LONGEST_NAME, MODULE_CALL, RangeName

OPERATOR_SEPARATOR = " > "  # between the operators of a path


@dataclass
class HostSpans:
    """Ranges and operators, one entry each, all arrays of shape (spans,)."""

    start_ns: Ints
    end_ns: Ints
    thread: Ints  # number of the thread, unique over processes
    process: Ints
    name: Ints  # index into `meanings`
    meanings: Sequence[RangeName]  # meaning of each distinct name
    # autograd's sequence number, `NONE` for missing; None if only names carry it
    sequence: Ints | None = None
    # profiler's own number of the thread that drew the sequence number of a backward node, 0 or
    # less if unknown; None if no span has one
    forward_thread: Ints | None = None
    # index into `operations`, `NONE` for spans without shapes; None if no span has any
    call: Ints | None = None
    # distinct operator calls with their arguments
    operations: Sequence[Operation] = field(default=())

    def of_names(self, values: Sequence[int | None]) -> Ints:
        """One value per span from one value per distinct name, `NONE` for None."""
        each = np.array([NONE if value is None else value for value in values], np.int64)
        if len(each):
            return each[self.name]
        return np.zeros(len(self.name), np.int64)

    def where(self, test: Callable[[RangeName], bool]) -> Bools:
        """Whether the meaning of each span passes the test."""
        return self.of_names([test(meaning) for meaning in self.meanings]).astype(np.bool_)

    def encode_texts(self, texts: Sequence[str | None]) -> tuple[list[str], Ints]:
        """The distinct texts of the names, sorted, and each span's index into them."""
        distinct = sorted({text for text in texts if text is not None})
        index = {text: i for i, text in enumerate(distinct)}
        return distinct, self.of_names([None if text is None else index[text] for text in texts])

    @property
    def is_operator(self) -> Bools:
        """Whether each span is an operator."""
        return self.where(lambda meaning: meaning.op is not None)

    def select(self, rows: Bools) -> HostSpans:
        """The spans for which `rows` is true."""
        fields = dict(vars(self))
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                fields[name] = value[rows]
        return HostSpans(**fields)


_SOURCE_WORDS = {
    BatchSource.NAME: "the names of ranges",
    BatchSource.CONVOLUTION: "the input of the first convolution",
    BatchSource.TENSOR: "the first operand with three or more dimensions, whose first extent may "
    "be tokens",
    BatchSource.MATRIX: "the rows of the first matrix product, which may be tokens",
}


# Operators of networks that take tokens.
_TOKENS = re.compile(
    r"embedding|attention|(^|::)sdpa|flash_|rotary|rope|paged|kv_cache", re.IGNORECASE
)


def _takes_tokens(meaning: RangeName) -> bool:
    return _TOKENS.search(meaning.op or "") is not None


@dataclass
class BatchSpans:
    """Spans that tell a batch size, in order of time; arrays of shape (spans,)."""

    batch: Ints  # samples
    source: Ints  # what tells it, a `BatchSource`
    process: Ints
    start_ns: Ints

    @classmethod
    def of(cls, spans: HostSpans) -> BatchSpans:
        """The spans whose names or operands tell a batch size."""
        batch = spans.of_names([meaning.batch or 0 for meaning in spans.meanings])
        source = spans.of_names([meaning.batch_source for meaning in spans.meanings])
        if spans.call is not None and spans.operations:
            pairs = [batch_of(call.name, call.shapes) or (0, 0) for call in spans.operations]
            batch_of_call, source_of_call = np.array(pairs, np.int64).T
            # Where a network takes tokens, rows of products count them: batch times length.
            if spans.where(_takes_tokens).any():
                counts_tokens = source_of_call == BatchSource.MATRIX
                batch_of_call = np.where(counts_tokens, 0, batch_of_call)
                source_of_call = np.where(counts_tokens, 0, source_of_call)
            take = (batch == 0) & (spans.call != NONE)
            batch = np.where(take, batch_of_call[spans.call], batch)
            source = np.where(take, source_of_call[spans.call], source)
        rows = np.flatnonzero(batch)
        rows = rows[np.lexsort((-spans.end_ns[rows], spans.start_ns[rows]))]
        return cls(batch[rows], source[rows], spans.process[rows], spans.start_ns[rows])

    def by_source(self) -> Iterator[tuple[Ints, str]]:
        """Indices of the spans of one source and its description, the most reliable
        source first.
        """
        for source, words in _SOURCE_WORDS.items():
            yield np.flatnonzero(self.source == source), words


@dataclass
class Placement:
    """Layer, phase and operators of each span, `NONE` for none; arrays of shape (spans,)."""

    layer: Ints  # index into `layers`
    phase: Ints  # index into `phases`
    op: Ints  # index into `ops`
    op_path: Ints  # index into `op_paths`
    op_shapes: Ints  # index into `shapes`
    layers: list[str]
    phases: list[str]
    ops: list[str]
    op_paths: list[str]  # paths of operators
    shapes: list[str]  # shapes of the arguments of an operator
    nest: Nest  # nesting of the spans
    unjoined: int  # number of backward nodes without a forward operator

    def take(self, spans: Ints | Codes) -> dict[str, pa.Array]:
        """Columns layer, phase, op, op_path and op_shapes of rows in these spans (`NONE`: in no
        span).
        """
        texts = {"layer": self.layers, "phase": self.phases, "op": self.ops}
        texts |= {"op_path": self.op_paths, "op_shapes": self.shapes}
        columns = {}
        for name, of_codes in texts.items():
            columns[name] = _decode(getattr(self, name), spans, of_codes)
        return columns


def name_at(names: Sequence[str], code: int) -> str | None:
    """The name with this code; None for `NONE`."""
    return None if code == NONE else names[code]


def place(spans: HostSpans) -> Placement:
    """Nest the spans and give each its layer, phase and operator."""
    nested = nest(spans.thread, spans.start_ns, spans.end_ns)
    is_operator = spans.is_operator
    sequence = spans.of_names([meaning.sequence for meaning in spans.meanings])
    if spans.sequence is not None:
        sequence = np.where(spans.sequence == NONE, sequence, spans.sequence)
    accumulates = spans.where(lambda meaning: "AccumulateGrad" in (meaning.op or ""))
    sequence[~is_operator | accumulates] = NONE
    has_number = sequence != NONE
    is_node = spans.where(lambda meaning: meaning.backward)
    if spans.forward_thread is not None:
        is_node |= (spans.forward_thread > 0) & has_number
    draws = ~is_node & has_number
    takes = is_node & has_number
    number = _numbers(spans, sequence, draws, takes)
    joined = join_forward(spans.start_ns, number, draws, takes)

    layers = _layer_paths(spans)
    nothing = np.full(len(number), NONE, np.int64)
    layer = layers.spread(nested, nothing)
    fixed = nothing.copy()
    nodes = np.flatnonzero(joined != NONE)
    fixed[nodes] = layer[joined[nodes]]
    _follow(fixed, spans.thread, spans.start_ns, takes | accumulates, takes)
    if (fixed != NONE).any():
        layer = layers.spread(nested, fixed)

    if spans.sequence is None:
        # A name shows the next number: an operator drew it only if a backward node carries it.
        draws &= np.isin(number, number[takes])
    phase, phases = _find_phases(spans, nested, is_node, draws)
    operators, restarts = _operator_paths(spans)
    op_path = operators.spread(nested, nothing)
    op = np.array([*operators.first, NONE], np.int64)[op_path]  # the last value: no path
    op_shapes, shapes = _shapes(spans, nested, restarts)
    paths = layers.paths, phases, operators.texts, operators.paths, shapes
    unjoined = count_true(takes & (joined == NONE))
    return Placement(layer, phase, op, op_path, op_shapes, *paths, nested, unjoined)


def _find_phases(
    spans: HostSpans, nested: Nest, is_node: Bools, draws: Bools
) -> tuple[Ints, list[str]]:
    """The phase of each span, as an index into the second value.

    Operators that draw a sequence number, and modules, are forward unless a range says otherwise.
    """
    names = [meaning.phase for meaning in spans.meanings]
    others = {name for name in names if name} - {FORWARD, BACKWARD}
    phases = [FORWARD, BACKWARD, *sorted(others)]
    own = spans.of_names([phases.index(name) if name else None for name in names])
    own[is_node] = phases.index(BACKWARD)
    phase = _inherit(own, nested)
    computes = draws | spans.where(lambda meaning: meaning.role == MODULE_CALL)
    is_forward = computes & (phase == NONE)
    return _inherit(np.where(is_forward, phases.index(FORWARD), phase), nested), phases


def _shapes(spans: HostSpans, nested: Nest, restarts: Bools) -> tuple[Ints, list[str]]:
    """The shapes of the outermost operator with shapes around each span, as an index into the
    second value.
    """
    if spans.call is None or not spans.operations:
        return np.full(len(spans.name), NONE, np.int64), []
    texts = [shapes_text(operation.shapes) for operation in spans.operations]
    # the last one: a span without call
    code, distinct = factorize(np.array([*texts, None], object))
    return nested.outermost(code[spans.call], restarts), distinct.tolist()


def shapes_text(shapes: Sequence[Any]) -> str | None:
    """Shapes of tensors as text, e.g. `8x3x32x32, 16x3x3x3`, lists of tensors in brackets; None
    without a tensor.
    """
    texts = (_shape_text(shape) for shape in shapes)
    return ", ".join(text for text in texts if text)[:LONGEST_NAME] or None


def _shape_text(shape: Any) -> str:
    if not isinstance(shape, list | tuple):
        return ""
    if any(isinstance(extent, list | tuple) for extent in shape):
        sizes = ["x".join(map(str, size)) for size in shape if _is_shape(size)]
        return f"[{', '.join(sizes)}]"
    if _is_shape(shape):
        return "x".join(map(str, shape))
    return ""


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list | tuple) and all(isinstance(extent, int) for extent in shape)


def _inherit(own: Ints, nested: Nest) -> Ints:
    value = own.copy()
    parent = nested.parent
    for rows in nested.levels:
        value[rows] = np.where(value[rows] == NONE, value[parent[rows]], value[rows])
    return value


def _numbers(spans: HostSpans, sequence: Ints, draws: Bools, takes: Bools) -> Ints:
    """Process, forward thread and sequence number of each span, combined into one number.

    A forward thread's number stands for the thread of the process that drew most of the sequence
    numbers of its nodes. In a process without such numbers all threads count as one.
    """
    process, processes = factorize(spans.process)
    code, distinct = factorize(sequence)
    thread, threads = factorize(spans.thread)
    forward = np.zeros(len(code), np.int64)
    if spans.forward_thread is not None:
        for serial in range(len(processes)):
            inside = process == serial
            numbers = np.unique(spans.forward_thread[inside & takes]).tolist()
            if not any(number > 0 for number in numbers):
                continue
            forward[inside] = thread[inside]
            drawing = np.unique(thread[inside & draws]).tolist()
            drawn = [np.unique(code[draws & (thread == index)]) for index in drawing]
            for number in numbers if drawn else ():
                nodes = inside & takes & (spans.forward_thread == number)
                taken = np.unique(code[nodes])
                shared = [np.isin(taken, codes).sum() for codes in drawn]
                forward[nodes] = drawing[np.argmax(shared)]
    thread_of_process = process * (len(threads) + 1) + forward
    return np.asarray(thread_of_process * (len(distinct) + 1) + code, np.int64)


def join_forward(start_ns: Ints, number: Ints, forward: Bools, backward: Bools) -> Ints:
    """For each backward node the last forward operator before it with the same number,
    or `NONE`.
    """
    joined = np.full(len(number), NONE, np.int64)
    made = np.flatnonzero(forward)
    nodes = np.flatnonzero(backward)
    if not len(made) or not len(nodes):
        return joined
    both = np.concatenate([made, nodes])
    key = number[both]
    order = np.lexsort((start_ns[both], key))
    both = both[order]
    key = key[order]
    is_forward = forward[both]
    last = np.maximum.accumulate(np.where(is_forward, np.arange(len(both)), NONE))
    joins = ~is_forward & (last != NONE)
    joins[joins] = key[last[joins]] == key[joins]
    joined[both[joins]] = both[last[joins]]
    return joined


def _follow(layer: Ints, thread: Ints, start_ns: Ints, backward: Bools, leads: Bools) -> None:
    """Give backward nodes without a number (AccumulateGrad) the layer of the last node before them
    with one (leads).
    """
    nodes = np.flatnonzero(backward)
    nodes = nodes[np.lexsort((start_ns[nodes], thread[nodes]))]
    if not len(nodes):
        return
    own = leads[nodes]
    last = np.maximum.accumulate(np.where(own, np.arange(len(nodes)), NONE))
    take = ~own & (last != NONE)
    take[take] = thread[nodes[last[take]]] == thread[nodes[take]]
    layer[nodes[take]] = layer[nodes[last[take]]]


def _layer_paths(spans: HostSpans) -> _Paths:
    texts, part = spans.encode_texts([meaning.layer for meaning in spans.meanings])
    whole = spans.where(lambda meaning: meaning.whole_layer)
    return _Paths(texts, part, whole & (part != NONE), "/")


def _operator_paths(spans: HostSpans) -> tuple[_Paths, Bools]:
    ops, own = spans.encode_texts([meaning.op for meaning in spans.meanings])
    begins = spans.where(_begins_path)
    return _Paths(ops, own, begins, OPERATOR_SEPARATOR), begins


def _begins_path(meaning: RangeName) -> bool:
    if meaning.op is None:
        return meaning.role is not None
    return meaning.op.startswith(COMMUNICATION)


class _Paths:
    """Distinct paths, of the texts of spans around each other."""

    def __init__(self, texts: list[str], part: Ints, restarts: Bools, separator: str) -> None:
        self.texts = texts  # distinct ones
        # distinct, of at most `LONGEST_NAME` characters: further texts inside are left out
        self.paths: list[str] = []
        self.first: list[int] = []  # index of the first text of each path
        self._part = part
        self._restarts = restarts
        self._separator = separator
        self._index: dict[str, int] = {}

    def spread(self, nested: Nest, fixed: Ints) -> Ints:
        """The path of every span, from the outermost inwards; spans with a path in `fixed` have
        that one.
        """
        parent = nested.parent
        count = len(self.texts)
        layer = np.full(len(parent), NONE, np.int64)
        for rows in [np.flatnonzero(parent == NONE), *nested.levels]:
            above = pick(layer, parent[rows])
            above[self._restarts[rows]] = NONE
            part = self._part[rows]
            adds = part != NONE
            path = np.where(adds, NONE, above)
            numbers = (above[adds] + 1) * count + part[adds]
            pairs, which = np.unique(numbers, return_inverse=True)
            codes = np.zeros(len(pairs), np.int64)
            for index, pair in enumerate(pairs.tolist()):
                code, text = divmod(pair, count)
                codes[index] = self._code(code - 1, text)
            path[adds] = codes[which]
            layer[rows] = np.where(fixed[rows] == NONE, path, fixed[rows])
        return layer

    def _code(self, above: int, text: int) -> int:
        if above == NONE:
            path = self.texts[text]
        else:
            path = f"{self.paths[above]}{self._separator}{self.texts[text]}"
        if above != NONE and len(path) > LONGEST_NAME:
            return above
        if path not in self._index:
            self._index[path] = len(self.paths)
            self.paths.append(path)
            self.first.append(text if above == NONE else self.first[above])
        return self._index[path]


def _decode(code: Ints, spans: Ints | Codes, texts: list[str]) -> pa.Array:
    if not texts:
        return pa.nulls(len(spans), pa.dictionary(pa.int32(), pa.string()))
    codes = pick(code, spans) if len(code) else spans
    indices = pa.array(codes.astype(np.int32), mask=codes == NONE)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
