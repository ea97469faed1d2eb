"""cuDNN times its convolution algorithms for each shape and keeps the fastest, instead of choosing by a heuristic."""

from __future__ import annotations

from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor


class CudnnBenchmark(StepFactor):
    """cuDNN chooses algorithms by timing them, in the steps that are not recorded."""

    FACTS = FactorFacts(
        "cudnn_benchmark",
        "cuDNN chooses convolution algorithms by timing them",
        "let cuDNN time its algorithms for {where}",
        "torch.backends.cudnn.benchmark = True",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        return None if self.target.cuda else "cuDNN runs on CUDA devices only"

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch

        torch.backends.cudnn.benchmark = True
