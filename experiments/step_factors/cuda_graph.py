"""The complete step is captured as one CUDA graph and replayed: the host's work for each kernel goes away."""

from __future__ import annotations

from typing import Any

from ...profiling.measure.graphed_steps import GraphedSteps, reads_result
from ...profiling.measure.visit import Steps
from ...profiling.recording.experiments import FactorFacts
from .factor import StepFactor


class CudaGraph(StepFactor):
    """Each step is the replay of a graph that was captured from one."""

    FACTS = FactorFacts(
        "cuda_graph",
        "the complete step is replayed as one CUDA graph",
        "capture {where} as a CUDA graph",
        "torch.cuda.graph around one step with inputs that stay at one address, then graph.replay() for each step",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        if not self.target.cuda:
            return "only steps on a CUDA device can be captured"
        if self.target.configuration.graphed:
            return "the steps are replays of a graph already"
        if reads_result(self.target.configuration.precision, self.target.configuration.mode):
            return "the scaling of gradients reads a result on the host, which a capture does not allow"
        return None

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return GraphedSteps(workload)
