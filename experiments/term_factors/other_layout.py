"""Weights of matrix products stored in the other order."""

from __future__ import annotations

from ...profiling.recording.experiments import FactorFacts
from ...profiling.recording.operators import TensorArgument
from ..replay.operator_kinds import is_product
from ..replay.recorded_call import CallFamily
from .change import Change, Runnable

FACTS = FactorFacts(
    "other_layout",
    what="weights of matrix products are stored in the other order",
    remedy="store the weights of {where} in the other order",
    how="layer.weight.data = layer.weight.data.t().contiguous().t()",
)

# Index of the operand that holds the weights, for operators that say so.
_WEIGHTS = {"aten::linear": 1, "aten::addmm": 2}


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `FactorModule`."""
    if not is_product(family.largest):
        return "it is no matrix product"
    return None if _weights(family) is not None else "none of its operands is known to be a matrix of weights"


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


def _store_other_way(runnable: Runnable, batches: tuple[int, ...]) -> Runnable:  # noqa: ARG001
    index = _weights(runnable.family)
    assert index is not None
    arguments = list(runnable.arguments)
    weights, converted = arguments[index], runnable.converted
    key = FACTS.name, id(weights)
    if key not in converted:
        converted[key] = weights.t().contiguous().t() if weights.is_contiguous() else weights.contiguous()
    arguments[index] = converted[key]
    return runnable.with_arguments(tuple(arguments))


CHANGE = Change(call=_store_other_way)
