"""Finds the outermost operator calls of a step: rows of the table `operators`.

A program calls the outermost operator; running it again runs those that it calls, too. Autograd
nodes and ranges are no operators. An operator that casts its operands and calls itself on the cast
ones (mixed precision) is not outermost, nor is one whose arguments no profiler records in full, if
all it does is call others.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ..recording.operand_numbers import CallNumbers, encode_numbers
from ..recording.operators import (
    Argument,
    TensorArgument,
    TensorList,
    Value,
    decode_arguments,
    encode_arguments,
)
from .columns import flags_of, pick
from .nesting import NONE, Bools, Codes, Ints
from .operation import Operation
from .placement import HostSpans, Placement, name_at
from .source_lines import Watched, WatchedCall, calls_inside, line_rows

_OPERATOR = re.compile(r"(?!autograd::|torch::autograd::|profiler::)\w+::.+")
_IN_PART = ("aten::einsum",)  # the equation is missing
_SCALARS = ("Scalar", "ScalarList", "GenericList")
_LIST = "TensorList"
_NON_FINITE = {"inf", "-inf", "nan"}


@dataclass
class OperatorKernels:
    """The kernels of a step; arrays of shape (kernels,)."""

    span: Ints | Codes  # index of the innermost span around each kernel's launch, or `NONE`
    duration_ns: Ints
    names: Sequence[str]
    on_host: Bools  # whether the host itself did the work


def outermost_operators(spans: HostSpans, placement: Placement) -> Ints:
    """Index of the outermost operator around each span, itself included, or `NONE`;
    shape (spans,).
    """
    count = len(spans.start_ns)
    if spans.call is None or not spans.operations:
        return np.full(count, NONE, np.int64)
    named = flags_of(spans.operations, lambda call: _OPERATOR.fullmatch(call.name) is not None)
    is_operator = (spans.call != NONE) & named[spans.call]
    parent = placement.nest.parent
    inner = is_operator & (parent != NONE)
    again = inner & is_operator[parent] & (spans.name == spans.name[parent])
    for span in np.flatnonzero(again).tolist():
        outer = list(spans.operations[spans.call[parent[span]]].dtypes)
        own = list(spans.operations[spans.call[span]].dtypes)
        if len(outer) == len(own) and outer != own:
            is_operator[parent[span]] = False
    in_part = flags_of(spans.operations, lambda call: call.name in _IN_PART)
    of_operators = np.zeros(count, np.bool_)
    of_operators[parent[is_operator & (parent != NONE)]] = True
    is_operator &= ~(in_part[spans.call] & of_operators)
    return placement.nest.outermost(np.where(is_operator, np.arange(count), NONE))


@dataclass
class OperatorCalls:
    """The outermost operator calls of one step."""

    rows: list[dict[str, Any]]  # rows of the table `operators`, without `batch` and `source`
    row_of: list[int]  # index of the row of each call, in the order of their starts
    faults: list[int] | None = None  # page faults inside each call; None if they were not counted
    # rows of the table `lines`, without `batch`
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def names(self) -> list[tuple[Any, ...]]:
        """Layer, phase and operator of each call."""
        names = [(row["layer"], row["phase"], row["op"]) for row in self.rows]
        return [names[row] for row in self.row_of]


def operator_calls(
    spans: HostSpans,
    placement: Placement,
    outer: Ints,
    kernels: OperatorKernels,
    inside: Bools,
    watched: Watched | None = None,
    thread: int = NONE,
) -> OperatorCalls:
    """The outermost operator calls of one step.

    `outer` is the result of `outermost_operators`, `inside` says whether each span belongs to the
    step, `watched` tells of the inside of the operators, on the spans' clock, and `thread` was
    sampled.
    """
    rows = np.flatnonzero((outer == np.arange(len(outer))) & inside)
    rows = rows[np.argsort(spans.start_ns[rows], kind="stable")]
    ran, device_ns = _kernels_of(outer, kernels)
    if kernels.on_host.all():
        durations_ns = (spans.end_ns[rows] - spans.start_ns[rows]).tolist()
    else:
        durations_ns = [device_ns[span] for span in rows.tolist()]
    encoded: dict[int, str] = {}
    by_key: dict[tuple[int, int, int], dict[str, Any]] = {}
    names: dict[tuple[int, int, int], Counter[str]] = defaultdict(Counter)
    numbers: dict[tuple[int, int, int], int] = {}
    row_of: list[int] = []
    assert spans.call is not None or not len(rows)
    for position, span in enumerate(rows.tolist()):
        number = int(spans.call[span])  # type: ignore[index]
        layer = int(placement.layer[span])
        phase = int(placement.phase[span])
        key = number, layer, phase
        if key not in by_key:
            operation = spans.operations[number]
            if number not in encoded:
                encoded[number] = encode_arguments(list(arguments_of(operation)))
            by_key[key] = {
                "layer": name_at(placement.layers, layer),
                "phase": name_at(placement.phases, phase),
                "op": operation.name,
                "arguments": encoded[number],
                "calls": 0,
                "duration_ns": 0,
                "position": position,
            }
        row_of.append(numbers.setdefault(key, len(numbers)))
        row = by_key[key]
        row["calls"] += 1
        row["duration_ns"] += durations_ns[position]
        names[key].update(ran.get(span, {}))
    for key, row in by_key.items():
        row["kernels"] = " | ".join(name for name, _ in names[key].most_common()) or None
    calls = OperatorCalls(list(by_key.values()), row_of)
    if watched is not None:
        within = calls_inside(spans, rows, watched)
        calls.faults = [sum(call.faults for call in of_call) for of_call in within]
        # Backwards: the first of equal calls counts.
        for number, of_call in zip(reversed(row_of), reversed(within), strict=True):
            row = calls.rows[number]
            row["numbers"] = _numbers(row["arguments"], of_call)
        calls.lines = line_rows(spans, placement, outer, rows, durations_ns, watched, thread)
    return calls


def _numbers(arguments: str, inside: Sequence[WatchedCall]) -> str | None:
    """What the numbers in the arguments of a call were like, seen in the calls inside it; None if
    nobody looked.
    """
    left = [operand for call in inside for operand in call.operands]
    if not left:
        return None
    numbers = CallNumbers(denormal_results=max(call.denormal_results for call in inside))
    for index, argument in enumerate(decode_arguments(arguments)):
        tensor = argument
        if isinstance(argument, TensorList) and argument.tensors:
            tensor = argument.tensors[0]
        if not isinstance(tensor, TensorArgument):
            continue
        elements = prod(tensor.shape)
        for operand in left:
            if operand.elements == elements and tensor.dtype in ("", operand.dtype):
                left.remove(operand)
                numbers.operands[index] = operand
                break
    return encode_numbers(numbers)


def _kernels_of(
    outer: Ints, kernels: OperatorKernels
) -> tuple[dict[int, Counter[str]], Counter[int]]:
    """By outermost operator: time by kernel name, and the time of its kernels on a device."""
    ran: dict[int, Counter[str]] = defaultdict(Counter)
    device_ns: Counter[int] = Counter()
    around = pick(outer, kernels.span) if len(outer) else np.zeros(0, np.int64)
    for kernel in np.flatnonzero(around != NONE).tolist():
        span = int(around[kernel])
        duration_ns = int(kernels.duration_ns[kernel])
        ran[span][kernels.names[kernel]] += duration_ns
        if not kernels.on_host[kernel]:
            device_ns[span] += duration_ns
    return ran, device_ns


def arguments_of(operation: Operation) -> Iterator[Argument]:
    """The arguments of a call, in the order of the operator's schema."""
    for index, dtype in enumerate(operation.dtypes):
        shape = _at(operation.shapes, index)
        strides = _at(operation.strides, index)
        value = _at(operation.concrete, index)
        if dtype.startswith(_LIST):
            unknown = [None] * len(shape)
            inner = strides if strides and len(strides) == len(shape) else unknown
            types = dtype.split("|")[1:] or [""] * len(shape)
            yield TensorList(tuple(map(_tensor, shape, types, inner)))
        elif dtype in _SCALARS or not dtype:
            yield None if value is None or value == "" else Value(value)
        else:
            yield _tensor(shape or (), dtype, strides)


def _at(column: Sequence[Any], index: int) -> Any:
    if index < len(column):
        return column[index]
    return None


def _tensor(shape: Sequence[int], dtype: str, strides: Sequence[int] | None) -> TensorArgument:
    if strides is None or len(strides) != len(shape):
        return TensorArgument(tuple(shape), dtype, None)
    return TensorArgument(tuple(shape), dtype, tuple(strides))


def join_types(types: Sequence[str]) -> str:
    """The entry of `Operation.dtypes` for a list of tensors of known types."""
    return "|".join((_LIST, *types))


def read_scalar(text: Any) -> Any:
    """A scalar argument as a trace writes it, e.g. `[3, 3]`, `True` or `-inf`; None if the trace
    lacks it.
    """
    if not isinstance(text, str):
        return text
    if text in ("True", "False"):
        return text == "True"
    if text.lower() in _NON_FINITE:
        return float(text)
    if not text:
        return None
    try:
        return json.loads(text.replace("True", "true").replace("False", "false"))
    except ValueError:
        return text
