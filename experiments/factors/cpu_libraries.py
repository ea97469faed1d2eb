"""Factors of the libraries for CPUs: oneDNN and NNPACK."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.attribution.products import OF_MATRICES
from ...profiling.recording.operators import TensorArgument, Value
from ..changed_steps import ChangedModule
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import (
    FLOAT32,
    is_convolution,
    is_half,
    is_product,
    ran_kernel,
    ran_through_onednn,
)
from ..replay.recorded_call import CallFamily, RecordedCall, tensors_of
from ..replay.runnable import Runnable, setting

# CPU operators through oneDNN where PyTorch takes MKL, with weights that it has packed before, or
# without oneDNN.

_REFUSES = {"cuda": "oneDNN runs on CPUs"}
_MISSING_OF_ONEDNN = "this PyTorch has no oneDNN"
_TRAINS = "the steps compute gradients, and packed weights have none"


def _reason_against_onednn(family: CallFamily) -> str | None:
    call = family.largest
    if call.op not in OF_MATRICES:  # by itself PyTorch takes oneDNN for bf16 and fp16
        return "it is no matrix product that oneDNN takes"
    if ran_through_onednn(family):
        return "it runs through oneDNN already"
    if any(tensor.dtype != FLOAT32 for tensor in tensors_of(call.arguments)):
        return (
            "PyTorch runs products of this type through oneDNN already, if the CPU has "
            "instructions for it"
        )
    if call.op == "aten::addmm" and not _is_plain_addmm(call):
        return "oneDNN adds a bias of one dimension only, without factors"
    return None if import_torch().backends.mkldnn.is_available() else _MISSING_OF_ONEDNN


def _is_plain_addmm(call: RecordedCall) -> bool:
    bias, *others = call.arguments
    factors = [argument.value for argument in others if isinstance(argument, Value)]
    return (
        isinstance(bias, TensorArgument)
        and len(bias.shape) == 1
        and all(factor == 1 for factor in factors)
    )


def _through_onednn(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    """The product as a linear layer of oneDNN; a reordering of plain weights, where it does one, is
    in its time.
    """
    linear = import_torch().ops.mkldnn._linear_pointwise.default
    if runnable.call.op == "aten::linear":
        rows, weight, bias = runnable.arguments
    elif runnable.call.op == "aten::mm":
        (rows, second), bias = runnable.arguments, None
        weight = second.t()
    else:
        bias, rows, second = runnable.arguments[:3]
        weight = second.t()
    return replace(runnable, run=partial(linear, rows, weight, bias, "none", [], ""))


def _reason_against_without(family: CallFamily) -> str | None:
    call, ran = family.largest, ran_through_onednn(family)
    if ran is False or (
        ran is None and not is_convolution(call) and not (is_product(call) and is_half(call))
    ):
        return "PyTorch does not run this operator through oneDNN"
    return None if import_torch().backends.mkldnn.is_available() else _MISSING_OF_ONEDNN


def _without_onednn(_: Target) -> None:
    mkldnn = import_torch().backends.mkldnn
    if not (mkldnn.is_available() and mkldnn.enabled):
        raise CurvescopeError("this torch runs without oneDNN")
    mkldnn.set_flags(False)


def _pack(module: Any) -> None:
    torch = import_torch()
    kind, dtype = torch.nn.Linear, torch.float32
    layers = [
        layer for layer in module.modules() if type(layer) is kind and layer.weight.dtype == dtype
    ]
    if not layers:
        raise CurvescopeError("the steps have no linear layer in fp32")
    if not torch.backends.mkldnn.is_available():
        raise CurvescopeError(_MISSING_OF_ONEDNN)
    for layer in layers:
        layer.forward = _pack_layer(torch, layer)


def _pack_layer(torch: Any, layer: Any) -> Any:
    product = torch.ops.mkldnn._linear_pointwise.default
    with torch.no_grad():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())

    def forward(rows: Any) -> Any:
        if torch.is_grad_enabled():
            raise CurvescopeError(_TRAINS)
        return product(rows, weight, layer.bias, "none", [], "")

    return forward


ONEDNN = Factor(
    name="onednn",
    what="matrix products run through oneDNN instead of MKL",
    remedy="run {where} through oneDNN",
    refuses=_REFUSES,
    term=TermChange(
        how="torch.utils.mkldnn.to_mkldnn(layer), or torch.compile(model) with "
        "TORCHINDUCTOR_FREEZING=1; or in the "
        "layer's forward: torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')",
        how_training="a torch.autograd.Function, as oneDNN's product has no gradient of its own. "
        "Its forward returns "
        "product(x, weight, bias, 'none', [], '') with product = "
        "torch.ops.mkldnn._linear_pointwise; its backward, of "
        "gradients g of two dimensions, product(g, weight.t(), None, 'none', [], '') for x and "
        "product(g.t(), x.t(), None, 'none', [], '') for weight",
        screen=1,
        reason_against=_reason_against_onednn,
        call=_through_onednn,
    ),
    levels=True,
)
NO_ONEDNN = Factor(
    name="no_onednn",
    what="operators run without oneDNN",
    remedy="run {where} without oneDNN",
    refuses=_REFUSES,
    term=TermChange(
        how="with torch.backends.mkldnn.flags(enabled=False): around the layer's call",
        screen=5,
        reason_against=_reason_against_without,
        around=lambda: setting(import_torch().backends.mkldnn, "enabled", False),
    ),
    step=StepChange(how="torch.backends.mkldnn.enabled = False", screen=5, prepare=_without_onednn),
    levels=True,
)
PREPACKED_LINEAR = Factor(
    name="prepacked_linear",
    what="linear layers run through oneDNN with packed weights",
    remedy="pack the weights of linear layers for oneDNN",
    refuses=_REFUSES,
    step=StepChange(
        how="for inference: model = torch.compile(model) with TORCHINDUCTOR_FREEZING=1; or for "
        "each nn.Linear: "
        "weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach()), and in its "
        "forward "
        "torch.ops.mkldnn._linear_pointwise(x, weight, layer.bias, 'none', [], '')",
        common=10,
        reason_against=lambda target: _TRAINS if target.computes_gradients else None,
        change=lambda workload, _: ChangedModule(workload, _pack),
    ),
    sets="weights",
)


# Convolutions without NNPACK on a CPU: PyTorch takes it from a batch of 16 on, where oneDNN does
# not run.

_MISSING_OF_NO_NNPACK = "this torch has no NNPACK for this CPU"


def _reason_against_no_nnpack(family: CallFamily) -> str | None:
    if not is_convolution(family.largest) or ran_kernel(family, "nnpack") is False:
        return "PyTorch does not run this operator through NNPACK"
    return None if import_torch().backends.nnpack.is_available() else _MISSING_OF_NO_NNPACK


def _prepare(_: Target) -> None:
    nnpack = import_torch().backends.nnpack
    if not nnpack.is_available():
        raise CurvescopeError(_MISSING_OF_NO_NNPACK)
    (was_enabled,) = nnpack.set_flags(False)
    if not was_enabled:
        raise CurvescopeError("the steps run without NNPACK already")


NO_NNPACK = Factor(
    name="no_nnpack",
    what="convolutions run without NNPACK",
    remedy="run {where} without NNPACK",
    refuses={"cuda": "NNPACK runs on CPUs"},
    term=TermChange(
        how="with torch.backends.nnpack.flags(enabled=False): around the layer's call",
        reason_against=_reason_against_no_nnpack,
        around=lambda: import_torch().backends.nnpack.flags(enabled=False),
    ),
    step=StepChange(how="torch.backends.nnpack.set_flags(False)", prepare=_prepare),
)
