"""The complete step is captured as one CUDA graph and replayed: the host's work for each kernel goes away."""

from __future__ import annotations

from ...profiling.measure.graphed_steps import GraphedSteps, reads_result
from ..factor import Factor, StepChange, Target


def _reason_against(target: Target) -> str | None:
    if target.configuration.graphed:
        return "the steps are replays of a graph already"
    if reads_result(target.configuration.precision, target.configuration.mode):
        return "the scaling of gradients reads a result on the host, which a capture does not allow"
    return None


FACTOR = Factor(
    name="cuda_graph",
    what="the complete step is replayed as one CUDA graph",
    remedy="capture {where} as a CUDA graph",
    refuses={"cpu": "only steps on a CUDA device can be captured"},
    step=StepChange(
        how="torch.cuda.graph around one step with inputs that stay at one address, then graph.replay() for each step",
        screen=2,
        common=16,
        reason_against=_reason_against,
        change=lambda workload, _: GraphedSteps(workload),
    ),
    sets="code",
)
