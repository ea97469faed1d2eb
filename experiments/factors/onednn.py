"""Matrix products through oneDNN on a CPU, where PyTorch takes MKL."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...base.torch_runtime import import_torch
from ...profiling.recording.operators import TensorArgument, Value
from ..factor import Factor, TermChange
from ..replay.operator_kinds import FLOAT32, ran_through_onednn
from ..replay.recorded_call import CallFamily, RecordedCall, tensors_of
from ..replay.runnable import Runnable

# PyTorch takes oneDNN by itself for products in bf16 and fp16.
_PRODUCTS = frozenset({"aten::linear", "aten::addmm", "aten::mm"})


def _reason_against(family: CallFamily) -> str | None:
    call = family.largest
    if call.op not in _PRODUCTS:
        return "it is no matrix product that oneDNN takes"
    if ran_through_onednn(family):
        return "it runs through oneDNN already"
    if any(tensor.dtype != FLOAT32 for tensor in tensors_of(call.arguments)):
        return "PyTorch runs products of this type through oneDNN already, if the CPU has instructions for it"
    if call.op == "aten::addmm" and not _is_plain_addmm(call):
        return "oneDNN adds a bias of one dimension only, without factors"
    return None if import_torch().backends.mkldnn.is_available() else "this PyTorch has no oneDNN"


def _is_plain_addmm(call: RecordedCall) -> bool:
    bias, *others = call.arguments
    factors = [argument.value for argument in others if isinstance(argument, Value)]
    return isinstance(bias, TensorArgument) and len(bias.shape) == 1 and all(factor == 1 for factor in factors)


def _through_onednn(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    """The product as a linear layer of oneDNN; a reordering of plain weights, where it does one, is in its time."""
    linear = import_torch().ops.mkldnn._linear_pointwise.default
    if runnable.call.op == "aten::linear":
        x, weight, bias = runnable.arguments
    elif runnable.call.op == "aten::mm":
        (x, second), bias = runnable.arguments, None
        weight = second.t()
    else:
        bias, x, second = runnable.arguments[:3]
        weight = second.t()
    return replace(runnable, run=partial(linear, x, weight, bias, "none", [], ""))


FACTOR = Factor(
    name="onednn",
    what="matrix products run through oneDNN instead of MKL",
    remedy="run {where} through oneDNN",
    refuses={"cuda": "oneDNN runs on CPUs"},
    term=TermChange(
        how="torch.utils.mkldnn.to_mkldnn(layer), or torch.compile(model) with TORCHINDUCTOR_FREEZING=1; or in the "
        "layer's forward: torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')",
        how_training="a torch.autograd.Function, as oneDNN's product has no gradient of its own. Its forward returns "
        "product(x, weight, bias, 'none', [], '') with product = torch.ops.mkldnn._linear_pointwise; its backward, of "
        "gradients g of two dimensions, product(g, weight.t(), None, 'none', [], '') for x and "
        "product(g.t(), x.t(), None, 'none', [], '') for weight",
        screen=1,
        reason_against=_reason_against,
        call=_through_onednn,
    ),
    levels=True,
)
