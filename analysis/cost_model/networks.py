"""Models a training step of a network as terms: the kernels of every operator, over many batch
sizes at once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.errors import CurvescopeError
from .choice import (
    CHOICES_SEEN,
    Chosen,
    Library,
    choose_algorithm,
    estimate_products_of,
    lacks_transposed,
    look_up_choice,
)
from .convolution import GROUPED_ON, estimate_algorithms
from .frameworks import FRAMEWORKS, HOST_LAUNCH_S, Framework, copying_s, parameter_count, waiting_s
from .launches import ModelledGpu
from .learned import load_learned
from .problems import ITEM_BYTES, PHASES, Convolutions, Floats, Products
from .product import CostEstimate
from .streaming import (
    ModelledTerm,
    OperatorRow,
    bias,
    find_summed_gradients,
    model_movement,
    product,
    sgd,
    sum_gradients,
)
from .tensor_cores import (
    TensorGpu,
    estimate_tensor_convolutions,
    estimate_tensor_products,
    tensor_machine,
)

TABLE = Path(__file__).with_name("networks.json.gz")
# Copies per parameter in SGD with momentum: weight, gradient and momentum.
_PARAMETER_COPIES = 3
# Memory used by driver and libraries. Not measured: a round figure for CUDA 8 to 12.
CONTEXT_BYTES = 400e6
_PRODUCTS = ("addmm", "mm", "bmm")
_UNKNOWN_WORK = frozenset(
    {"baddbmm", "mv", "dot", "addmv", "_convolution", "_cudnn_rnn", "_thnn_fused_lstm_cell"}
)
# On tensor cores, the model knows one algorithm of each phase.
_TENSOR_ALGORITHMS = {
    "forward": "IMPLICIT_PRECOMP_GEMM",
    "backward_data": "ALGO_1",
    "backward_weights": "ALGO_1",
}

Operations = Mapping[str, Any]
Placed = tuple[int, int, ModelledTerm]  # a term with its place in the step, see `_order`


@dataclass(frozen=True)
class Step:
    """Modelled steps at several batch sizes."""

    batches: Floats  # the batch sizes, shape (batches,)
    terms: tuple[ModelledTerm, ...]  # terms in the order of the step
    host_s: float  # host time for launching them
    # time of kernels that run while others do, because the framework updates parameters beside the
    # passes
    beside_s: Floats
    # time that no kernel of the passes runs, because the host waits for single operators, for
    # updates or for images; shape (batches,)
    waiting_s: Floats
    memory_bytes: Floats  # memory without workspace, shape (batches,)
    fits: npt.NDArray[np.bool_]  # whether it fits the GPU

    @property
    def device_s(self) -> Floats:
        """Time of all kernels, s."""
        return np.asarray(sum(term.time_s for term in self.terms))

    @property
    def time_s(self) -> Floats:
        """Time of a step: of the device including waits, or of the host if longer."""
        return self.wall_s(self.device_s)

    def wall_s(self, device_s: Floats) -> Floats:
        """Time of the step for a given kernel time."""
        alone_s = device_s - self.beside_s
        return np.maximum(alone_s + self.waiting_s, self.host_s)


@cache
def _table() -> dict[str, Operations]:
    with gzip.open(TABLE, "rt") as file:
        loaded: dict[str, Operations] = json.load(file)
    return loaded


def load_operations(network: str) -> Operations:
    """Load the operators of a named network; an unknown one raises CurvescopeError."""
    tables = _table()
    if network not in tables:
        names = ", ".join(tables)
        raise CurvescopeError(f"The cost model has no table for {network!r}: choose from {names}.")
    return tables[network]


def estimate_step(
    operations: Operations,
    batches: Sequence[int],
    machine: ModelledGpu,
    library: Library,
    kind: str = "training",
    memory_bytes: float | None = None,
    framework: Framework = FRAMEWORKS["torch"],
    precision: str = "fp32",
) -> Step:
    """Cost of a step at every batch size; CurvescopeError for an operator or a precision that the
    model does not know.

    In fp16 and bf16, products and convolutions run on tensor cores; parameters, their gradients and
    the update stay in fp32. `memory_bytes` replaces the memory of the GPU (for what-if questions).
    """
    tensor = None
    if precision != "fp32":
        tensor = tensor_machine(machine.device, precision)
        machine = replace(machine, item_bytes=tensor.item_bytes)
    sizes = np.asarray(batches, np.float64)
    table = operations["operations"]
    rows = [OperatorRow.of(row, sizes) for row in table]
    held = _count_held_bytes(operations, rows, kind, framework, machine.item_bytes)
    total = machine.device.memory_bytes if memory_bytes is None else memory_bytes
    usable = framework.usable_bytes(total - CONTEXT_BYTES)
    free = usable - held
    limit = np.clip(free, 0.0, framework.workspace_bytes)
    phases = PHASES[:1] if kind == "forward" else PHASES
    terms = _model_convolutions(table, rows, phases, machine, library, limit, framework, tensor)
    terms += _model_products(rows, kind, machine, library, tensor)
    _refuse_unknown_work(rows)
    trains = kind != "forward" or not framework.infers
    terms += _model_movement(rows, kind, machine, trains)
    work = _sum_work(terms)
    terms.sort(key=lambda item: item[:2])
    ordered = [term for *_, term in terms]
    beside_s = np.zeros_like(sizes)
    if kind == "training":
        update = sgd(operations, machine, sizes, framework.update_passes)
        ordered.append(update)
        if framework.waits != "none":
            beside_s = update.time_s
    idle_s = waiting_s(operations, framework, kind, work, beside_s)
    copied_s = copying_s(operations, framework, kind, sizes)
    launches = sum(term.launches for term in ordered)
    return Step(
        batches=sizes,
        terms=tuple(ordered),
        host_s=HOST_LAUNCH_S * launches,
        beside_s=beside_s,
        waiting_s=np.broadcast_to(idle_s + copied_s, sizes.shape),
        memory_bytes=held,
        fits=free >= 0,
    )


def _refuse_unknown_work(rows: Sequence[OperatorRow]) -> None:
    for row in rows:
        if row.op in _UNKNOWN_WORK or "attention" in row.op:
            raise CurvescopeError(f"The cost model does not support {row.op} in {row.layer}.")


def _order(index: int, phase: str) -> tuple[int, int]:
    """Sort key: forward runs down the table, backward up."""
    return (0, index) if phase == "forward" else (1, -index)


def _model_movement(
    rows: Sequence[OperatorRow], kind: str, machine: ModelledGpu, trains: bool
) -> list[Placed]:
    terms: list[Placed] = []
    if kind != "forward":
        for index, elements in find_summed_gradients(rows).items():
            term = sum_gradients(rows[index], elements, machine)
            terms.append((*_order(index, "backward"), term))
    for index, row in enumerate(rows):
        if row.op not in ("convolution", *_PRODUCTS):
            for term in model_movement(row, kind, machine, trains):
                terms.append((*_order(index, term.phase), term))
    return terms


def _sum_work(terms: Sequence[Placed]) -> dict[tuple[str, int], tuple[int, Floats]]:
    """Launches and time of every operator, by phase and index in the table."""
    work: dict[tuple[str, int], tuple[int, Floats]] = {}
    for _, index, term in terms:
        place = term.phase, abs(index)
        launches, time_s = work.get(place, (0, np.zeros_like(term.time_s)))
        work[place] = launches + term.launches, time_s + term.time_s
    return work


def _count_held_bytes(
    operations: Operations,
    rows: Sequence[OperatorRow],
    kind: str,
    framework: Framework,
    item_bytes: int,
) -> Floats:
    """Peak memory, without workspace.

    In the backward pass, tensors kept by the forward pass are freed layer by layer, while gradients
    of a layer's input and output are allocated and freed: the peak is where the sum is largest.
    """
    weights = ITEM_BYTES * operations["parameters"]
    # (rows, batches)
    outputs = np.stack([_buffer_bytes(row, framework, item_bytes) for row in rows])
    largest = np.stack([_output_bytes(row, item_bytes) for row in rows])
    if kind == "forward":
        return np.asarray(weights + 2 * largest.max(axis=0))
    kept = operations["activation_bytes"] * rows[0].sizes * item_bytes / ITEM_BYTES
    if not framework.pool_places:
        places = sum(_places_bytes(row) for row in rows)
        kept = kept - places
    written = np.cumsum(outputs, axis=0)
    standing = kept * written / outputs.sum(axis=0)
    copies = _PARAMETER_COPIES
    if kind != "training":  # without momentum
        copies -= 1
    peaks = standing + 2 * largest
    return np.asarray(weights * copies + peaks.max(axis=0))


def _output_bytes(row: OperatorRow, item_bytes: int) -> Floats:
    nothing = np.zeros_like(row.sizes)
    return np.asarray(item_bytes * product(row.outputs[0]) + nothing)


def _buffer_bytes(row: OperatorRow, framework: Framework, item_bytes: int) -> Floats:
    """Bytes that an operator adds to the buffers; 0 for in-index operators."""
    if row.op.endswith("_"):
        return np.zeros_like(row.sizes)
    output = _output_bytes(row, item_bytes)
    if not framework.pool_places:
        return output
    return np.asarray(output + _places_bytes(row))


def _places_bytes(row: OperatorRow) -> Floats:
    """Bytes for the positions of a pool's maxima, two words each."""
    if not row.op.startswith("max_pool"):
        return np.asarray(0.0)
    places = product(row.outputs[0])
    return np.asarray(2 * ITEM_BYTES * places)


