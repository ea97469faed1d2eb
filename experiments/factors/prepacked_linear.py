"""Linear layers through oneDNN with weights that it has packed before, on a CPU and for inference only."""

from __future__ import annotations

from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..changed_steps import ChangedModule
from ..factor import Factor, StepChange

_TRAINS = "the steps compute gradients, and packed weights have none"


def _pack(module: Any) -> None:
    torch = import_torch()
    kind, dtype = torch.nn.Linear, torch.float32
    layers = [one for one in module.modules() if type(one) is kind and one.weight.dtype == dtype]
    if not layers:
        raise CurvescopeError("the steps have no linear layer in fp32")
    if not torch.backends.mkldnn.is_available():
        raise CurvescopeError("this PyTorch has no oneDNN")
    for layer in layers:
        layer.forward = _packed(torch, layer)


def _packed(torch: Any, layer: Any) -> Any:
    product = torch.ops.mkldnn._linear_pointwise.default
    with torch.no_grad():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())

    def forward(x: Any) -> Any:
        if torch.is_grad_enabled():
            raise CurvescopeError(_TRAINS)
        return product(x, weight, layer.bias, "none", [], "")

    return forward


FACTOR = Factor(
    name="prepacked_linear",
    what="linear layers run through oneDNN with packed weights",
    remedy="pack the weights of linear layers for oneDNN",
    refuses={"cuda": "oneDNN runs on CPUs"},
    step=StepChange(
        how="for inference: model = torch.compile(model) with TORCHINDUCTOR_FREEZING=1; or for each nn.Linear: "
        "weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach()), and in its forward "
        "torch.ops.mkldnn._linear_pointwise(x, weight, layer.bias, 'none', [], '')",
        common=10,
        reason_against=lambda target: _TRAINS if target.computes_gradients else None,
        change=lambda workload, _: ChangedModule(workload, _pack),
    ),
    sets="weights",
)
