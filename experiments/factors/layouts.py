"""Factors of layout: how operands and weights are stored."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.recording.operators import TensorArgument
from ..changed_steps import ChangedModule
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import is_on_images, ran_kernel, reason_unless_product
from ..replay.recorded_call import CallFamily, tensors_of
from ..replay.runnable import Runnable

# Images and filters stored channels last; torch then gives the outputs of convolutions the same
# format.


def _reason_against_channels_last(family: CallFamily) -> str | None:
    call = family.largest
    images = [tensor for tensor in tensors_of(call.arguments) if len(tensor.shape) in (4, 5)]
    if not images or not is_on_images(call):
        return "it is no operator on images"
    if all(map(_is_channels_last, images)):
        return "its images are stored channels last already"
    return None


def _is_channels_last(tensor: TensorArgument) -> bool:
    if tensor.strides is None:
        return False
    _, channels, *extents = tensor.shape
    _, of_channel, *strides = tensor.strides
    for stride, extent in zip(strides, extents, strict=True):
        if extent > 1 and stride < channels:
            return False
    return of_channel == 1 and channels > 1


def _store_channels_last(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    torch = import_torch()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}

    def store(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() in formats:
            return value.contiguous(memory_format=formats[value.dim()])
        return value

    return runnable.with_arguments(tuple(map(store, runnable.arguments)))


_NO_IMAGES = "the steps have no two-dimensional convolution"


def _reason_against_steps(target: Target) -> str | None:
    return None if target.may_convolve else _NO_IMAGES


def _to_channels_last(module: Any) -> None:
    if not any(parameter.dim() == 4 for parameter in module.parameters()):
        raise CurvescopeError(_NO_IMAGES)
    module.to(memory_format=import_torch().channels_last)


CHANNELS_LAST = Factor(
    name="channels_last",
    what="images and filters are stored channels last",
    remedy="use the memory format channels_last in {where}",
    term=TermChange(
        how="layer.to(memory_format=torch.channels_last), and the same for its input",
        screen=6,
        reason_against=_reason_against_channels_last,
        call=_store_channels_last,
    ),
    step=StepChange(
        how="model.to(memory_format=torch.channels_last), and the same for its inputs",
        screen=6,
        common=5,
        reason_against=_reason_against_steps,
        change=lambda workload, _: ChangedModule(workload, _to_channels_last),
    ),
    is_made_in_programs=True,
)


# Weights of matrix products stored in the other order.

# Index of the operand that holds the weights, for operators that say so.
_WEIGHTS = {"aten::linear": 1, "aten::addmm": 2}


def _reason_against_other_layout(family: CallFamily) -> str | None:
    why = reason_unless_product(family)
    if not why and _weights(family) is None:
        return "none of its operands is known to be a matrix of weights"
    return why


def _weights(family: CallFamily) -> int | None:
    """Index of the matrix that does not depend on the batch size, unlike another; None if there is
    none.
    """
    call, moving = family.largest, family.batch_dimensions()
    matrices = []
    for index, argument in enumerate(call.arguments):
        is_matrix = isinstance(argument, TensorArgument) and len(argument.shape) == 2
        if is_matrix and index not in moving:
            matrices.append(index)
    weights_at = _WEIGHTS.get(call.op)
    if weights_at is not None:
        return weights_at if weights_at in matrices else None
    return matrices[0] if len(matrices) == 1 and moving else None


def _store_other_way(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    index = _weights(runnable.family)
    assert index is not None
    arguments = list(runnable.arguments)
    weights, converted = arguments[index], runnable.converted
    key = "other_layout", id(weights)
    if key not in converted:
        if weights.is_contiguous():
            converted[key] = weights.t().contiguous().t()
        else:
            converted[key] = weights.contiguous()
    arguments[index] = converted[key]
    return runnable.with_arguments(tuple(arguments))


def _store_weights(module: Any, names: tuple[str, ...]) -> None:
    weights = [_parameter(module, name) for name in names]
    if not weights:
        kind = import_torch().nn.Linear
        weights = [layer.weight for layer in module.modules() if isinstance(layer, kind)]
    if not weights:
        raise CurvescopeError("the steps have no linear layer")
    # A weight that layers share is stored once; `dict` keeps each parameter once.
    for weight in dict.fromkeys(weights):
        weight.data = weight.data.t().contiguous().t()


def _parameter(module: Any, name: str) -> Any:
    try:
        return module.get_parameter(name)
    except AttributeError:  # a layer that is the whole model has the name of its class
        return module.get_parameter(name.rpartition(".")[2])


_HOW = """for name in {weights}:
    weight = model.get_parameter(name)
    weight.data = weight.data.t().contiguous().t()"""

OTHER_LAYOUT = Factor(
    name="other_layout",
    what="weights of matrix products are stored in the other order",
    remedy="store the weights of {where} in the other order",
    term=TermChange(
        how=_HOW, screen=2, reason_against=_reason_against_other_layout, call=_store_other_way
    ),
    step=StepChange(
        how=_HOW,
        common=11,
        change=lambda workload, target: ChangedModule(
            workload, partial(_store_weights, names=target.weights)
        ),
    ),
    sets="weights",
)


# Operands stored as the operator reads them, before it runs: no copy in every call.


def _reason_against_stored_operands(family: CallFamily) -> str | None:
    if all(map(_is_contiguous, family.largest.arguments)):
        return "its operands are contiguous already"
    return None if ran_kernel(family, "copy") else "no copy of its operands is recorded"


def _is_contiguous(argument: object) -> bool:
    if not isinstance(argument, TensorArgument) or argument.strides is None:
        return True
    expected = 1
    for extent, stride in zip(reversed(argument.shape), reversed(argument.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _store_stored_operands(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    if runnable.call.op == "aten::bmm":
        first, second = runnable.arguments[:2]
        if second.stride(0) == 0:
            run = partial(_product_of_rows, first.contiguous(), second[0].contiguous())
            return replace(runnable, run=run)
    return runnable.with_arguments(tuple(map(_store, runnable.arguments)))


def _store(value: Any) -> Any:
    return value.contiguous() if hasattr(value, "contiguous") else value


def _product_of_rows(rows: Any, matrix: Any) -> Any:
    return (rows.flatten(0, 1) @ matrix).view(*rows.shape[:2], -1)


STORED_OPERANDS = Factor(
    name="stored_operands",
    what="operands are stored as the operator reads them, and a shared matrix is no batch of "
    "matrices",
    remedy="store the operands of {where} contiguous",
    term=TermChange(
        how="operand = operand.contiguous() once, before the steps; for a matrix w that all "
        "samples share, "
        "(x.flatten(0, 1) @ w).view(*x.shape[:2], -1) instead of torch.bmm(x, w.expand(len(x), -1, "
        "-1))",
        needs_evidence=True,
        reason_against=_reason_against_stored_operands,
        call=_store_stored_operands,
    ),
)


# The vocabulary of a language model padded: products of its head with a size that tiles do not
# divide get the next multiple of 64 rows. The rows are 0, and results leave them out.

_ROWS = 64
_LEAST_VOCABULARY = 1000  # outputs; a layer of fewer is no vocabulary


def _reason_against_vocabulary(target: Target) -> str | None:
    looks_up = any("embedding" in name for name in target.operators)
    return "the steps look up no words" if target.operators and not looks_up else None


def _pad_vocabulary(module: Any) -> None:
    torch = import_torch()
    heads = [
        layer
        for layer in module.modules()
        if isinstance(layer, torch.nn.Linear)
        and layer.out_features >= _LEAST_VOCABULARY
        and layer.out_features % _ROWS
    ]
    if not heads:
        raise CurvescopeError(
            f"no linear layer of {_LEAST_VOCABULARY} outputs or more has a number that is no "
            f"multiple of {_ROWS}"
        )
    for head in heads:
        outputs = head.out_features
        for parameter in (head.weight, head.bias):
            if (
                parameter is not None and len(parameter) == outputs
            ):  # a weight that layers share is padded once
                rows = parameter.new_zeros(-outputs % _ROWS, *parameter.shape[1:])
                parameter.data = torch.cat((parameter.data, rows))
        head.register_forward_hook(partial(_leave_out_padding, outputs))


def _leave_out_padding(outputs: int, _: Any, __: Any, result: Any) -> Any:
    return result[..., :outputs]


PADDED_VOCABULARY = Factor(
    name="padded_vocabulary",
    what=f"the vocabulary is padded to a multiple of {_ROWS}",
    remedy=f"pad the vocabulary of {{where}} to a multiple of {_ROWS}",
    step=StepChange(
        how=f"vocabulary += -vocabulary % {_ROWS} where the model is made, and no target has the "
        "new words",
        common=13,
        reason_against=_reason_against_vocabulary,
        change=lambda workload, _: ChangedModule(workload, _pad_vocabulary),
    ),
    sets="weights",
)
