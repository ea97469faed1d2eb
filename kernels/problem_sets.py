"""The problems of the layers of networks by name."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
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
    # by direction and problems, the layers that share them, in order and once
    layers: dict[tuple[str, tuple[Any, ...]], dict[str, None]] = defaultdict(dict)
    for calls in zip(*by_batch, strict=True):  # one call of a layer at every batch size
        path, by_direction = calls[0]
        for direction in by_direction:
            problems = tuple(of_batch[direction] for _, of_batch in calls)
            layers[direction, problems][path] = None
    sweeps = []
    for (direction, problems), paths in layers.items():
        # The gradient to the weights of a fully connected layer sums over the samples.
        axis = "k" if direction == "bwd_weights" and kind is Gemm else "n"
        sweep = along(axis, dict(zip(batches, problems, strict=True)))
        same_shape = tuple(paths)
        label = f"{same_shape[0]} {sweep.label}"
        phase = phase_of(direction)
        sweeps.append(dataclasses.replace(sweep, label=label, layers=same_shape, phase=phase))
    return sweeps


def _layers(
    network: Network, batch: int, kind: type, precision: str
) -> list[tuple[str, dict[str, Any]]]:
    """Every call of a layer at one batch size: its module path, and its problems by direction."""
    torch = import_torch()
    layers: list[tuple[str, dict[str, Any]]] = []

    def add_layer(path: str, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (x,) = inputs
        if kind is Conv:
            problems = _conv_problems(module, x, precision)
        else:
            problems = _gemm_problems(x, output, precision)
        if not x.requires_grad:
            del problems["bwd_data"]
        layers.append((path, problems))

    with torch.device("meta"):
        model = network.build().train()
    module_type = torch.nn.Conv2d if kind is Conv else torch.nn.Linear
    for path, module in model.named_modules():
        if isinstance(module, module_type):
            module.register_forward_hook(partial(add_layer, path))
    generator = torch.Generator().manual_seed(0)
    inputs, _ = network.sample(batch, "cpu", generator)
    model(*(tensor.to("meta") for tensor in inputs))
    return layers


def _conv_problems(module: Any, image: Any, precision: str) -> dict[str, Any]:
    (n, c, h, w), (r, s) = image.shape, module.kernel_size
    geometry = (module.stride, module.padding, module.dilation, module.groups)
    forward = Conv(n, c, h, w, module.out_channels, r, s, *geometry, precision=precision)
    return {name: dataclasses.replace(forward, direction=name) for name in DIRECTIONS}


def _gemm_problems(inputs: Any, outputs: Any, precision: str) -> dict[str, Any]:
    *samples, k = inputs.shape
    m, n = outputs.shape[-1], prod(samples)
    return {
        "fwd": Gemm(m, n, k, "TN", precision),
        "bwd_data": Gemm(k, n, m, "NN", precision),
        "bwd_weights": Gemm(k, m, n, "NT", precision),
    }
