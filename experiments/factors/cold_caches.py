"""Operands that no cache has."""

from __future__ import annotations

from ..factor import Caches, Factor, TermChange
from ..replay.operator_kinds import reason_without_tensors

FACTOR = Factor(
    name="cold_caches",
    what="all operands are evicted from the caches before each run",
    term=TermChange(reason_against=reason_without_tensors, caches=Caches.COLD, same_work=True),
    brings_about=True,
)
