"""Deterministic algorithms only: a bend from a switch between algorithms, one of them with atomics, goes away."""

from __future__ import annotations

import os

from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor


class Deterministic(StepFactor):
    """torch, cuDNN and cuBLAS choose among deterministic algorithms; operators that have none run as before."""

    FACTS = FactorFacts(
        "deterministic",
        "only deterministic algorithms are chosen",
        "choose deterministic algorithms for {where}",
        "torch.use_deterministic_algorithms(True, warn_only=True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
        "environment",
    )

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch

        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS reads it when the first handle is created
        # Otherwise every new tensor is filled, which costs time and belongs to no algorithm.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(True, warn_only=True)