def _model_convolutions(
    operations: Sequence[Mapping[str, Any]],
    rows: Sequence[OperatorRow],
    phases: Sequence[str],
    machine: ModelledGpu,
    library: Library,
    limit: Floats,
    framework: Framework,
    tensor: TensorGpu | None,
) -> list[Placed]:
    indices = [index for index, row in enumerate(rows) if row.op == "convolution"]
    if not indices:
        return []
    wanted = [rows[index] for index in indices]
    extents = zip(*map(_extents, wanted), strict=True)
    problems = Convolutions(*map(np.concatenate, extents))
    device = machine.device
    models_groups = tensor is None and device.architecture in GROUPED_ON
    if (problems.groups > 1).any() and not models_groups:
        raise CurvescopeError(
            "The cost model supports grouped and depthwise convolutions only in fp32 and from "
            "Volta on: on older GPUs, cuDNN's kernels take 3 to 14 times as long as their bytes. "
            "Measure it with --device cuda."
        )
    count = len(limit)
    limits = np.tile(limit, len(wanted))
    times_all = framework.autotuned
    takes_fastest = times_all or device.architecture not in CHOICES_SEEN
    # parameters before the first convolution need the gradient of its images
    has_parameters = any(map(parameter_count, operations[: indices[0]]))
    passes_images = framework.image_gradient or has_parameters
    learned = load_learned()
    terms: list[Placed] = []
    for phase in phases:
        estimates = _estimate_phase(phase, problems, machine, tensor)
        for name in framework.excluded:
            estimates.pop(name, None)
        taken = look_up_choice(library, phase, problems, device, learned, timed=times_all)
        chosen = choose_algorithm(
            estimates, problems, phase, library, limits, autotuned=takes_fastest, taken=taken
        )
        launches = {name: len(estimate.launches) for name, estimate in estimates.items()}
        in_phase = "forward" if phase == "forward" else "backward"
        for i, (index, row) in enumerate(zip(indices, wanted, strict=True)):
            if phase == "backward_data" and i == 0 and not passes_images:
                continue
            order = _order(index, in_phase)
            part = slice(i * count, (i + 1) * count)
            term = _convolution_term(row, phase, problems, chosen, part, launches)
            terms.append((*order, term))
            if len(row.inputs) > 2 and phase != "backward_data":
                terms.append((*order, bias(row, in_phase, machine)))
    return terms


