"""The complete step is captured as one CUDA graph and replayed: the host's work for each kernel goes away."""

from __future__ import annotations

from typing import Any

from ...recording.experiments import FactorFacts
from ..graphed_steps import capture, reads_result
from ..visit import Steps
from .factor import ChangedSteps, StepFactor


class _GraphSteps(ChangedSteps):
    """Replays of a step; loading a batch captures it."""

    _graph: Any = None
    _result: object = None
    _batch: int | None = None

    def load(self, batch: int) -> None:
        if batch == self._batch:
            return
        self._graph = self._batch = self._result = None  # releases the last graph's memory
        self.workload.load(batch)
        self._graph, self._result = capture(self.workload)
        self._batch = batch

    def submit(self) -> object:
        self._graph.replay()
        return self._result

    def time_step(self) -> tuple[int, int]:
        import torch

        torch.cuda.synchronize(self.device)
        start_ns = self.workload.clock_ns()
        self._graph.replay()
        torch.cuda.synchronize(self.device)
        return start_ns, self.workload.clock_ns() - start_ns


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
        return _GraphSteps(workload)
