"""Operands that the run before left in the caches."""

from __future__ import annotations

from ..factor import Caches, Factor, TermChange
from ..replay.operator_kinds import reason_without_tensors

FACTOR = Factor(
    name="warm_caches",
    what="operands stay in the caches from the run before",
    term=TermChange(reason_against=reason_without_tensors, caches=Caches.WARM, same_work=True),
)
