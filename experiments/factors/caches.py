"""Operands that no cache has, or that the run before left in the caches."""

from __future__ import annotations

from ..factor import Caches, Factor, TermChange
from ..replay.operator_kinds import reason_without_tensors

COLD = Factor(
    name="cold_caches",
    what="all operands are evicted from the caches before each run",
    term=TermChange(reason_against=reason_without_tensors, caches=Caches.COLD, same_work=True),
    brings_about=True,
)
WARM = Factor(
    name="warm_caches",
    what="operands stay in the caches from the run before",
    term=TermChange(reason_against=reason_without_tensors, caches=Caches.WARM, same_work=True),
)
