"""Operators run on one thread: a cost of dividing work among threads, or of threads waiting for cores, goes away."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor


class OneThread(StepFactor):
    """torch's operators run on one thread."""

    FACTS = FactorFacts(
        "one_thread",
        "operators run on one thread",
        "run {where} on one thread",
        "torch.set_num_threads(1), or OMP_NUM_THREADS=1 in the environment",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        return "the steps run on a GPU" if self.target.cuda else None

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch

        if torch.get_num_threads() == 1:
            raise CurvescopeError("the steps already run on one thread")
        torch.set_num_threads(1)
