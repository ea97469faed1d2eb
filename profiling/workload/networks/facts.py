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
        activation_bytes: bytes per sample that the forward pass keeps for the backward pass, in fp32, without weights.
    """

    parameters: int
    parameter_tensors: int
    forward_flops: int
    training_flops: int
    activation_bytes: int


@cache
def facts(network: Network) -> Facts:
    """Costs at batch 2 (batch normalisation needs two samples), halved to one sample; computed once per process."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs, targets = build_on_meta(network, 2)
    own = {id(parameter) for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        # Views of one activation (e.g. transposed or flattened) share one buffer.
        base = tensor._base if tensor._base is not None else tensor
        if id(base) not in own:
            kept[id(base)] = base
        return tensor

    with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        loss = network.loss(model(*inputs), targets)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    flops = forward.get_total_flops()
    return Facts(
        sum(parameter.numel() for parameter in model.parameters()),
        len(list(model.parameters())),
        flops // 2,
        (flops + backward.get_total_flops()) // 2,
        sum(tensor.numel() * tensor.element_size() for tensor in kept.values()) // 2,
    )


def build_on_meta(network: Network, batch: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], Any]:
    """The module in training mode, inputs and targets, all with tensors without data."""
    import torch

    with torch.device("meta"):
        model = network.build().train()
    inputs, targets = network.sample(batch, "cpu", torch.Generator().manual_seed(0))
    return model, _on_meta(inputs), _on_meta(targets)


def _on_meta(value: Any) -> Any:
    """Replace tensors, alone or in tuples, by tensors without data; other values are unchanged."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, tuple):
        return tuple(_on_meta(item) for item in value)
    return value
