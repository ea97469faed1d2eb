"""Splits the time of operators on the CPU into their own time and the calls of oneDNN and MKL that
they make.

Own time is that without children and library calls. So the rows of one thread never overlap, and
with idle add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from .nesting import NONE, Bools, Ints, Nest

_BATCHED_OPERATORS = {"aten::bmm", "aten::baddbmm"}
_GEMM_OPERATORS = {
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "linear", "addmv", "mv", "dot")
}


@dataclass(frozen=True)
class Primitive:
    """One executed oneDNN primitive; its name is primitive, propagation kind and implementation."""

    name: str
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class MklCall:
    """One MKL call."""

    name: str  # function, with its letters, e.g. `mkl SGEMM(T,N)`
    sizes: tuple[int, ...]  # its leading integer arguments: m, n, k of a GEMM
    # None of a call of another step, which takes all the own time of its operator
    duration_ns: int | None


_NumberedCalls = list[tuple[int, MklCall]]


@dataclass
class VerboseLog:
    """Verbose output of the libraries between start and end of a capture."""

    primitives: list[Primitive] = field(default_factory=list)
    mkl_calls: list[MklCall] = field(default_factory=list)
    untimed: int = 0  # primitives with a line without timestamp
    other: list[str] = field(default_factory=list)  # lines of the program itself


def own_time(nested: Nest, is_operator: Bools) -> tuple[Ints, Ints, Ints]:
    """The own time of operators, without their children, in order of start.

    Starts, ends and spans.
    """
    of_threads = [(np.zeros(0, np.int64),) * 3]
    for times, states in nested.timelines.values():
        lasts = times[1:] > times[:-1]
        rows = np.flatnonzero(lasts & (states[:-1] != NONE))
        rows = rows[is_operator[states[rows]]]
        of_threads.append((times[rows], times[rows + 1], states[rows]))
    start, end, span = (np.concatenate(columns) for columns in zip(*of_threads, strict=True))
    order = np.argsort(start, kind="stable")
    return start[order], end[order], span[order]


class Operators(NamedTuple):
    """The operators of some host threads, to place library calls in them; lists by span."""

    start_ns: list[int]
    end_ns: list[int]  # cut to that of the enclosing span
    duration_ns: list[int]
    parent: list[int]
    # None for spans that call no library: ranges, and collectives, which run concurrently
    names: list[str | None]
    extents: Mapping[int, set[int]]  # extents of the operands of a product

    def innermost(self, in_order: Sequence[int], starts: Sequence[int], moment_ns: int) -> int:
        """The innermost operator around a moment, or `NONE`; operators in order of start, and their
        starts.
        """
        at = bisect_right(starts, moment_ns) - 1
        span = in_order[at] if at >= 0 else NONE
        while span != NONE and self.end_ns[span] <= moment_ns:
            span = self.parent[span]
        if span != NONE and self.names[span] is not None:
            return span
        return NONE

    def multiplies(self, span: int, call: MklCall) -> bool:
        """Whether the operator can have made the call: extents m, n, k in any order; for batched
        ones only time.
        """
        fits = call.duration_ns is None or call.duration_ns <= self.duration_ns[span]
        return fits and self.may_multiply(span, call)

    def may_multiply(self, span: int, call: MklCall) -> bool:
        """The same, whatever the duration."""
        if "BATCH" in call.name:
            return self.names[span] in _BATCHED_OPERATORS
        extents = self.extents.get(span, set())
        if not call.sizes:
            return False
        return all(size in extents or size == 1 for size in call.sizes[:3])


class Stretch(NamedTuple):
    """Time of an operator, or of a library call in it, with its name and library."""

    span: int
    start_ns: int
    end_ns: int
    name: str | None = None
    source: str = "torch"


class LibraryCalls:
    """Places library calls in the own time of operators."""

    def __init__(self, operators: Operators, own: tuple[Ints, Ints, Ints]) -> None:
        self.lost: Counter[str] = Counter()  # calls without a place
        # those with a place, in the order of their operators, without durations
        self.named: list[MklCall] = []
        self._operators = operators
        self._own = own
        self._by_span = np.argsort(own[2], kind="stable")
        self._spans = own[2][self._by_span]
        # own time of the operators that have calls
        self._free: dict[int, list[tuple[int, int]]] = {}
        self._calls: list[Stretch] = []

    def place(self, log: VerboseLog) -> None:
        """Place primitives and MKL calls in the operators that made them."""
        operators = self._operators
        spans = [span for span, name in enumerate(operators.names) if name is not None]
        spans.sort(key=lambda span: (operators.start_ns[span], -operators.duration_ns[span]))
        self._place_primitives(log, spans)
        self._place_products(log, spans)
        self.lost["primitives_without_time"] += log.untimed

    def _place_primitives(self, log: VerboseLog, spans: list[int]) -> None:
        starts = [self._operators.start_ns[span] for span in spans]
        for primitive in log.primitives:
            middle_ns = primitive.start_ns + primitive.duration_ns // 2
            span = self._operators.innermost(spans, starts, middle_ns)
            if span == NONE:
                self.lost["primitives_outside_operators"] += 1
            else:
                self._put(span, primitive.name, primitive.start_ns, primitive.duration_ns, "onednn")

    def _place_products(self, log: VerboseLog, spans: list[int]) -> None:
        operators = self._operators
        # a step may make 100,000, few differ
        calls: dict[tuple[bool, tuple[int, ...]], _NumberedCalls] = {}
        for number, call in enumerate(log.mkl_calls):
            kind = "BATCH" in call.name, call.sizes[:3]
            calls.setdefault(kind, []).append((number, call))
        products = [span for span in spans if operators.names[span] in _GEMM_OPERATORS]
        calling = {operators.parent[span] for span in products}
        for span in products:
            if span not in calling:
                call_of_span = self._take_call(span, calls.values())
                if call_of_span is not None:
                    self._put_product(span, call_of_span)
        everything = chain.from_iterable(calls.values())
        timed = [call for _, call in everything if call.duration_ns is not None]
        self.lost["mkl_calls_not_placed"] += len(timed)

    def _take_call(self, span: int, kinds: Iterable[_NumberedCalls]) -> MklCall | None:
        """Take the first of the calls that an operator may have made."""
        first: tuple[int, MklCall] | None = None
        source: _NumberedCalls = []
        for alike in kinds:
            if not alike or not self._operators.may_multiply(span, alike[0][1]):
                continue
            for item in alike:
                if self._operators.multiplies(span, item[1]):
                    if first is None or item[0] < first[0]:
                        first = item
                        source = alike
                    break
        if first is None:
            return None
        source.remove(first)
        return first[1]

    def _put_product(self, span: int, call: MklCall) -> None:
        self.named.append(replace(call, duration_ns=None))
        if call.duration_ns is None:
            free = self._free_of(span)
            start_ns, end_ns = max(free, key=lambda times: times[1] - times[0], default=(0, 0))
            self._put(span, call.name, start_ns, end_ns - start_ns, "mkl")
        else:  # the operator ends with the multiplication, after views and copies of operands
            start_ns = self._operators.end_ns[span] - call.duration_ns
            self._put(span, call.name, start_ns, call.duration_ns, "mkl")

    def rows(self) -> list[Stretch]:
        """All time of the operators, in order of start; rows of one thread never overlap."""
        left = ~np.isin(self._own[2], list(self._free))
        starts, ends, spans = (column[left].tolist() for column in self._own)
        rows = list(map(Stretch, spans, starts, ends))
        cut: list[Stretch] = []
        for span, free in self._free.items():
            cut += [Stretch(span, *times) for times in free]
        cut += self._calls
        rows += [row for row in cut if row.end_ns > row.start_ns]
        rows.sort(key=attrgetter("start_ns"))
        return rows

    def _put(self, span: int, name: str, start_ns: int, duration_ns: int, source: str) -> None:
        """Cut a call to the free stretch of its operator around the call's middle, and remove it
        from there.
        """
        free = self._free_of(span)
        middle = start_ns + duration_ns // 2
        at = next((i for i, (_, end) in enumerate(free) if end > middle), None)
        if at is None:
            return
        low, high = free[at]
        start = min(max(start_ns, low), high)
        end = max(min(start_ns + duration_ns, high), start)
        free[at : at + 1] = [(low, start), (end, high)]
        self._calls.append(Stretch(span, start, end, name, source))

    def _free_of(self, span: int) -> list[tuple[int, int]]:
        if span not in self._free:
            first, last = np.searchsorted(self._spans, (span, span + 1)).tolist()
            rows = self._by_span[first:last]
            start, end, _ = (column[rows].tolist() for column in self._own)
            self._free[span] = list(zip(start, end, strict=True))
        return self._free[span]
