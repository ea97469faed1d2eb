"""Larger batch sizes in pieces of the size before an algorithm switch, with the operators and kernels of that size."""

from __future__ import annotations

from collections.abc import Sequence

from ..factor import Factor, TermChange
from ..replay.recorded_call import CallFamily, RecordedCall


def size_before_switch(families: Sequence[CallFamily], batches: Sequence[int]) -> int | None:
    """The largest batch size before another kernel takes the most time; None without one.

    It is another one if it, or the one before, runs at one of the two batch sizes only: where both run at both, one of
    them just takes longer. Batch sizes that were not recorded are passed over.
    """
    before: tuple[int, str, set[str]] | None = None
    for batch in batches:
        calls = [family.calls[batch] for family in families if batch in family.calls]
        if not calls:
            continue
        longest = max(calls, key=lambda call: (call.duration_ns or 0, call.calls))
        main, ran = _kernels(longest)[0], {name for call in calls for name in _kernels(call)}
        if before is not None and (main not in before[2] or before[1] not in ran):
            return before[0]
        before = batch, main, ran
    return None


def _kernels(call: RecordedCall) -> tuple[str, ...]:
    return call.kernels or (call.op,)


FACTOR = Factor(
    name="before_switch",
    what="larger sizes run in pieces of the size before the switch, with its algorithm",
    remedy="run {where} in pieces that are no larger than the last size before the switch",
    term=TermChange(
        how="torch.cat([layer(piece) for piece in x.split(SIZE)])",
        piece=size_before_switch,
        same_work=True,
    ),
    levels=True,
)
