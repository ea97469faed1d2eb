"""Weights of matrix products stored in the other order."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.recording.operators import TensorArgument
from ..changed_steps import ChangedModule
from ..factor import Factor, StepChange, TermChange
from ..replay.operator_kinds import reason_unless_product
from ..replay.recorded_call import CallFamily
from ..replay.runnable import Runnable

# Index of the operand that holds the weights, for operators that say so.
_WEIGHTS = {"aten::linear": 1, "aten::addmm": 2}


def _reason_against(family: CallFamily) -> str | None:
    known = _weights(family) is not None
    return reason_unless_product(family) or (
        None if known else "none of its operands is known to be a matrix of weights"
    )


def _weights(family: CallFamily) -> int | None:
    """Index of the matrix that does not depend on the batch size, unlike another; None if there is none."""
    call, moving = family.largest, family.batch_dimensions()
    known = _WEIGHTS.get(call.op)
    matrices = [
        index
        for index, argument in enumerate(call.arguments)
        if isinstance(argument, TensorArgument) and len(argument.shape) == 2 and index not in moving
    ]
    if known is not None:
        return known if known in matrices else None
    return matrices[0] if len(matrices) == 1 and moving else None


def _store_other_way(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    index = _weights(runnable.family)
    assert index is not None
    arguments = list(runnable.arguments)
    weights, converted = arguments[index], runnable.converted
    key = "other_layout", id(weights)
    if key not in converted:
        converted[key] = (
            weights.t().contiguous().t() if weights.is_contiguous() else weights.contiguous()
        )
    arguments[index] = converted[key]
    return runnable.with_arguments(tuple(arguments))


def _store_weights(module: Any, names: tuple[str, ...]) -> None:
    kind = import_torch().nn.Linear
    layers = (layer for layer in module.modules() if isinstance(layer, kind))
    # A weight that layers share is stored once; `dict` keeps each parameter once.
    weights = dict.fromkeys(
        [_parameter(module, name) for name in names] or [layer.weight for layer in layers]
    )
    if not weights:
        raise CurvescopeError("the steps have no linear layer")
    for weight in weights:
        weight.data = weight.data.t().contiguous().t()


def _parameter(module: Any, name: str) -> Any:
    try:
        return module.get_parameter(name)
    except AttributeError:  # a layer that is the whole model has the name of its class
        return module.get_parameter(name.rpartition(".")[2])


_HOW = """for name in {weights}:
    weight = model.get_parameter(name)
    weight.data = weight.data.t().contiguous().t()"""

FACTOR = Factor(
    name="other_layout",
    what="weights of matrix products are stored in the other order",
    remedy="store the weights of {where} in the other order",
    term=TermChange(how=_HOW, screen=2, reason_against=_reason_against, call=_store_other_way),
    step=StepChange(
        how=_HOW,
        common=11,
        change=lambda workload, target: ChangedModule(
            workload, partial(_store_weights, names=target.weights)
        ),
    ),
    sets="weights",
)
