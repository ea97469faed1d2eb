"""Operators of a network's table with their extents, and the terms of those that only move data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from .launches import ModelledGpu
from .problems import ITEM_BYTES, Floats


@dataclass(frozen=True, kw_only=True)
class ModelledTerm:
    """One operator in one phase; arrays of shape (batches,)."""

    layer: str | None  # module path; None outside layers
    phase: str  # forward, backward or optimizer
    op: str  # framework operator
    # or forward, backward_data, backward_weights, product: for the model's error
    kind: str = "streaming"
    kernel: tuple[str, ...]  # name of the main kernel, by batch size
    time_s: Floats  # time of all its kernels
    launches: int = 1
    flops: Floats | None = None  # FLOPs of the direct algorithm; None for operators without
    bytes_compulsory: Floats  # bytes if each operand is moved once
    workspace_bytes: Floats  # scratch memory


@dataclass(frozen=True)
class OperatorRow:
    """An operator with its extents at every batch size."""

    sizes: Floats  # the batch sizes
    layer: str | None  # module path
    op: str  # operator
    inputs: list[list[Floats]]  # extents of each input tensor, each of shape (batches,)
    outputs: list[list[Floats]]  # extents of each output tensor, each of shape (batches,)
    settings: Mapping[str, Any]  # stride and padding of a convolution

    @classmethod
    def of(cls, row: Mapping[str, Any], sizes: Floats) -> OperatorRow:
        """An operator of a table, whose extents are each a factor of the batch size and
        a constant.
        """
        inputs = [_scale(shape, sizes) for shape in row["inputs"]]
        outputs = [_scale(shape, sizes) for shape in row["outputs"]]
        settings = row.get("settings", {})
        return cls(sizes, row["layer"], row["op"], inputs, outputs, settings)

    def elements(self, side: str) -> Floats:
        """Number of elements of all inputs or outputs."""
        total = np.asarray(0.0)
        for extents in getattr(self, side):
            total = total + product(extents)
        return np.asarray(total)


def _scale(shape: Any, sizes: Floats) -> list[Floats]:
    return [factor * sizes + constant for factor, constant in shape]


def product(extents: Sequence[Floats]) -> Floats:
    """Number of elements of a tensor."""
    if not extents:
        return np.asarray(1.0)
    return np.asarray(reduce(np.multiply, extents))


# Passes over the output (forward, backward) of operators that only move data; operators not listed
# read their inputs and write their outputs, and move half as much again in the backward pass.
# Dropout is one kernel on a GPU: the random numbers and the scaling belong to its product.
_PASSES: Mapping[str, tuple[float, float]] = {
    "relu_": (2, 3),
    "native_batch_norm": (3, 5),
    "native_layer_norm": (2, 4),
    "add": (3, 0),  # its gradient passes as it is; see `find_summed_gradients`
    "cat": (2, 2),
    "mul": (2.25, 2.25),
    "clone": (2, 2),
    "gelu": (2, 3),
    "_safe_softmax": (2, 3),
    "_log_softmax": (2, 3),
    "bernoulli_": (0, 0),
    "div_": (0, 0),
    "zeros_like": (0, 0),
    "add_": (0, 0),
}


# Passes of a normalisation by stored statistics: it reads its input once.
_INFERENCE_PASSES = 2
# Share of STREAM's rate at which a library's kernel for one operator moves bytes. cudnn_scope's
# ReLUs of 4 MB and more reach 0.72 on Kepler (K80), 0.70 on Maxwell (M60), 1.00 on Volta (V100,
# Titan V) and 0.91 on Turing (Quadro RTX 6000): this is their geometric mean, and the error of
# `streaming` has their spread.
ELEMENTWISE = 0.82


# Operators that may begin a branch of the network.
_BRANCHING = ("convolution", "max_pool2d", "max_pool2d_with_indices", "avg_pool2d")


def find_summed_gradients(rows: Sequence[OperatorRow]) -> dict[int, Floats]:
    """Elements of each gradient that is added to another one, by the index of an operator where
    branches part or meet.

    A tensor that several operators read has a gradient from each. PyTorch and Caffe (layer `split`)
    add them one by one (titanx_maxwell_caffe_per_layer.csv: GoogLeNet's `split` layers take 5 % of
    the backward pass). Branches are recognised by their shapes: an operator that does not read what
    the operator before it wrote begins a branch; a sum without such a branch adds a tensor to what
    was computed from it.
    """
    sums: dict[int, Floats] = {}
    has_branch = False
    before = rows[0]
    for index, row in enumerate(rows):
        if row.op in _BRANCHING and index and not _same(row.inputs[0], before.outputs[0]):
            sums[index] = product(row.inputs[0])
            has_branch = True
        elif row.op in ("add", "cat"):
            if row.op == "add" and len(row.inputs) > 1 and not has_branch:
                sums[index] = product(row.outputs[0])
            has_branch = False
        if row.outputs and row.outputs[0]:  # counters have no extents
            before = row
    return sums


def _same(first: Sequence[Floats], second: Sequence[Floats]) -> bool:
    if len(first) != len(second):
        return False
    return all((ours == theirs).all() for ours, theirs in zip(first, second, strict=True))


def sum_gradients(row: OperatorRow, elements: Floats, machine: ModelledGpu) -> ModelledTerm:
    """The sum of two gradients of a tensor that several operators read, at STREAM's rate.

    `split` layers of Caffe take as long (titanx_maxwell_caffe_per_layer.csv).
    """
    return _model_streaming(row, "backward", "sum_gradients", 3 * elements, machine, share=1.0)


# Time of a max pool over that of a ReLU with as many bytes: 3x3 pools of stride 2 of cudnn_scope on
# K80, M60, V100 and Titan V, 32 images and more; on a Quadro RTX 6000, a pool is no slower. No
# gradient of a pool is published.
_POOL_SLOWDOWN = {"kepler": 1.8, "maxwell": 1.35, "pascal": 1.35, "volta": 1.2}


def model_movement(
    row: OperatorRow, kind: str, machine: ModelledGpu, trains: bool = True
) -> list[ModelledTerm]:
    """An operator that only moves data: forward, and backward unless `kind` is forward.

    `trains` says whether normalisations compute the statistics of the batch.
    """
    outputs = product(row.outputs[0])
    inputs = row.elements("inputs")
    slowdown = 1.0
    if row.op.startswith("max_pool"):  # the positions of the maxima are two words each
        forward = backward = inputs + 3 * outputs
        slowdown = _POOL_SLOWDOWN.get(machine.device.architecture, 1.0)
    elif row.op == "embedding":  # the gradient is as large as the table
        forward = 2 * outputs
        backward = outputs + product(row.inputs[0])
    elif row.op in _PASSES:
        passes, backward_passes = _PASSES[row.op]
        if row.op == "native_batch_norm" and not trains:
            passes = _INFERENCE_PASSES
        forward = passes * outputs
        backward = backward_passes * outputs
    else:
        forward = inputs + outputs
        backward = 1.5 * forward
    terms = [_model_streaming(row, "forward", row.op, forward, machine, slowdown)]
    if kind != "forward":
        terms.append(_model_streaming(row, "backward", row.op, backward, machine))
    return [term for term in terms if term.time_s.any()]


def _model_streaming(
    row: OperatorRow,
    phase: str,
    kernel: str,
    elements: Floats,
    machine: ModelledGpu,
    slowdown: float = 1.0,
    share: float = ELEMENTWISE,
) -> ModelledTerm:
    moved = np.broadcast_to(machine.item_bytes * elements, row.sizes.shape)
    launch = machine.stream(kernel, moved, share)
    time_s = launch.time_s * slowdown
    return ModelledTerm(
        layer=row.layer,
        phase=phase,
        op=row.op,
        kernel=(kernel,) * len(moved),
        time_s=np.where(moved > 0, time_s, 0.0),
        bytes_compulsory=moved,
        workspace_bytes=np.zeros_like(moved),
    )


def sgd(
    operations: Mapping[str, Any], machine: ModelledGpu, sizes: Floats, passes: int
) -> ModelledTerm:
    """The update of all parameters, in this many passes over them."""
    kernel = "sgd_momentum"
    parameter_bytes = ITEM_BYTES * operations["parameters"]
    moved = np.full(sizes.shape, float(passes * parameter_bytes))
    launch = machine.stream(kernel, moved)
    return ModelledTerm(
        layer=None,
        phase="optimizer",
        op="sgd",
        kernel=(kernel,) * len(sizes),
        time_s=launch.time_s,
        bytes_compulsory=moved,
        workspace_bytes=np.zeros_like(moved),
    )


def bias(row: OperatorRow, phase: str, machine: ModelledGpu) -> ModelledTerm:
    """The bias of a convolution: added forward, its gradient summed backward."""
    outputs = row.elements("outputs")
    if phase == "forward":
        return _model_streaming(row, phase, "add_bias", 2 * outputs, machine)
    return _model_streaming(row, phase, "sum_bias", outputs, machine)
