"""Costs of a network from its structure alone: parameters, FLOPs, activations. Nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from . import Network

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Facts:
    """Costs of one network.

    Attributes:
        parameters: number of trainable parameters; a shared one counts once.
        parameter_tensors: number of tensors of these parameters.
        forward_flops: FLOPs per sample of convolutions and matrix products; one FMA is two.
        training_flops: FLOPs per sample of the forward and backward pass.
        activation_bytes: bytes per sample that the forward pass keeps for the backward pass, in
            fp32, without weights.
    """

    parameters: int
    parameter_tensors: int
    forward_flops: int
    training_flops: int
    activation_bytes: int


@cache
def facts(network: Network) -> Facts:
    """Costs at batch 2 (batch normalisation needs two samples), halved to one sample; computed once
    per process.
    """
    import torch

    model, inputs, targets = build_on_meta(network, 2)
    parameters = {id(parameter) for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        # Views of one activation (e.g. transposed or flattened) share one buffer.
        base = tensor._base if tensor._base is not None else tensor
        if id(base) not in parameters:
            kept[id(base)] = base
        return tensor

    counter = _flop_counter()
    with counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = network.loss(model(*inputs), targets)
        forward_flops = counter.flops
        loss.backward()
    counts = [parameter.numel() for parameter in model.parameters()]
    kept_bytes = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
    return Facts(sum(counts), len(counts), forward_flops // 2, counter.flops // 2, kept_bytes // 2)


def _flop_counter() -> Any:
    """A context that adds to `flops` the FLOPs of every operator inside, by the formulas of torch's
    FLOP counter.

    The counter itself takes apart every operator, and tensors without data run some through Python.
    Together that is 90 % of the time for a ResNet. Here, an operator whose results are as large as
    its arguments does not run.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    def batch_norm(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
        return torch.empty_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])

    def batch_norm_backward(
        _: Any, x: torch.Tensor, weights: torch.Tensor, *__: Any
    ) -> tuple[torch.Tensor, ...]:
        return torch.empty_like(x), torch.empty_like(weights), torch.empty_like(weights)

    aten = torch.ops.aten
    instead = {
        aten.native_batch_norm.default: batch_norm,
        aten.native_batch_norm_backward.default: batch_norm_backward,
        aten.threshold_backward.default: lambda gradient, *_: torch.empty_like(gradient),
    }

    class FlopCounter(TorchDispatchMode):
        flops = 0

        def __torch_dispatch__(
            self, operator: Any, _: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = instead.get(operator, operator)(*args, **(kwargs or {}))
            if formula := flop_registry.get(getattr(operator, "_overloadpacket", operator)):
                self.flops += formula(*args, **(kwargs or {}), out_val=result)
            return result

    return FlopCounter()  # type: ignore[no-untyped-call]


def build_on_meta(
    network: Network, batch: int
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], Any]:
    """The module in training mode, inputs and targets, all with tensors without data."""
    import torch
    from torch.utils._pytree import tree_map_only

    with torch.device("meta"):
        model = network.build().train()
    data = network.sample(batch, "cpu", torch.Generator().manual_seed(0))
    return model, *tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), data)
