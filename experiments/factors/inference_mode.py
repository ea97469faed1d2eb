"""Forward passes in inference mode: no graph for gradients, no version counters."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..changed_steps import StepsWithin
from ..factor import Factor, StepChange, Target

TRAINS = "the steps compute gradients"


def _reason_against(target: Target) -> str | None:
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


FACTOR = Factor(
    name="inference_mode",
    what="forward passes run in inference mode",
    remedy="run {where} in inference mode",
    step=StepChange(
        how="with torch.inference_mode(): around the forward pass",
        common=9,
        reason_against=_reason_against,
        change=lambda workload, _: _Inference(workload, import_torch().inference_mode),
    ),
)
