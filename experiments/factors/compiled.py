"""The module runs through torch.compile: the host's work for each operator, and memory traffic between them, shrink."""

from __future__ import annotations

from typing import Any

from ...profiling.collect.inductor import allow_versions
from ..changed_steps import ChangedModule
from ..factor import Factor, StepChange, Target


def _prepare(_: Target) -> None:
    import torch._inductor.config

    # No pool of compiler processes: they would outlive a worker that is killed, and run beside other visits.
    torch._inductor.config.compile_threads = 1
    allow_versions()


def _compile(module: Any) -> None:
    """Compile its forward pass in place: `module.compile()` does nothing for torch's own containers (torch 2.13)."""
    import torch

    forward = module.forward

    def call(*arguments: Any, **named: Any) -> Any:
        return forward(*arguments, **named)

    module.forward = torch.compile(call, dynamic=False)


FACTOR = Factor(
    name="compiled",
    what="the module runs through torch.compile",
    remedy="compile {where}",
    step=StepChange(
        how="model = torch.compile(model, dynamic=False)",
        screen=10,
        common=20,
        setup_s=40.0,
        reason_against=lambda target: (
            "the steps are compiled already" if target.configuration.compiled else None
        ),
        prepare=_prepare,
        change=lambda workload, _: ChangedModule(workload, _compile),
    ),
    sets="code",
    is_made_in_programs=True,
)
