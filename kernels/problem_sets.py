"""The problems of the layers of networks by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from ..base.torch_runtime import import_torch
from ..profiling.workload.networks import Network
from .conv import DIRECTIONS, Conv
from .gemm import Gemm
from .sweeps import Sweep, along, phase_of


def layer_sweeps(
    network: Network, batches: Sequence[int], kind: type, precision: str = "fp32"
) -> list[Sweep]:
    """The convolutions (`kind` Conv) or matrix products (Gemm) of a network's layers, each alone,
    over batch sizes.

    A fully connected layer is three products: forward, to its data, and to its weights, where the
    batch is k. Layers of the same shape share one sweep, which names all of them. The first layer
    has no gradient to its data.
    """
    by_batch = [_layers(network, batch, kind, precision) for batch in batches]
    paths: dict[tuple[str, tuple[Any, ...]], list[str]] = {}
    for calls in zip(*by_batch, strict=True):  # one call of a layer at every batch size
        path, by_direction = calls[0]
        for direction in by_direction:
            same_shape = paths.setdefault(
                (direction, tuple(problems[direction] for _, problems in calls)), []
            )
            if path not in same_shape:
                same_shape.append(path)
    sweeps = []
    for (direction, problems), same_shape in paths.items():
        # The gradient to the weights of a fully connected layer sums over the samples.
        axis = "k" if direction == "bwd_weights" and kind is Gemm else "n"
        sweep = along(axis, dict(zip(batches, problems, strict=True)))
        label = f"{same_shape[0]} {sweep.label}"
        sweeps.append(
            dataclasses.replace(
                sweep, label=label, layers=tuple(same_shape), phase=phase_of(direction)
            )
        )
    return sweeps


def _layers(
    network: Network, batch: int, kind: type, precision: str
) -> list[tuple[str, dict[str, Any]]]:
    """Every call of a layer at one batch size: its module path, and its problems by direction."""
    torch = import_torch()
    layers: list[tuple[str, dict[str, Any]]] = []

    def add_layer(path: str, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (x,) = inputs
        problems = (
            _conv_problems(module, x, precision)
            if kind is Conv
            else _gemm_problems(x, output, precision)
        )
        if not x.requires_grad:
            del problems["bwd_data"]
        layers.append((path, problems))

    with torch.device("meta"):
        model = network.build().train()
    module_type = torch.nn.Conv2d if kind is Conv else torch.nn.Linear
    for path, module in model.named_modules():
        if isinstance(module, module_type):
            module.register_forward_hook(partial(add_layer, path))
    inputs, _ = network.sample(batch, "cpu", torch.Generator().manual_seed(0))
    model(*(tensor.to("meta") for tensor in inputs))
    return layers


def _conv_problems(module: Any, image: Any, precision: str) -> dict[str, Any]:
    (n, c, h, w), (r, s) = image.shape, module.kernel_size
    geometry = (module.stride, module.padding, module.dilation, module.groups)
    return {
        d: Conv(n, c, h, w, module.out_channels, r, s, *geometry, d, precision=precision)
        for d in DIRECTIONS
    }


def _gemm_problems(inputs: Any, outputs: Any, precision: str) -> dict[str, Any]:
    m, n, k = outputs.shape[-1], prod(inputs.shape[:-1]), inputs.shape[-1]
    return {
        "fwd": Gemm(m, n, k, "TN", precision),
        "bwd_data": Gemm(k, n, m, "NN", precision),
        "bwd_weights": Gemm(k, m, n, "NT", precision),
    }
