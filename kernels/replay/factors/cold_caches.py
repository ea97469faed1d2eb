"""Operands that no cache has."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, tensors_of

FACTS = FactorFacts(
    "cold_caches", what="all operands are evicted from the caches before each run", remedy=None, how=None
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - any operator on any device
    """See `factors.FactorModule`."""
    return None if tensors_of(call) else "no operand is a tensor"
