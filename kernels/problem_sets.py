"""Published problem sets and layers of networks: DeepBench's training sets, and layers by name."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

from ..profiling.workload.network_step import import_torch
from ..profiling.workload.networks import Network
from .conv import DIRECTIONS, Conv
from .gemm import Gemm
from .sweeps import Sweep

_DATA = Path(__file__).parent / "data"


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with (_DATA / name).open(newline="") as file:
        for row in csv.DictReader(file):
            yield {key: int(value) if value.isdigit() else value for key, value in row.items()}


def deepbench_gemm(precision: str = "fp32") -> list[Gemm]:
    """DeepBench's training GEMMs; n is the batch size. Source: kernels/data/README.md."""
    return [Gemm(**row, precision=precision) for row in _rows("deepbench_train_gemm.csv")]


def deepbench_conv(precision: str = "fp32") -> list[Conv]:
    """DeepBench's training convolutions, each in all three directions. Source: kernels/data/README.md."""
    problems = []
    for row in _rows("deepbench_train_conv.csv"):
        for name in ("stride", "padding"):
            row[name] = (row.pop(f"{name}_h"), row.pop(f"{name}_w"))
        problems += [Conv(**row, direction=d, precision=precision) for d in DIRECTIONS]
    return problems


def reduce(problem: Any, flops: int) -> Any:
    """Shrink a problem for a smoke test: halve its largest extents until its work is at most `flops` FLOPs."""
    names = ("m", "n", "k") if isinstance(problem, Gemm) else ("n", "c", "h", "w", "k")
    while (problem.work.flops or 0) > flops:
        for name in sorted(names, key=lambda name: -int(getattr(problem, name))):
            if (smaller := _halved(problem, name)) is not None:
                problem = smaller
                break
        else:
            break
    return problem


def reduce_sweep(sweep: Sweep, flops: int) -> Sweep:
    """Shrink each problem of a sweep; its label and the values on its axis stay."""
    problems = {value: reduce(problem, flops) for value, problem in sweep.problems.items()}
    return dataclasses.replace(sweep, label=f"{sweep.label} reduced", problems=problems)


def _halved(problem: Any, name: str) -> Any:
    extent = getattr(problem, name) // 2
    if isinstance(problem, Conv):
        if name in ("c", "k"):
            extent -= extent % problem.groups
        if name in ("h", "w"):  # the filter must fit
            axis = "hw".index(name)
            reach = problem.dilation[axis] * ((problem.r, problem.s)[axis] - 1) + 1
            extent = max(extent, reach - 2 * problem.padding[axis])
    return dataclasses.replace(problem, **{name: extent}) if 0 < extent < getattr(problem, name) else None


@dataclasses.dataclass(frozen=True)
class _Layer:
    """One call of a layer at one batch size, with its problems by direction: fwd, bwd_data, bwd_weights."""

    path: str
    problems: dict[str, Any]


def layer_sweeps(network: Network, batches: Sequence[int], kind: type, precision: str = "fp32") -> list[Sweep]:
    """The convolutions or matrix products of a network's layers, each alone, over batch sizes.

    A fully connected layer is three products: forward, to its data, and to its weights, where the batch is k. Layers of
    the same shape share one sweep, which names all of them. The first layer has no gradient to its data.

    Args:
        network: network that provides the layers; it is not trained.
        batches: batch sizes, increasing.
        kind: Conv for convolutions, Gemm for fully connected layers.
        precision: precision of the problems.
    """
    by_batch = [_layers(network, batch, kind, precision) for batch in batches]
    paths: dict[tuple[str, tuple[Any, ...]], list[str]] = {}
    for same in zip(*by_batch, strict=True):  # one layer at every batch size
        for role in same[0].problems:
            alike = paths.setdefault((role, tuple(layer.problems[role] for layer in same)), [])
            if same[0].path not in alike:
                alike.append(same[0].path)
    return [_sweep(role, alike, dict(zip(batches, problems, strict=True))) for (role, problems), alike in paths.items()]


def _sweep(role: str, paths: list[str], problems: dict[int, Any]) -> Sweep:
    first = next(iter(problems.values()))
    # The gradient to the weights of a fully connected layer sums over the samples.
    axis = "k" if isinstance(first, Gemm) and role == "bwd_weights" else "n"
    label = first.label if len(problems) == 1 else first.label_along(axis)
    phase = "forward" if role == "fwd" else "backward"
    return Sweep(f"{paths[0]} {label}", axis, problems, tuple(paths), phase)


def _layers(network: Network, batch: int, kind: type, precision: str) -> list[_Layer]:
    torch = import_torch()
    found: list[_Layer] = []

    def look(path: str) -> Any:
        def hook(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
            (x,) = inputs
            if kind is Conv:
                layer = _conv_layer(path, module, x.shape, x.requires_grad, precision)
            else:
                layer = _linear_layer(path, x.shape, output.shape, x.requires_grad, precision)
            found.append(layer)

        return hook

    with torch.device("meta"):
        model = network.build().train()
    of_kind = torch.nn.Conv2d if kind is Conv else torch.nn.Linear
    for path, module in model.named_modules():
        if isinstance(module, of_kind):
            module.register_forward_hook(look(path))
    inputs, _ = network.sample(batch, "cpu", torch.Generator().manual_seed(0))
    model(*(tensor.to("meta") for tensor in inputs))
    return found


def _conv_layer(path: str, module: Any, shape: Sequence[int], needs_gradient: bool, precision: str) -> _Layer:
    n, c, h, w = shape
    r, s = module.kernel_size
    geometry = (module.stride, module.padding, module.dilation, module.groups)
    roles = [d for d in DIRECTIONS if needs_gradient or d != "bwd_data"]
    problems = {d: Conv(n, c, h, w, module.out_channels, r, s, *geometry, d, precision=precision) for d in roles}
    return _Layer(path, problems)


def _linear_layer(
    path: str, shape: Sequence[int], output: Sequence[int], needs_gradient: bool, precision: str
) -> _Layer:
    inputs, outputs, rows = shape[-1], output[-1], prod(shape[:-1])
    problems = {
        "fwd": Gemm(outputs, rows, inputs, "TN", precision),
        "bwd_data": Gemm(inputs, rows, outputs, "NN", precision),
        "bwd_weights": Gemm(inputs, outputs, rows, "NT", precision),
    }
    if not needs_gradient:
        del problems["bwd_data"]
    return _Layer(path, problems)
