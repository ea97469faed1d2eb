"""Images and filters stored channels last."""

from __future__ import annotations

from ....profiling.recording.experiments import FactorFacts
from ..operands import Call, tensors_of

FACTS = FactorFacts(
    "channels_last",
    what="images and filters are stored channels last",
    remedy="use the memory format channels_last in {where}",
    how="layer.to(memory_format=torch.channels_last), and the same for its input",
)


def reason_against(call: Call, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `factors.FactorModule`."""
    return (
        None
        if any(len(one.shape) in (4, 5) for one in tensors_of(call))
        else "no images: no operand has 4 or 5 dimensions"
    )
