"""Kernels that a compiler (torch.compile, with Inductor) generated, and the operators that it fused
into each.

The column `kernels.fused` lists these as JSON, `[[layer, operator, share], ...]`, the largest share
first. A share of the kernel's time is modelled: the bytes that the operator alone would move over
those of all; equal parts where shapes are unknown. Without the compiler's own graphs, the kernel's
name tells the operators (torch/_inductor/codegen).
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from .range_names import LAYER_RANGE

# Kineto's annotation around a call of a compiled graph, by torch/_inductor/output_code.py; the name
# is the graph's.
GRAPH_CALL = re.compile(r"## Call CompiledFxGraph (.+) ##")
_GRAPH_NUMBER = re.compile(r"graph_\d+_(?=cpp_)")  # before the names of C++ kernels in profiles
_DIGITS = 4  # of a share
_GENERATED = re.compile(r"(?:triton|cpp)_(?:[a-z]{3}_)?fused_(\w+?)(?:_\d+)?")
_MOST_OPERATORS = 64
_VIEW_NAMES = """view _unsafe_view reshape permute squeeze unsqueeze expand slice select alias t transpose as_strided
detach"""  # noqa: E501
VIEWS = frozenset(f"aten::{name}" for name in _VIEW_NAMES.split())


class OperatorShare(NamedTuple):
    """An operator's part of a fused kernel."""

    layer: str | None  # layer of the operator; None if unknown
    op: str  # operator, e.g. `aten::relu`
    share: float  # its part of the kernel's time, 0 to 1


@dataclass(frozen=True)
class FusedOperator:
    """An operator in a kernel."""

    layer: str | None  # layer; None if unknown
    op: str  # operator, e.g. `aten::relu`
    bytes: int = 0  # bytes that it alone would move; 0 if unknown


@dataclass(frozen=True)
class FusedKernel:
    """A kernel in a compiled graph."""

    # of a generated kernel, or of a library's operator that the graph calls, e.g.
    # `extern_kernels.addmm`
    name: str
    operators: tuple[FusedOperator, ...]  # operators in it
    generated: bool = True  # whether the compiler generated it
    flops: int | None = None  # FLOPs of the operators; None if unknown
    # bytes of what the kernel reads from memory and writes to it; None if unknown
    bytes_compulsory: int | None = None

    @property
    def layer(self) -> str | None:
        """The smallest module that contains all its layers."""
        return common_layer([operator.layer for operator in self.operators])

    def runs(self, event: str) -> bool:
        """Whether an operator of this name in a profile is this kernel."""
        if self.generated:
            return event == self.name
        return event.rpartition("::")[2] in self.name.split(".")


# kernels in order of their calls, by the name of the graph
CompiledGraphs = Mapping[str, Sequence[FusedKernel]]


def common_layer(layers: Iterable[str | None]) -> str | None:
    """The longest path of modules that all layers begin with; None if there is none, or if one is
    unknown.
    """
    paths = [() if layer is None else tuple(layer.split(".")) for layer in dict.fromkeys(layers)]
    if not paths:
        return None
    length = 0
    while all(len(path) > length and path[length] == paths[0][length] for path in paths):
        length += 1
    return ".".join(paths[0][:length]) or None


def shares_of(operators: Iterable[FusedOperator]) -> list[OperatorShare]:
    """The parts of the operators, largest first; equal layers and operators are one.

    The parts add up to 1.
    """
    moved: Counter[tuple[str | None, str]] = Counter()
    for operator in operators:
        moved[operator.layer, operator.op] += operator.bytes
    total = moved.total()
    parts = []
    for key, size in moved.items():
        share = size / total if total else 1 / len(moved)
        parts.append(OperatorShare(*key, share))
    return sorted(parts, key=lambda part: -part.share)


def encode_shares(shares: Sequence[OperatorShare]) -> str | None:
    """The text of the column `fused`; None without an operator."""
    if not shares:
        return None
    rounded = [[share.layer, share.op, round(share.share, _DIGITS)] for share in shares]
    return json.dumps([share for share in rounded if share[2]])


