"""Operands that no cache has, or that the run before left in the caches."""

from __future__ import annotations

from ..factor import Caches, Factor, TermChange
from ..replay.operator_kinds import reason_without_tensors
from ..replay.recorded_call import CallFamily


def _reason_against_cold(family: CallFamily) -> str | None:
    """Equal calls run one after the other on the same operands, so that only the first one would find none."""
    if family.largest.calls > 1:
        return "its equal calls find in the caches what the one before left there"
    return reason_without_tensors(family)


COLD = Factor(
    name="cold_caches",
    what="all operands are evicted from the caches before each run",
    term=TermChange(reason_against=_reason_against_cold, caches=Caches.COLD, same_work=True),
    brings_about=True,
)
WARM = Factor(
    name="warm_caches",
    what="operands stay in the caches from the run before",
    term=TermChange(reason_against=reason_without_tensors, caches=Caches.WARM, same_work=True),
)
