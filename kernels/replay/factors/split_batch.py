"""The batch in two halves, one after the other."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, tensors_of

FACTS = FactorFacts(
    "split_batch",
    what="the batch runs in two halves, one after the other",
    remedy="run {where} on two halves of the batch",
    how="torch.cat([layer(half) for half in x.chunk(2)])",
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `factors.FactorModule`."""
    return None if tensors_of(call) else "no operand is a tensor"