def decode_shares(text: str) -> list[OperatorShare]:
    """The operators in the column `fused`; shares add up to 1. ValueError: the text is damaged."""
    shares = []
    try:
        for layer, op, share in json.loads(text):
            shares.append(OperatorShare(layer, str(op), float(share)))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no list of fused operators: {text[:80]}") from error
    total = sum(member.share for member in shares)
    if not 0 < total < math.inf or not all(map(_is_possible, shares)):
        raise ValueError(f"no parts of operators: {text[:80]}")
    return [member._replace(share=member.share / total) for member in shares]


def _is_possible(part: OperatorShare) -> bool:
    return not part.share < 0 and isinstance(part.layer, str | None)


@cache
def _known_operators() -> frozenset[str]:
    lines = Path(__file__).with_name("operator_names.txt").read_text("utf-8").splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


@lru_cache(maxsize=1 << 14)
def operators_of_name(kernel: str) -> tuple[str, ...]:
    """The operators in the name of a generated kernel, e.g. `aten::relu`; empty for other names.

    Inductor sorts them and joins them by `_`, which they contain, too; unknown words are one of
    another library.
    """
    match = _GENERATED.fullmatch(kernel)
    if match is None:
        return ()
    operators = _known_operators()
    words = match[1].split("_")
    names: list[str] = []
    other: list[str] = []
    at = 0
    while at < len(words) and len(names) < _MOST_OPERATORS:
        ends = range(len(words), at, -1)
        end = next((end for end in ends if "_".join(words[at:end]) in operators), None)
        if end is None:
            other += [] if words[at].isdigit() else [words[at]]
        else:
            names += ["_".join(other)] if any(other) else []
            other = []
            names.append("aten::" + "_".join(words[at:end]))
        at = at + 1 if end is None else end
    return (*names, *(["_".join(other)] if any(other) else []))


def shares_of_name(kernel: str) -> str | None:
    """The column `fused` of a kernel by its name alone, in equal parts; None for kernels that no
    compiler generated.
    """
    operators = operators_of_name(kernel)
    # Views among the operators move nothing, so they have no part beside others.
    moving = [op for op in operators if op not in VIEWS] or operators
    return encode_shares(shares_of(FusedOperator(None, op) for op in moving))


class FusedCall(NamedTuple):
    """One event of a profile."""

    name: str
    start_ns: int
    end_ns: int
    thread: int


def find_kernels(calls: Sequence[FusedCall], graphs: CompiledGraphs) -> dict[int, FusedKernel]:
    """The kernels of compiled graphs among the events of a profile, by the event's index.

    Within a call of a graph they are found by name, in the order of the calls: several may have one
    name.
    """
    by_call: dict[int, FusedKernel] = {}
    named = ((GRAPH_CALL.fullmatch(call.name), call) for call in calls)
    marks = [(match[1], call) for match, call in named if match is not None and match[1] in graphs]
    if not marks:
        return by_call
    order = sorted(
        range(len(calls)), key=lambda index: (calls[index].start_ns, -calls[index].end_ns)
    )
    starts = [calls[index].start_ns for index in order]
    for graph, mark in marks:
        left = list(graphs[graph])
        until = mark.start_ns
        for index in order[bisect_left(starts, mark.start_ns) : bisect_left(starts, mark.end_ns)]:
            call = calls[index]
            if (
                call.thread != mark.thread
                or call.start_ns < until
                or call.end_ns > mark.end_ns
                or call is mark
            ):
                continue
            until = call.end_ns  # events inside another one are its own
            name = plain_name(call.name)
            position = next((i for i, kernel in enumerate(left) if kernel.runs(name)), None)
            if position is not None:
                by_call[index] = left[position]
                del left[: position + 1]
    return by_call


def plain_name(name: str) -> str:
    """The name of a C++ kernel without the number of its graph in the profile."""
    return _GRAPH_NUMBER.sub("", name)


def layer_range(kernel: FusedKernel) -> str | None:
    """Name of a range that places a kernel in its layer; None if it has none."""
    if kernel.layer is None:
        return None
    return LAYER_RANGE + kernel.layer
