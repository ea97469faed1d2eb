"""Optimizers of torch that update the parameters in another form, or not at all."""

from __future__ import annotations

import weakref
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.collect.marks import optimizer_hooks
from ..changed_steps import StepsWithin
from ..factor import Factor, StepChange, Target

_NONE = "the steps run no optimizer of torch"
_FORMS = ("foreach", "fused")  # at most one of them may be on


def _reason_against(target: Target) -> str | None:
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
        """Undo what a step must not leave; usually nothing."""


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
        how=f"{flag}=True where the optimizer is created, e.g. torch.optim.AdamW(parameters, {flag}=True)",
        common=common,
        reason_against=_reason_against,
        change=lambda workload, _: _OptimizerForm(workload, flag),
    )


FOREACH = Factor(
    name="foreach_optimizer",
    what="the optimizer runs on lists of parameters",
    remedy="let the optimizer run on lists of parameters",
    refuses={"cuda": "torch's optimizers run on lists of parameters there by default"},
    step=_form("foreach", common=3),
    partial=True,
    sets="optimizer",
    is_made_in_programs=True,
)
FUSED = Factor(
    name="fused_optimizer",
    what="the optimizer is fused",
    remedy="fuse the optimizer",
    step=_form("fused", common=2),
    partial=True,
    sets="optimizer",
    is_made_in_programs=True,
)
# All of the updates' cost goes away; the parameters keep their values.
NO_UPDATE = Factor(
    name="no_update",
    what="the optimizer updates no parameter",
    step=StepChange(
        reason_against=_reason_against, change=lambda workload, _: _NoUpdates(workload)
    ),
)
