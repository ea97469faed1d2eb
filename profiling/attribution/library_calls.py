"""What the CPU ran: the operators' own time, and among it the calls of oneDNN and MKL that they made.

What an operator's children and library calls leave of it is its own time, in rows of its own, so that the rows of one
thread never overlap and with idle add up to the step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from .nesting import NONE, Bools, Ints, Nest

_BATCHED_OPERATORS = {"aten::bmm", "aten::baddbmm"}
_GEMM_OPERATORS = {f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "linear", "addmv", "mv", "dot")}


@dataclass(frozen=True)
class Primitive:
    """One executed oneDNN primitive. `name` is primitive, propagation kind and implementation."""

    name: str
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class MklCall:
    """One MKL call; `sizes` are its leading integer arguments: m, n, k of a GEMM."""

    name: str
    sizes: tuple[int, ...]
    duration_ns: int


@dataclass
class VerboseLog:
    """What the libraries said between start and end of a capture."""

    primitives: list[Primitive] = field(default_factory=list)
    mkl_calls: list[MklCall] = field(default_factory=list)
    untimed: int = 0  # primitives whose line carried no timestamp
    other: list[str] = field(default_factory=list)  # lines of the program itself


def own_time(nested: Nest, is_operator: Bools) -> tuple[Ints, Ints, Ints]:
    """What each operator's children leave of it, as starts, ends and spans, in order of start."""
    pieces = [(np.zeros(0, np.int64),) * 3]
    for times, states in nested.timelines.values():
        rows = np.flatnonzero((states[:-1] != NONE) & (times[1:] > times[:-1]))
        rows = rows[is_operator[states[rows]]]
        pieces.append((times[rows], times[rows + 1], states[rows]))
    start, end, span = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
    order = np.argsort(start, kind="stable")
    return start[order], end[order], span[order]


class Operators(NamedTuple):
    """The operators of some host threads, and what places library calls in them; lists by span."""

    start_ns: list[int]
    end_ns: list[int]  # cut to that of the span around
    duration_ns: list[int]
    parent: list[int]
    names: list[str | None]  # None for what calls no library: ranges, and collectives, which run beside the operators
    extents: Mapping[int, set[int]]  # of the operands of a product

    def innermost(self, in_order: Sequence[int], starts: Sequence[int], moment_ns: int) -> int:
        """The operator around a moment, of those in order of start; `NONE` where there is none."""
        at = bisect_right(starts, moment_ns) - 1
        span = in_order[at] if at >= 0 else NONE
        while span != NONE and self.end_ns[span] <= moment_ns:
            span = self.parent[span]
        return span if span != NONE and self.names[span] is not None else NONE

    def multiplies(self, span: int, call: MklCall) -> bool:
        """Whether the call can be the operator's: batched for batched, and extents m, n, k of the shapes in any order.

        MKL prints the extents of a batched product as pointers: those go by order and by fitting into their operator.
        """
        if call.duration_ns > self.duration_ns[span]:
            return False
        if "BATCH" in call.name:
            return self.names[span] in _BATCHED_OPERATORS
        extents = self.extents.get(span, set())
        return bool(call.sizes) and all(size in extents or size == 1 for size in call.sizes[:3])


class Stretch(NamedTuple):
    """Time of an operator: its own, or a library's call, by its name and the library."""

    span: int
    start_ns: int
    end_ns: int
    name: str | None = None
    source: str = "torch"


class LibraryCalls:
    """Puts library calls into the own time of operators.

    Attributes:
        lost: named counts of what could not be placed.
    """

    def __init__(self, operators: Operators, own: tuple[Ints, Ints, Ints]) -> None:
        self.lost: Counter[str] = Counter()
        self._operators = operators
        self._own = own
        self._by_span = np.argsort(own[2], kind="stable")
        self._spans = own[2][self._by_span]
        self._free: dict[int, list[tuple[int, int]]] = {}  # own time of the operators that have calls
        self._calls: list[Stretch] = []

    def place(self, log: VerboseLog) -> None:
        """Put primitives and MKL calls under the operators that ran them."""
        operators = self._operators
        spans = [span for span, name in enumerate(operators.names) if name is not None]
        spans.sort(key=lambda span: (operators.start_ns[span], -operators.duration_ns[span]))
        starts = [operators.start_ns[span] for span in spans]
        for primitive in log.primitives:
            span = operators.innermost(spans, starts, primitive.start_ns + primitive.duration_ns // 2)
            if span == NONE:
                self.lost["primitives_outside_operators"] += 1
            else:
                self._put(span, primitive.name, primitive.start_ns, primitive.duration_ns, "onednn")
        calls = list(log.mkl_calls)
        products = [span for span in spans if operators.names[span] in _GEMM_OPERATORS]
        calling = {operators.parent[span] for span in products}
        for span in products:
            place = next((i for i, call in enumerate(calls) if operators.multiplies(span, call)), None)
            if span not in calling and place is not None:
                call = calls.pop(place)
                # The multiplication is the last thing its operator does; views and copies of operands come before it.
                self._put(span, call.name, operators.end_ns[span] - call.duration_ns, call.duration_ns, "mkl")
        self.lost["mkl_calls_not_placed"] += len(calls)
        self.lost["primitives_without_time"] += log.untimed

    def rows(self) -> list[Stretch]:
        """All time of the operators, in order of start; rows of one thread never overlap."""
        left = ~np.isin(self._own[2], list(self._free))
        start, end, span = (column[left].tolist() for column in self._own)
        cut = [Stretch(span, *piece) for span, free in self._free.items() for piece in free]
        rows = [*map(Stretch, span, start, end), *(row for row in cut + self._calls if row.end_ns > row.start_ns)]
        return sorted(rows, key=attrgetter("start_ns"))

    def _put(self, span: int, name: str, start_ns: int, duration_ns: int, source: str) -> None:
        """Cut a call to the free stretch of its operator around its middle, and take it from there."""
        if span not in self._free:
            rows = self._by_span[slice(*np.searchsorted(self._spans, (span, span + 1)).tolist())]
            self._free[span] = list(zip(*(column[rows].tolist() for column in self._own[:2]), strict=True))
        free = self._free[span]
        middle = start_ns + duration_ns // 2
        at = next((i for i, (_, end) in enumerate(free) if end > middle), None)
        if at is None:
            return
        low, high = free[at]
        start = min(max(start_ns, low), high)
        end = max(min(start_ns + duration_ns, high), start)
        free[at : at + 1] = [(low, start), (end, high)]
        self._calls.append(Stretch(span, start, end, name, source))
