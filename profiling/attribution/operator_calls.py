"""Counts the FLOPs and bytes of each operator call once, on the kernels that did the work.

- The outermost operator with known work counts.
- The kernels of an algorithm (convolutions and products) do the work of a call; without them, the
  kernels of the same family as the longest one; without kernels, the longest stretch of the host's
  own work.
- The gradients of a convolution are counted on kernels of their own if the names of all kernels
  show the gradient.
- Other kernels share their work by time: each shows the rate of all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .columns import factorize, flags_of, pick
from .convolution_shapes import with_third_shapes
from .kernel_names import ALGORITHMS, family, gradient
from .nesting import NONE, Bools, Codes, Ints, Nest
from .operation import Operation, Work
from .placement import HostSpans

CountWork = Callable[[Operation], Work]


@dataclass
class LaunchedWork:
    """Kernels, and work of the host itself; arrays of shape (rows,)."""

    span: Ints | Codes  # index of the innermost span around each row's launch, or `NONE`
    duration_ns: Ints  # durations; `NONE` for rows that get no work
    name: Ints | Codes  # index into `names`
    names: Sequence[str]  # names of kernels
    on_host: Bools  # whether the row is an operator's own work, not a kernel or a library call


def attach_work(
    spans: HostSpans, nested: Nest, work: LaunchedWork, count: CountWork
) -> tuple[Ints, Ints]:
    """FLOPs and compulsory bytes of each row, `NONE` without work; a call's rows add up to its
    work, by `count`.
    """
    flops, size = np.full((2, len(work.span)), NONE, np.int64)
    if spans.call is None or not spans.operations or not len(work.span):
        return flops, size
    operations, operation_of = with_third_shapes(spans.operations, spans.call, nested.parent)
    counted = [count(operation) for operation in operations]
    has_work = flags_of(counted, _is_known)
    works = (operation_of != NONE) & has_work[operation_of]
    call = np.where(works, np.arange(len(operation_of)), NONE)
    of_row = pick(nested.outermost(call), work.span)
    rows = np.flatnonzero((of_row != NONE) & (work.duration_ns != NONE))
    group, calls = factorize(of_row[rows])
    used, operation = np.unique(operation_of[calls], return_inverse=True)  # few distinct calls
    parts = [_by_role(counted[index]) for index in used.tolist()]
    wanted = np.zeros((len(parts), len(_ROLES)), np.bool_)
    for index, by_role in enumerate(parts):
        wanted[index, 1:] = [part is not None for part in by_role[1:]]
    rows, group, role = _workers(rows, group, work, wanted[operation])
    # From here on one number stands for a call and a role.
    share, shares = factorize(group * len(_ROLES) + role)
    order = np.lexsort((rows, share))
    rows = rows[order]
    share = share[order]
    call_of_share, role_of_share = np.divmod(shares, len(_ROLES))
    for values, name in ((flops, "flops"), (size, "bytes_compulsory")):
        amounts = np.full(wanted.shape, NONE, np.int64)
        for index, by_role in enumerate(parts):
            numbers = [getattr(part, name, None) for part in by_role]
            amounts[index] = [NONE if number is None else number for number in numbers]
        amount = amounts[operation[call_of_share], role_of_share]
        values[rows] = _share_amounts(amount, share, work.duration_ns[rows])
    return flops, size


def _is_known(work: Work) -> bool:
    return work.flops is not None or work.bytes_compulsory is not None


def _by_role(work: Work) -> list[Work | None]:
    """The work of a call as a whole, and its parts by role."""
    parts = dict(work.parts)
    return [work, *map(parts.get, _ROLES[1:])]


_ROLES = (None, "data", "weights")


def _workers(rows: Ints, group: Ints, work: LaunchedWork, wanted: Bools) -> tuple[Ints, Ints, Ints]:
    """The rows among the candidates that do the work of their call, their calls, and their roles
    (indices of `_ROLES`).

    `group` is the call of each candidate; `wanted`, shape (calls, roles), are roles into which a
    call's work is split.
    """
    families = [family(name) for name in work.names]
    family_code, _ = factorize(np.array(families, object))
    is_algorithm = flags_of(families, ALGORITHMS.__contains__)
    role_of = np.array([_ROLES.index(gradient(name)) for name in work.names], np.int64)

    def any_of(test: Bools) -> Bools:
        matches = np.zeros(len(wanted), np.bool_)
        matches[group[test]] = True
        return matches[group]

    on_host = work.on_host[rows]
    computes = ~on_host & is_algorithm[work.name[rows]]
    has_kernels = any_of(~on_host)
    able = np.where(has_kernels, ~on_host, on_host)
    able = np.where(any_of(computes), computes, able)
    rows = rows[able]
    group = group[able]
    on_host = on_host[able]
    # The longest row of a call comes first, the earliest of several equal ones.
    order = np.lexsort((rows, -work.duration_ns[rows], group))
    _, first = np.unique(group[order], return_index=True)
    best = order[first]
    longest = np.zeros(len(wanted), np.int64)
    longest[group[best]] = rows[best]
    longest_of_row = longest[group]
    name = work.name[rows]
    alike = family_code[name] == family_code[work.name[longest_of_row]]
    chosen = np.where(on_host, rows == longest_of_row, is_algorithm[name] | alike)
    rows = rows[chosen]
    group = group[chosen]
    role = role_of[work.name[rows]]
    named = np.zeros_like(wanted)
    named[group, role] = True
    is_split = wanted.any(axis=1)
    apart = is_split & (named == wanted).all(axis=1)
    return rows, group, np.where(apart[group], role, 0)


def _share_amounts(amount: Ints, share: Ints, duration_ns: Ints) -> Ints:
    """Amounts (`NONE` if unknown) divided by time among rows, in whole numbers that add up; `share`
    is sorted.
    """
    # Rows without time get equal amounts.
    total = np.bincount(share, duration_ns, len(amount))
    weight = np.where(total[share] > 0, duration_ns, 1).astype(np.float64)
    total = np.bincount(share, weight, len(amount))
    before = np.append(0.0, np.cumsum(total))[share]
    reached = np.cumsum(weight) - before
    whole = amount[share]
    part = reached / np.maximum(total[share], 1.0)
    upto = np.floor(part * whole + 0.5).astype(np.int64)
    changes = np.diff(share) != 0
    outermost = [True] * (len(share) > 0)
    last = np.append(changes, outermost).astype(np.bool_)
    upto[last] = whole[last]
    begins = np.append(outermost, changes).astype(np.bool_)
    own = np.where(begins, upto, np.diff(upto, prepend=0))
    return np.where(whole == NONE, NONE, own)
