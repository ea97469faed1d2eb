"""The batch padded with zeros to the next multiple of 8, 16 or 32."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, tensors_of

FACTS = FactorFacts(
    "padded_batch",
    what="the batch is padded with zeros to the next multiple of 8, 16 or 32",
    remedy="pad the batch of {where} to the next multiple of 8, 16 or 32",
    how=(
        "torch.nn.functional.pad(x, (0, 0, 0, extra)) before the layer and output[:batch] after it, "
        "or choose such a batch size"
    ),
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `factors.FactorModule`."""
    return None if tensors_of(call) else "no operand is a tensor"