def _estimate_phase(
    phase: str, problems: Convolutions, machine: ModelledGpu, tensor: TensorGpu | None
) -> dict[str, CostEstimate]:
    """The algorithms of a phase, by name."""
    if tensor is None:
        return estimate_algorithms(phase, problems, machine)
    estimate = estimate_tensor_convolutions(phase, problems, tensor)
    return {_TENSOR_ALGORITHMS[phase]: estimate}


def _extents(row: OperatorRow) -> tuple[Floats, ...]:
    if len(row.inputs[0]) != 4 or {"dilation", "transposed"} & set(row.settings):
        raise CurvescopeError(
            f"The cost model supports only plain 2-d convolutions; {row.layer} is dilated, "
            "transposed or of other dimensions. Measure it with --device cuda."
        )
    n, c, h, w = row.inputs[0]
    k, _, r, s = row.inputs[1]
    padding, stride, groups = (row.settings[name] for name in ("padding", "stride", "groups"))
    extents = n, c, h, w, k, r, s, *padding, *stride, groups
    return tuple(np.broadcast_to(extent, n.shape) for extent in extents)


def _convolution_term(
    row: OperatorRow,
    phase: str,
    problems: Convolutions,
    chosen: Chosen,
    part: slice,
    launches: Mapping[str, int],
) -> ModelledTerm:
    algorithms = [chosen.names[index] for index in chosen.index[part]]
    kernels = [f"{phase}_{algorithm}" for algorithm in algorithms]
    moved = problems.input_bytes + problems.output_bytes + problems.weight_bytes
    return ModelledTerm(
        layer=row.layer,
        phase="forward" if phase == "forward" else "backward",
        op="convolution",
        kind=phase,
        kernel=tuple(kernels),
        time_s=chosen.time_s[part],
        launches=max(launches[algorithm] for algorithm in algorithms),
        flops=problems.flops[part],
        bytes_compulsory=moved[part],
        workspace_bytes=chosen.workspace_bytes[part],
    )


