"""How many tokens each expert of a mixture has, by the operators of a step.

A mixture is written in one of four ways: a module for each expert (layers `...experts.N...`), a
loop over the parts of one tensor of weights, a batched product of all experts with all tokens, or a
grouped product, whose offsets say how many rows each expert has.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...profiling.recording.operand_numbers import CallNumbers, decode_numbers
from ...profiling.recording.operators import GROUPED, PRODUCTS, TensorArgument, decode_arguments
from ..decompose.repeated_layers import is_of_experts, is_stack_of_experts

_BATCHED = ("bmm", "baddbmm")


class ExpertTokens(NamedTuple):
    """The tokens of the experts of one term."""

    of_each: tuple[int, ...]  # of those that have any, the most first
    experts: int  # number of experts, whether they have any or not
    # whether `of_each` was recorded; else it is even, over as many experts as can have a token
    is_known: bool = True


NO_EXPERTS = ExpertTokens((), 0)  # of a layer without experts


def tokens_of(layer: str, calls: Sequence[Mapping[str, Any]], members: int) -> ExpertTokens:
    """The tokens of the experts in a term.

    Args:
        layer: its layer, or group of layers.
        calls: its rows of the table `operators`.
        members: number of layers of the group.
    """
    if is_of_experts(layer):
        rows: dict[str, int] = {}
        for call, (left, *_), _ in _products(calls):
            own = rows.get(call["layer"], 0)
            rows[call["layer"]] = max(math.prod(left[:-1]), own)
        return _tokens(rows.values(), members)
    by_layer: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for call in calls:
        by_layer[call["layer"]].append(call)
    of_each: list[int] = []
    experts, all_known = 0, True
    for of_layer in by_layer.values():
        stack = _of_stack(layer, of_layer)
        of_each += stack.of_each
        experts += stack.experts
        all_known &= stack.is_known
    return ExpertTokens(tuple(sorted(of_each, reverse=True)), experts, all_known)


def _of_stack(layer: str, calls: Sequence[Mapping[str, Any]]) -> ExpertTokens:
    """The tokens of one module that holds the weights of all its experts; of its products the one
    with the most experts counts.
    """
    groupings = [NO_EXPERTS]
    for _, shapes, numbers in _products(calls, GROUPED):
        groupings.append(_group_calls(shapes, numbers))
    if is_stack_of_experts(layer):
        loops: dict[str, list[int]] = defaultdict(list)
        parts: dict[str, int] = {}
        for call, (left, *others), numbers in _products(calls):
            part = next((operand for operand in numbers.operands.values() if operand.part_of), None)
            if call["op"].removeprefix("aten::") in _BATCHED:
                if _has_parameter(numbers):
                    groupings += [_of_all(left, weights) for weights in others]
            elif part is not None and part.part_of is not None:
                loops[part.part_of] += [math.prod(left[:-1])] * call.get("calls", 1)
                parts[part.part_of] = part.parts
        for name, rows in loops.items():
            if len(rows) <= parts[name]:
                groupings.append(_tokens(rows, parts[name]))
    return max(groupings, key=lambda grouping: (len(grouping.of_each), grouping.experts))


def _group_calls(shapes: Sequence[tuple[int, ...]], numbers: CallNumbers) -> ExpertTokens:
    """Of a grouped product: rows in groups, by their ends, and a matrix for each group."""
    left, weights = shapes[:2]
    if len(left) != 2 or len(weights) != 3:
        return NO_EXPERTS
    experts = weights[0]
    ends = next((operand.values for operand in numbers.operands.values() if operand.values), ())
    if len(ends) == experts:
        rows = [after - before for before, after in pairwise((0, *ends))]
        return _tokens(rows, experts)
    having = min(experts, left[0])
    each, more = divmod(left[0], having or 1)
    even = tuple(each + (index < more) for index in range(having))
    return ExpertTokens(even, experts, is_known=False)


def _has_parameter(numbers: CallNumbers) -> bool:
    return any(operand.parameter is not None for operand in numbers.operands.values())


def _of_all(left: tuple[int, ...], weights: tuple[int, ...]) -> ExpertTokens:
    """Of a batched product of every expert with all tokens."""
    if len(weights) != 3 or weights[0] < 2:
        return NO_EXPERTS
    return _tokens([left[1]] * weights[0], weights[0])


def _tokens(rows: Iterable[int], experts: int) -> ExpertTokens:
    counts = sorted((count for count in rows if count > 0), reverse=True)
    return ExpertTokens(tuple(counts), experts)


def _products(
    calls: Iterable[Mapping[str, Any]], names: frozenset[str] | None = None
) -> Iterator[tuple[Mapping[str, Any], list[tuple[int, ...]], CallNumbers]]:
    """Each product with the shapes of its matrices, without a bias, and its numbers.

    Without `names` it gives the operators of `PRODUCTS`.
    """
    for call in calls:
        op = call["op"]
        if op in names if names else op.removeprefix("aten::") in PRODUCTS:
            matrices = []
            for argument in decode_arguments(call["arguments"]):
                if isinstance(argument, TensorArgument) and len(argument.shape) > 1:
                    matrices.append(argument.shape)
            if matrices:
                yield call, matrices, decode_numbers(call["numbers"])
