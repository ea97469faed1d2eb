"""The factor of a mixture of experts: all of them compute with the weights of one.

Their products stay as many, of the same shapes and with the same tokens. The bytes of weights that
come from memory change: the first product leaves the one expert's in the cache.
"""

from __future__ import annotations

from ...analysis.decompose.repeated_layers import is_of_experts
from ...base.numbers import quantity
from ...profiling.hardware.host import read_shared_cache_bytes
from ...profiling.recording.operators import GROUPED, Argument, TensorArgument
from ..factor import Factor, TermChange
from ..replay.operator_kinds import is_product
from ..replay.recorded_call import CallFamily, CannotReplay, RecordedCall
from ..replay.runnable import Runnable


def _weights_at(call: RecordedCall) -> int | None:
    """The index of the argument that holds weights of one expert or of all; None without one."""
    if call.op in GROUPED:
        return 1 if _dimensions(call.arguments[1]) == 3 else None
    if not is_product(call):
        return None
    of_expert = is_of_experts(call.layer or "")
    matrices = [at for at, argument in enumerate(call.arguments) if _dimensions(argument) > 1]
    for at in matrices:
        numbers = call.numbers.operands.get(at)
        whole = of_expert or _dimensions(call.arguments[at]) == 3
        if numbers is not None and (numbers.part_of or (numbers.parameter and whole)):
            return at
    return matrices[-1] if of_expert and call.phase == "forward" else None


def _dimensions(argument: Argument) -> int:
    return len(argument.shape) if isinstance(argument, TensorArgument) else 0


def _reason_against(family: CallFamily) -> str | None:
    if _weights_at(family.largest) is None:
        return "none of its operands is known to be weights of experts"
    return None


def _with_one(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    at = _weights_at(runnable.call)
    if at is None:
        return runnable
    weights = runnable.arguments[at]
    if weights.dim() == 3:
        expert = weights[:1]
        changed = expert.expand_as(weights)
    else:
        layout = f"{tuple(weights.shape)} {weights.stride()} {weights.dtype}"
        expert = changed = runnable.converted.setdefault((f"one expert {layout}", 0), weights)
    bytes_ = expert.numel() * expert.element_size()
    cache_bytes = read_shared_cache_bytes(str(weights.device))
    if cache_bytes is not None and bytes_ > cache_bytes:
        raise CannotReplay(
            f"the weights of one expert, {quantity(bytes_, 'B')}, do not fit the last-level cache "
            f"of {quantity(cache_bytes, 'B')}"
        )
    arguments = list(runnable.arguments)
    arguments[at] = changed
    return runnable.with_arguments(tuple(arguments))


ONE_EXPERT = Factor(
    name="one_expert",
    what="all experts read the weights of one",
    term=TermChange(
        needs_evidence=True,
        reason_against=_reason_against,
        call=_with_one,
        same_work=True,
    ),
)
