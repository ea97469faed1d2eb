"""Operators run without oneDNN: torch's own kernels and MKL instead."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor


class NoOneDnn(StepFactor):
    """torch does not call oneDNN."""

    FACTS = FactorFacts(
        "no_onednn",
        "operators run without oneDNN",
        "run {where} without oneDNN",
        "torch.backends.mkldnn.enabled = False",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        return "oneDNN runs on the CPU, and the steps run on a GPU" if self.target.cuda else None

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch

        if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
            raise CurvescopeError("this torch runs without oneDNN")
        torch.backends.mkldnn.set_flags(False)
