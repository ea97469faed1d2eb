"""The module runs through torch.compile: the host's work for each operator, and memory traffic between them, shrink."""

from __future__ import annotations

from dataclasses import replace

from ...recording.experiments import FactorFacts
from ..configuration import Configuration
from .factor import StepFactor


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

    def configure(self) -> Configuration:
        """See `StepFactor`."""
        return replace(self.target.configuration, compiled=True)

    def prepare(self) -> None:
        """See `StepFactor`."""
        import torch._inductor.config

        # No pool of compiler processes: they would outlive a worker that is killed, and run beside other visits.
        torch._inductor.config.compile_threads = 1
