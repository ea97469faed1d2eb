"""Weights of two-dimensional convolutions lie channels last; torch then gives their outputs the same format."""

from __future__ import annotations

from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.measure.visit import Steps
from ...profiling.recording.experiments import FactorFacts
from .factor import ChangedModule, StepFactor


class ChannelsLast(StepFactor):
    """The module's four-dimensional parameters lie channels last."""

    FACTS = FactorFacts(
        "channels_last",
        "images and weights lie channels last",
        "keep {where} in the memory format channels last",
        "model.to(memory_format=torch.channels_last), and the same for its inputs",
    )

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return ChangedModule(workload, _to_channels_last)


def _to_channels_last(module: Any) -> None:
    import torch

    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        raise CurvescopeError("the steps have no two-dimensional convolution")
    module.to(memory_format=torch.channels_last)
