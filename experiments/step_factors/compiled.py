"""The module runs through torch.compile: the host's work for each operator, and memory traffic between them, shrink."""

from __future__ import annotations

from typing import Any

from ...profiling.collect.inductor import allow_versions
from ...profiling.measure.visit import Steps
from ...profiling.recording.experiments import FactorFacts
from .factor import ChangedModule, StepFactor


class Compiled(StepFactor):
    """The module is compiled for each batch size, outside the timed steps."""

    FACTS = FactorFacts(
        "compiled",
        "the module runs through torch.compile",
        "compile {where}",
        "model = torch.compile(model, dynamic=False)",
    )

    def reason_against(self) -> str | None:
        """See `StepFactor`."""
        return "the steps are compiled already" if self.target.configuration.compiled else None

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch._inductor.config

        # No pool of compiler processes: they would outlive a worker that is killed, and run beside other visits.
        torch._inductor.config.compile_threads = 1
        allow_versions()

    def change(self, workload: Any) -> Steps:
        """See `StepFactor`."""
        return ChangedModule(workload, _compile)


def _compile(module: Any) -> None:
    """Compile the module's forward pass in place.

    `module.compile()` does nothing for torch's own containers, e.g. `Sequential` (torch 2.13): their code is never
    compiled by itself, only when a function that is calls it.
    """
    import torch

    forward = module.forward

    def call(*arguments: Any, **named: Any) -> Any:
        return forward(*arguments, **named)

    module.forward = torch.compile(call, dynamic=False)
