"""Steps whose optimizers update the parameters in another form: the flags of torch's optimizers, changed in place."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..base.errors import CurvescopeError
from .changed_steps import StepsWithin
from .factor import Target

_NONE = "the steps run no optimizer of torch"
_FORMS = ("foreach", "fused")  # at most one of them may be on


def reason_against(target: Target) -> str | None:
    """The reason why no optimizer can be changed, as far as is known before a step runs; None if one can."""
    return None if "optimizer" in target.phases or not target.phases else _NONE


class OptimizerForm(StepsWithin):
    """Steps whose optimizers of torch have one flag on, from their first step on."""

    def __init__(self, workload: Any, flag: str) -> None:
        """Wrap a workload.

        Args:
            workload: the workload.
            flag: `foreach` or `fused`.
        """
        super().__init__(workload, self._watched)
        self._flag, self._changed = flag, weakref.WeakSet[Any]()

    def submit(self) -> object:
        """Run one step.

        Raises:
            CurvescopeError: it ran no optimizer of torch, or one without this form.
        """
        result = super().submit()
        if not self._changed:
            raise CurvescopeError(_NONE)
        return result

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Change every optimizer of torch that makes a step in the block."""
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        handle = register_optimizer_step_pre_hook(self._before_step)
        try:
            yield
        finally:
            handle.remove()

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
            if getattr(state.get("step"), "is_cpu", False):  # fused updates count steps on the parameters' device
                state["step"] = state["step"].to(parameter.device)
        self._changed.add(optimizer)
