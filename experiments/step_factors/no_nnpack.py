"""Convolutions run without NNPACK, which PyTorch takes on a CPU from a batch of 16 on, where oneDNN does not run."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor


class NoNnpack(StepFactor):
    """torch does not call NNPACK."""

    FACTS = FactorFacts(
        "no_nnpack",
        "convolutions run without NNPACK",
        "run {where} without NNPACK",
        "torch.backends.nnpack.set_flags(False)",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        return "NNPACK runs on the CPU, and the steps run on a GPU" if self.target.cuda else None

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch

        if not torch.backends.nnpack.is_available():
            raise CurvescopeError("this torch has no NNPACK for this CPU")
        (was_enabled,) = torch.backends.nnpack.set_flags(False)
        if not was_enabled:
            raise CurvescopeError("the steps run without NNPACK already")
