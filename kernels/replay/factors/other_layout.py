"""Weights of matrix products stored in the other order."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, is_product

FACTS = FactorFacts(
    "other_layout",
    what="weights of matrix products are stored in the other order",
    remedy="store the weights of {where} in the other order",
    how="layer.weight.data = layer.weight.data.t().contiguous().t()",
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `factors.FactorModule`."""
    return None if is_product(call) else "no matrix product"
