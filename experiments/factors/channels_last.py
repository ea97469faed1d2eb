"""Images and filters stored channels last; torch then gives the outputs of convolutions the same format."""

from __future__ import annotations

from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.recording.operators import TensorArgument
from ..changed_steps import ChangedModule
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import is_on_images
from ..replay.recorded_call import CallFamily, tensors_of
from ..replay.runnable import Runnable


def _reason_against(family: CallFamily) -> str | None:
    call = family.largest
    images = [tensor for tensor in tensors_of(call.arguments) if len(tensor.shape) in (4, 5)]
    if not images or not is_on_images(call):
        return "it is no operator on images"
    return (
        "its images are stored channels last already"
        if all(map(_is_channels_last, images))
        else None
    )


def _is_channels_last(tensor: TensorArgument) -> bool:
    if tensor.strides is None:
        return False
    inner = [
        stride
        for stride, extent in zip(tensor.strides[2:], tensor.shape[2:], strict=True)
        if extent > 1
    ]
    return (
        tensor.strides[1] == 1
        and tensor.shape[1] > 1
        and all(stride >= tensor.shape[1] for stride in inner)
    )


def _store(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    torch = import_torch()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}

    def store(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() in formats:
            return value.contiguous(memory_format=formats[value.dim()])
        return value

    return runnable.with_arguments(tuple(map(store, runnable.arguments)))


_NO_IMAGES = "the steps have no two-dimensional convolution"


def _reason_against_steps(target: Target) -> str | None:
    convolves = any("conv" in op for op in target.operators)
    return None if convolves or not target.operators else _NO_IMAGES


def _to_channels_last(module: Any) -> None:
    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        raise CurvescopeError(_NO_IMAGES)
    module.to(memory_format=import_torch().channels_last)


FACTOR = Factor(
    name="channels_last",
    what="images and filters are stored channels last",
    remedy="use the memory format channels_last in {where}",
    term=TermChange(
        how="layer.to(memory_format=torch.channels_last), and the same for its input",
        screen=6,
        reason_against=_reason_against,
        call=_store,
    ),
    step=StepChange(
        how="model.to(memory_format=torch.channels_last), and the same for its inputs",
        screen=6,
        common=7,
        reason_against=_reason_against_steps,
        change=lambda workload, _: ChangedModule(workload, _to_channels_last),
    ),
    is_made_in_programs=True,
)
