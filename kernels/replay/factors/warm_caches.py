"""Operands that the run before left in the caches."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, tensors_of

FACTS = FactorFacts("warm_caches", what="operands stay in the caches from the run before", remedy=None, how=None)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - any operator on any device
    """See `factors.FactorModule`."""
    return None if tensors_of(call) else "no operand is a tensor"
