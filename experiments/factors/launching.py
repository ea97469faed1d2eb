"""Factors of the code between operators: as one graph, compiled, or without it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.collect.inductor import allow_versions
from ...profiling.hardware.heap import FEW_FAULTS
from ...profiling.measure.graphed_steps import GraphedSteps, reads_result
from ...profiling.measure.visits import StepRow
from ...profiling.workload.steps import ChangedSteps
from ..changed_steps import LEAST_WAIT, ChangedModule, waiting_share
from ..factor import Factor, StepChange, Target

# The module runs through torch.compile: the host's work for each operator, and memory traffic
# between them, shrink.


def _prepare(_: Target, options: Mapping[str, Any] | None = None) -> None:
    import torch._inductor.config

    # No pool of compiler processes: they would outlive a worker that is killed, and run beside
    # other visits.
    torch._inductor.config.compile_threads = 1
    for name, value in (options or {}).items():
        setattr(torch._inductor.config, name, value)
    allow_versions()


def _compile(module: Any) -> None:
    """Compile its forward pass in place: `module.compile()` does nothing for torch's own containers
    (torch 2.13).
    """
    import torch

    forward = module.forward

    def call(*arguments: Any, **named: Any) -> Any:
        return forward(*arguments, **named)

    module.forward = torch.compile(call, dynamic=False)


COMPILED = Factor(
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


# The compiler times kernels of its own beside those of the libraries; what the user compiles gets
# the same.

_TIMES_KERNELS = {"max_autotune": True, "coordinate_descent_tuning": True}


def _compile_unless_compiled(workload: Any, target: Target) -> Any:
    compiled = target.configuration.compiled or target.compiled_code
    return workload if compiled else ChangedModule(workload, _compile)


MAX_AUTOTUNE = Factor(
    name="max_autotune",
    what="torch.compile times its kernels beside those of the libraries and takes the fastest",
    remedy="compile {where} with max-autotune",
    step=StepChange(
        how='torch.compile(model, mode="max-autotune-no-cudagraphs", dynamic=False)',
        common=30,
        setup_s=120.0,
        prepare=partial(_prepare, options=_TIMES_KERNELS),
        change=_compile_unless_compiled,
    ),
    sets="code",
)


# The complete step is captured as one CUDA graph and replayed: the host's work for each kernel goes
# away.


def _reason_against_cuda_graph(target: Target) -> str | None:
    if target.configuration.graphed:
        return "the steps are replays of a graph already"
    if reads_result(target.configuration.precision, target.configuration.mode):
        return "the scaling of gradients reads a result on the host, which a capture does not allow"
    return None


CUDA_GRAPH = Factor(
    name="cuda_graph",
    what="the complete step is replayed as one CUDA graph",
    remedy="capture {where} as a CUDA graph",
    refuses={"cpu": "only steps on a CUDA device can be captured"},
    step=StepChange(
        how="torch.cuda.graph around one step with inputs that stay at one address, then "
        "graph.replay() for each step",
        screen=2,
        common=16,
        reason_against=_reason_against_cuda_graph,
        change=lambda workload, _: GraphedSteps(workload, keeps=True),
    ),
    sets="code",
)


# The step's operators run one after the other without the code between them: the host's share of
# the step goes away.
#
# What stays is the dispatch of each operator, so what this removes is a lower bound of the host's
# share.

# Only the host's work goes away, not page faults or waits for a core: a replay has most of those of
# the step.
_LEFT = 0.5


class _ReplayedSteps(ChangedSteps):
    """Replays of a step; loading a batch size records it."""

    _tape: Any = None
    _batch: int | None = None

    def __init__(self, workload: Any) -> None:
        super().__init__(workload)
        self._compiled_before = _count_compiled()
        self._checked: set[int] = set()

    def load(self, batch: int) -> None:
        from ..replay.operator_tape import OperatorTape

        if batch == self._batch:
            return
        self._tape = self._batch = None
        self.workload.load(batch)
        self.workload.submit()  # makes what later steps keep, e.g. the state of an optimizer
        self._tape = OperatorTape(self.workload.submit, check=batch not in self._checked)
        self._checked.add(batch)
        if _count_compiled() > self._compiled_before:
            raise CurvescopeError("the step runs compiled code, whose operators cannot be seen")
        self._batch = batch

    def submit(self) -> object:
        return self._tape.replay()

    def time_step(self) -> tuple[int, int]:
        start_ns, duration_ns = self.workload.time_run(self._tape.replay)
        return start_ns, duration_ns


def _count_compiled() -> int:
    counted = sys.modules.get("torch._dynamo.utils")
    return 0 if counted is None else int(counted.counters["frames"]["ok"])


def _reason_against_replayed_operators(target: Target) -> str | None:
    if target.configuration.compiled:
        return "the steps are compiled, and compiled code has no operators"
    return "the steps are replays of a graph already" if target.configuration.graphed else None


def _without_effect(unmodified: Sequence[StepRow], changed: Sequence[StepRow]) -> str | None:
    faults = [
        mean([row.get("page_faults") or 0 for row in rows] or [0]) for rows in (unmodified, changed)
    ]
    if faults[0] >= FEW_FAULTS and faults[1] < _LEFT * faults[0]:
        return (
            f"it takes {faults[1]:,.0f} page faults a step, and the unmodified step "
            f"{faults[0]:,.0f}"
        )
    waits = [waiting_share(rows) or 0.0 for rows in (unmodified, changed)]
    if waits[0] >= LEAST_WAIT and waits[1] < _LEFT * waits[0]:
        return (
            f"its threads wait for a core in {waits[1]:.0%} of their time, and those of the "
            f"unmodified step in {waits[0]:.0%}: what else runs on the cores went away too"
        )
    return None


REPLAYED_OPERATORS = Factor(
    name="replayed_operators",
    what="the step's operators run without the code between them",
    step=StepChange(
        reason_against=_reason_against_replayed_operators,
        changed_results=lambda _: (
            "what the host computes, e.g. a learning rate, stays that of one step"
        ),
        change=lambda workload, _: _ReplayedSteps(workload),
        without_effect=_without_effect,
    ),
    partial=True,
)
