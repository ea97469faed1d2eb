"""Factors of training: the form of the optimizer, workers that load data, and steps without
gradients.
"""

from __future__ import annotations

import weakref
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.collect.marks import optimizer_hooks
from ..changed_steps import StepsWithin
from ..factor import Factor, StepChange, Target

# Optimizers of torch that update the parameters in another form, or not at all.

_NONE = "the steps run no optimizer of torch"
_FORMS = ("foreach", "fused")  # at most one of them may be on


def _reason_against_optimizer(target: Target) -> str | None:
    return None if "optimizer" in target.phases or not target.phases else _NONE


class _WatchedOptimizers(StepsWithin):
    """Steps whose optimizers of torch are changed when they make a step; a subclass says how."""

    def __init__(self, workload: Any) -> None:
        super().__init__(workload, lambda: optimizer_hooks(self._before_step, self._after_step))
        self._changed = weakref.WeakSet[Any]()

    def submit(self) -> object:
        result = super().submit()
        if not self._changed:
            raise CurvescopeError(_NONE)
        return result

    def _before_step(self, optimizer: Any, *_: object) -> None:
        raise NotImplementedError

    def _after_step(self, optimizer: Any, *_: object) -> None:
        """Undo lasting effects of a step; usually nothing."""


class _NoUpdates(_WatchedOptimizers):
    """Steps whose optimizers find no parameters."""

    def _before_step(self, optimizer: Any, *_: object) -> None:
        self._parameters = [group["params"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = []
        self._changed.add(optimizer)

    def _after_step(self, optimizer: Any, *_: object) -> None:
        for group, parameters in zip(optimizer.param_groups, self._parameters, strict=True):
            group["params"] = parameters


class _OptimizerForm(_WatchedOptimizers):
    """Steps whose optimizers have one of `_FORMS` on, from their first step on."""

    def __init__(self, workload: Any, flag: str) -> None:
        super().__init__(workload)
        self._flag = flag

    def _before_step(self, optimizer: Any, *_: object) -> None:
        if optimizer in self._changed:
            return
        for group in optimizer.param_groups:
            if self._flag not in group:
                raise CurvescopeError(f"{type(optimizer).__name__} has no option {self._flag}")
            if group[self._flag]:
                raise CurvescopeError(f"{type(optimizer).__name__} has {self._flag}=True already")
            group.update(dict.fromkeys(_FORMS, False) | {self._flag: True})
        for parameter, state in optimizer.state.items():
            if getattr(
                state.get("step"), "is_cpu", False
            ):  # fused updates count steps on the parameters' device
                state["step"] = state["step"].to(parameter.device)
        self._changed.add(optimizer)


def _form(flag: str, common: int) -> StepChange:
    return StepChange(
        how=f"{flag}=True where the optimizer is created, e.g. torch.optim.AdamW(parameters, "
        f"{flag}=True)",
        common=common,
        phase="optimizer",
        reason_against=_reason_against_optimizer,
        change=lambda workload, _: _OptimizerForm(workload, flag),
    )


FOREACH_OPTIMIZER = Factor(
    name="foreach_optimizer",
    what="the optimizer runs on lists of parameters",
    remedy="let the optimizer run on lists of parameters",
    refuses={"cuda": "torch's optimizers run on lists of parameters there by default"},
    step=_form("foreach", common=3),
    partial=True,
    sets="optimizer",
    is_made_in_programs=True,
)
FUSED_OPTIMIZER = Factor(
    name="fused_optimizer",
    what="the optimizer is fused",
    remedy="fuse the optimizer",
    step=_form("fused", common=2),
    partial=True,
    sets="optimizer",
    is_made_in_programs=True,
)
LOADER_WORKERS = Factor(
    name="loader_workers",
    what="worker processes load the batches ahead",
    remedy="load batches ahead in worker processes",
    step=StepChange(
        how="DataLoader(..., num_workers=N, persistent_workers=True), N up to the number of cores",
        common=2,
    ),
    is_made_in_programs=True,
    only_in_programs=True,
)
# All of the updates' cost goes away; the parameters keep their values.
NO_UPDATE = Factor(
    name="no_update",
    what="the optimizer updates no parameter",
    step=StepChange(
        reason_against=_reason_against_optimizer, change=lambda workload, _: _NoUpdates(workload)
    ),
)


# Forward passes in inference mode: no graph for gradients, no version counters.

TRAINS = "the steps compute gradients"


def _reason_against_inference_mode(target: Target) -> str | None:
    if target.computes_gradients:
        return TRAINS
    return (
        "the steps run in inference mode already"
        if target.configuration.mode == "forward"
        else None
    )


class _Inference(StepsWithin):
    """Steps in inference mode; their first one says if that cannot be."""

    _tried = False

    def submit(self) -> object:
        if self._tried:
            return super().submit()
        self._tried = True
        torch, result = import_torch(), self.workload.submit()
        if isinstance(result, torch.Tensor) and result.is_inference():
            raise CurvescopeError("the steps run in inference mode already")
        if self.model is not None and any(
            parameter.grad is not None for parameter in self.model.parameters()
        ):
            raise CurvescopeError(TRAINS)
        try:
            return super().submit()
        except RuntimeError as error:
            raise CurvescopeError(
                f"they do not run in inference mode: {str(error).splitlines()[0]}"
            ) from error


INFERENCE_MODE = Factor(
    name="inference_mode",
    what="forward passes run in inference mode",
    remedy="run {where} in inference mode",
    step=StepChange(
        how="with torch.inference_mode(): around the forward pass",
        common=9,
        reason_against=_reason_against_inference_mode,
        change=lambda workload, _: _Inference(workload, import_torch().inference_mode),
    ),
)