def _model_products(
    rows: Sequence[OperatorRow],
    kind: str,
    machine: ModelledGpu,
    library: Library,
    tensor: TensorGpu | None,
) -> list[Placed]:
    products: list[tuple[int, OperatorRow, str, Products]] = []
    for index, row in enumerate(rows):
        if row.op in _PRODUCTS:
            for phase, problem in _products(row, kind):
                products.append((index, row, phase, problem))
    if not products:
        return []
    problems = _join([problem for *_, problem in products])
    if problems.transposed.any() and lacks_transposed(machine.device, library):
        raise CurvescopeError(
            f"The cost model does not know linear layers with {library.versions} on "
            f"{machine.device.name}: on GPUs of that age their kernels take up to 6 times as long "
            "as modelled. Choose another library."
        )
    if tensor is None:
        estimate, kernel = estimate_products_of(problems, machine, library), "sgemm"
    else:
        estimate, kernel = estimate_tensor_products(problems, tensor), "hmma_gemm"
    terms: list[Placed] = []
    for i, (index, row, phase, problem) in enumerate(products):
        count = len(row.sizes)
        part = slice(i * count, (i + 1) * count)
        term = ModelledTerm(
            layer=row.layer,
            phase=phase,
            op=row.op,
            kind="product",
            kernel=(kernel,) * count,
            time_s=estimate.time_s[part],
            flops=problem.flops,
            bytes_compulsory=problem.touched_bytes,
            workspace_bytes=estimate.workspace_bytes[part],
        )
        terms.append((*_order(index, phase), term))
    return terms


def _join(products: Sequence[Products]) -> Products:
    columns = {}
    for field in fields(Products):
        extents = [getattr(problem, field.name) for problem in products]
        columns[field.name] = np.concatenate(extents)
    return Products(**columns)


def _products(row: OperatorRow, kind: str) -> list[tuple[str, Products]]:
    """The products of an operator, each with its phase."""
    *counts, m, k = row.inputs[-2]
    n = row.inputs[-1][-1]
    count = product(counts) if counts else np.ones_like(m)
    # cuBLAS counts columns first, so the batch is its n; a linear layer's weights are stored
    # transposed.
    is_transposed = np.full(m.shape, row.op == "addmm")
    products = [("forward", Products(n, m, k, is_transposed, count))]
    if kind != "forward":
        none = np.zeros(m.shape, bool)
        data = Products(k, m, n, none, count)
        weights = Products(n, k, m, none, count)
        products += [("backward", data), ("backward", weights)]
    return products
