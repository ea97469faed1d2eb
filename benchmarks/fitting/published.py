"""Reads the published measurements into problems for the model. The files are in benchmarks/published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from curvescope.analysis.cost_model.choice import (
    Library,
    choose_algorithm,
    estimate_products_of,
    get_library,
    known_choice,
)
from curvescope.analysis.cost_model.constants import Constants, starting_constants
from curvescope.analysis.cost_model.convolution import estimate_algorithms
from curvescope.analysis.cost_model.frameworks import WAIT_S
from curvescope.analysis.cost_model.launches import ModelledGpu
from curvescope.analysis.cost_model.learned import LearnedChoice
from curvescope.analysis.cost_model.networks import load_operations
from curvescope.analysis.cost_model.problems import ITEM_BYTES, PHASES, Convolutions, Floats, Products, Streams
from curvescope.profiling.hardware.devices import get_device

# GPU of DeepBench -> device and library
_DEEPBENCH = {
    "Titan X (Maxwell)": ("titanx_maxwell", "cudnn5"),
    "Tesla M40": ("m40", "cudnn5"),
    "Titan X (Pascal)": ("titanx_pascal", "cudnn5.1"),
    "Tesla P100": ("p100", "cudnn6"),
    "Tesla V100": ("v100", "cudnn7"),
}
DEEPBENCH_PHASES = {"fwd": "forward", "bwd_data": "backward_data", "bwd_weights": "backward_weights"}
_NEUSIGHT = {
    "Tesla P100-PCIE-16GB": "p100_pcie",
    "Tesla V100-PCIE-32GB": "v100_pcie",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "NVIDIA A100-PCIE-40GB": "a100_pcie",
    "NVIDIA A100 80GB PCIe": "a100_pcie_80gb",
}
TIMED_ROWS, ASKED_ROWS = "cudnn_scope, timed", "cudnn_scope, asked"
# TensorFlow times the algorithms; DeepBench and NeuSight use the library's heuristic.
_AUTOTUNED = ("k40", TIMED_ROWS)
BY_ALGORITHM = "cudnn_scope"
PRODUCTS_ALONE = "cudnn_scope, products"
K40_TRAINING = "k40 training"
_BY_ALGORITHM_FILE = "cudnn_conv_by_algorithm.csv.gz"
CUDNN_SCOPE_CARDS = {
    "Tesla_K80": "k80",
    "Tesla_M60": "m60",
    "Tesla_V100-SXM2-16GB": "v100",
    "TITAN_V": "titan_v",
    "Quadro_RTX_6000": "quadro_rtx6000",
}
Labels = npt.NDArray[np.str_]


@dataclass(frozen=True)
class Measured:
    """Measurements of one kind of operator on one GPU."""

    source: str
    device: str
    library: str  # empty for a stream
    kind: str  # forward, backward_data, backward_weights, training (the sum of the three), product or streaming
    problems: Convolutions | Products | Streams
    time_s: Floats  # this and the next are of shape (problems,)
    algorithms: Labels  # empty if not published
    names: Labels  # the same for all batch sizes
    batches: Floats  # or widths of products
    around: Callable[[ModelledGpu], Floats] | None = None  # measured time outside the operator
    release: str = ""  # of the library, where a card was measured with several

    @property
    def architecture(self) -> str:
        return get_device(self.device).architecture

    def take(self, rows: npt.NDArray[np.bool_]) -> Measured:
        around = self.around
        return replace(
            self,
            problems=self.problems.take(rows),
            around=around and (lambda machine: around(machine)[rows]),
            **{name: getattr(self, name)[rows] for name in ("time_s", "algorithms", "names", "batches")},
        )


def predict(
    measured: Measured,
    constants: Constants,
    *,
    know_algorithm: bool = False,
    learned: Mapping[str, LearnedChoice] | None = None,
) -> tuple[Floats, Labels]:
    machine = ModelledGpu(get_device(measured.device), constants)
    problems = measured.problems
    if isinstance(problems, Streams):
        time_s = machine.streaming("stream", problems.moved_bytes).time_s
        return time_s, np.full(len(measured.time_s), "stream")
    library = get_library(measured.library)
    if isinstance(problems, Products):
        return estimate_products_of(problems, machine, library).time_s, np.full(len(measured.time_s), "sgemm")
    if measured.source == BY_ALGORITHM:
        time_s = np.empty(len(measured.time_s))
        for name in np.unique(measured.algorithms):
            rows = measured.algorithms == name
            time_s[rows] = estimate_algorithms(measured.kind, problems.take(rows), machine, (name,))[name].time_s
        return time_s, measured.algorithms
    if measured.kind == "training":
        assert measured.around is not None
        phases = (_fastest(phase, problems, machine, library) for phase in PHASES)
        time_s = np.asarray(sum(phases) + measured.around(machine))
        return time_s, np.full(len(measured.time_s), "all")
    estimates = estimate_algorithms(measured.kind, problems, machine)
    autotuned = measured.source in _AUTOTUNED
    taken = known_choice(library, measured.kind, problems, machine.device, learned or {}, timed=autotuned)
    chosen = choose_algorithm(estimates, problems, measured.kind, library, autotuned=autotuned, taken=taken)
    time_s, names = chosen.time_s, np.array(chosen.names)[chosen.index]
    if know_algorithm:
        for name, estimate in estimates.items():
            known = (measured.algorithms == name) & estimate.possible
            time_s, names = np.where(known, estimate.time_s, time_s), np.where(known, name, names)
    if measured.around is not None:
        time_s = time_s + measured.around(machine)
    return time_s, names


def _fastest(phase: str, problems: Convolutions, machine: ModelledGpu, library: Library) -> Floats:
    estimates = estimate_algorithms(phase, problems, machine)
    return choose_algorithm(estimates, problems, phase, library, autotuned=True).time_s


def read_deepbench(folder: Path) -> list[Measured]:
    """DeepBench's convolutions and products; the folder's README lists omitted rows."""
    measured = []
    table = pd.read_csv(folder / "deepbench_conv.csv")
    for (gpu, phase), rows in table.groupby(["gpu", "pass"]):
        device, library = _DEEPBENCH[str(gpu)]
        problems = convolutions(rows, rows.pad_h, rows.pad_w)
        kind, algorithms = DEEPBENCH_PHASES[str(phase)], _believable(rows, str(gpu))
        measured.append(measured_rows("deepbench", device, library, kind, problems, rows, algorithms=algorithms))
    table = pd.read_csv(folder / "deepbench_gemm.csv")
    shared = table.groupby(["m", "n", "k"]).gpu.transform("nunique") > 1
    for gpu, rows in table[shared].groupby("gpu"):
        device, library = _DEEPBENCH[str(gpu)]
        products = Products(rows.m, rows.n, rows.k, (rows.a_t == "T").to_numpy(), np.ones(1))
        names = rows.m.astype(str) + "x" + rows.k.astype(str) + rows.a_t + rows.b_t
        measured.append(
            Measured(
                "deepbench", device, library, "product", products, rows.time_ms.to_numpy() / 1e3,
                np.full(len(rows), ""), names.to_numpy(str), products.n,
            )
        )  # fmt: skip
    return measured


def read_streams(folder: Path) -> list[Measured]:
    """Rates of streams: STREAM's kernels, and MXNet's functions of one tensor for V100, where STREAM is not published.

    STREAM reads and writes 0.5 GB and more; the overhead of MXNet's engine around an operator is subtracted.
    """
    table = pd.read_csv(folder / "stream.csv")
    measured = []
    for device, rows in table.groupby("device"):
        moved_bytes = rows.moved_gb.to_numpy() * 1e9
        time_s = moved_bytes / (rows.gb_per_s.to_numpy() * 1e9)
        measured.append(_streams("stream", str(device), moved_bytes, time_s, rows.function.to_numpy(str)))
    mxnet = pd.read_csv(folder / "mxnet_operators_v100.csv")
    mxnet = mxnet[mxnet.elements >= 10**6]
    moved_bytes = 2.0 * ITEM_BYTES * mxnet.elements.to_numpy()
    time_s = mxnet.forward_ms.to_numpy() / 1e3 - WAIT_S
    return [*measured, _streams("mxnet", "v100", moved_bytes, time_s, mxnet.operator.to_numpy(str))]


def read_caffe_streams(folder: Path) -> Measured:
    """The ReLUs of native Caffe on Titan X (Maxwell), which read and write their tensor; never fitted."""
    table = pd.read_csv(folder / "titanx_maxwell_caffe_per_layer.csv").rename(columns={"pass": "phase"})
    moved_bytes, time_s, names = [], [], []
    for network in ("vgg_a", "alexnet"):
        relus = [r for r in load_operations(network)["operations"] if r["op"] == "relu_" and len(r["outputs"][0]) == 4]
        for place, relu in enumerate(relus, start=1):
            for row in table[(table.network == network) & (table.layer == f"conv{place}/relu")].itertuples():
                elements = np.prod([factor * row.batch_nominal + constant for factor, constant in relu["outputs"][0]])
                # In the backward pass, the gradient and the output are read, and a gradient is written.
                moved_bytes.append(ITEM_BYTES * elements * (2 if row.phase == "forward" else 3))
                time_s.append(row.time_ms / 1e3)
                names.append(f"{network} {row.layer} {row.phase}")
    return _streams("caffe", "titanx_maxwell", np.array(moved_bytes), np.array(time_s), np.array(names))


def _streams(source: str, device: str, moved_bytes: Floats, time_s: Floats, names: Labels) -> Measured:
    blank = np.full(len(moved_bytes), "")
    return Measured(source, device, "none", "streaming", Streams(moved_bytes), time_s, blank, names, moved_bytes)


def _believable(rows: pd.DataFrame, gpu: str) -> Labels:
    labels = rows.algo.fillna("").to_numpy(str)
    kernel, stride, channels = rows.r.to_numpy(), rows.stride_w.to_numpy(), rows.c.to_numpy()
    wrong = np.isin(labels, ("WINOGRAD", "WINOGRAD_NONFUSED", "FFT")) & (kernel == 1)
    if gpu == "Titan X (Pascal)":
        wrong |= (labels == "IMPLICIT_PRECOMP_GEMM") & (kernel == 3) & (stride == 1) & (channels >= 64)
    if gpu == "Tesla P100":
        wrong |= labels == "FFT"
    return np.asarray(np.where(wrong, "", labels))


def read_k40(folder: Path) -> Measured:
    """Forward convolutions of TensorFlow 1.10 on a K40; times include session, transposes, bias and activation."""
    rows = _without_products(pd.read_csv(folder / "k40_conv_tf110.csv.gz"))
    problems = _tensorflow_convolutions(rows)
    # TensorFlow stores images and filters channel-last; cuDNN gets them channel-first, and the result goes back.
    moved = 2 * (problems.input_bytes + problems.weight_bytes + problems.output_bytes)
    pointwise = 2 * problems.output_bytes
    biased, activated = rows.bias.to_numpy() == 1, (rows.activation != "none").to_numpy()

    def around(machine: ModelledGpu) -> Floats:
        transposes = machine.transforming("transpose", moved).time_s
        once = machine.streaming("pointwise", pointwise).time_s
        return np.asarray(machine.constants["session_us"] * 1e-6 + transposes + once * biased + once * activated)

    return measured_rows("k40", "k40", "cudnn7", "forward", problems, rows, "time_ms_median", around=around)


def read_k40_training(folder: Path) -> Measured:
    """Steps of single convolutions under TensorFlow 1.10 on a K40: forward, both gradients, and gradient descent.

    Of the published optimizers and activations only the simplest, whose other work is known from the benchmark's
    source: images, filters, bias and target are all variables that are updated, and the loss is a mean of squares
    (prediction_model/Generate_train_data/benchmark_conv.py). Which tensors TensorFlow's layout pass transposes is not
    published. Assumed is the least: images, filters and result once, and their gradients once.
    """
    rows = pd.read_csv(folder / "k40_conv_training_tf110.csv.gz")
    rows = _without_products(rows[(rows.optimizer == "sgd") & (rows.activation == "none")])
    problems = _tensorflow_convolutions(rows)
    image, weight, result = problems.input_bytes, problems.weight_bytes, problems.output_bytes
    biased = rows.bias.to_numpy() == 1

    def around(machine: ModelledGpu) -> Floats:
        def passes(moved_bytes: Floats) -> Floats:
            return machine.streaming("pointwise", moved_bytes).time_s

        transposes = sum(2 * machine.transforming("transpose", 2 * one).time_s for one in (image, weight, result))
        bias = biased * (passes(2 * result) + passes(result))
        # Difference, square and mean; the mean's gradient, twice the difference, their product, and its negative.
        loss = sum(passes(count * result) for count in (3, 2, 1, 1, 2, 3, 2))
        update = sum(passes(3 * one) for one in (image, weight, result))  # of images, filters and target
        return np.asarray(machine.constants["session_us"] * 1e-6 + transposes + bias + loss + update)

    return measured_rows(K40_TRAINING, "k40", "cudnn7", "training", problems, rows, "time_ms_median", around=around)


def _without_products(rows: pd.DataFrame) -> pd.DataFrame:
    """Without 1x1 convolutions of stride 1, which TensorFlow computes as a product of the images (conv_ops.cc)."""
    return rows[(rows.r > 1) | (rows.s > 1) | (rows.stride_h > 1) | (rows.stride_w > 1)]


def _tensorflow_convolutions(rows: pd.DataFrame) -> Convolutions:
    """SAME pads to out = ⌈in / stride⌉; the model supports only equal padding, and half of the total is closest."""
    same = (rows.padding == "SAME").to_numpy()
    pad_h = np.where(same, np.maximum((rows.out_h - 1) * rows.stride_h + rows.r - rows.h, 0) / 2, 0)
    pad_w = np.where(same, np.maximum((rows.out_w - 1) * rows.stride_w + rows.s - rows.w, 0) / 2, 0)
    return convolutions(rows, pad_h, pad_w)


def _read_cudnn_scope(path: Path) -> Iterator[tuple[str, pd.DataFrame, Convolutions]]:
    """The convolutions of cudnn_scope without groups: device, rows and problems of each card."""
    table = pd.read_csv(path, dtype={"cudnn": str}).rename(columns={"batch": "n"})
    # Direct convolution is supported for one card only, and the model has no explicit kernels of groups.
    table = table[(table.group == 1) & (table.algo != "DIRECT")]
    for card, rows in table.groupby("card"):
        if card in CUDNN_SCOPE_CARDS:
            yield CUDNN_SCOPE_CARDS[str(card)], rows, convolutions(rows, rows.pad_h, rows.pad_w)


def read_by_algorithm(folder: Path) -> list[Measured]:
    """CuDNN's forward algorithms, each timed: one group per card, of what the model has too."""
    measured = []
    for device, rows, problems in _read_cudnn_scope(folder / _BY_ALGORITHM_FILE):
        estimates = estimate_algorithms("forward", problems, ModelledGpu(get_device(device), starting_constants()))
        fitted = {name: one for name, one in estimates.items() if name != "GEMM"}
        possible = np.any([(rows.algo == name) & one.possible for name, one in fitted.items()], axis=0)
        some, algorithms = rows[possible], rows.algo[possible].to_numpy(str)
        group = measured_rows(
            BY_ALGORITHM, device, "cudnn7", "forward", problems.take(possible), some, algorithms=algorithms
        )
        measured.append(group)
    return measured


def read_kepler_products(folder: Path) -> Measured:
    """The products of cuBLAS 10 on K80, the only ones of a Kepler card: 64 columns and more, whose time is the SMs'.

    cudnn_scope logged a clock of 562 MHz on K80, its base clock; the times are those at the clock of the model.
    """
    table = pd.read_csv(folder / "cudnn_other_layers.csv")
    rows = table[(table.card == "Tesla_K80") & (table.layer == "CUBLAS_GEMM_FWD") & (table.gemm_m >= 64)]
    clock = 1e6 * rows.logged_mhz.to_numpy() / get_device("k80").clock_hz
    # cuBLAS counts columns first: the batch is its n, and weights are stored transposed.
    problems = Products(rows.gemm_n, rows.gemm_m, rows.gemm_k, np.ones(len(rows), bool), np.ones(1))
    names = (rows.gemm_n.astype(str) + "x" + rows.gemm_k.astype(str)).to_numpy(str)
    return Measured(
        PRODUCTS_ALONE, "k80", "cudnn7.6", "product", problems, rows.time_ms.to_numpy() / 1e3 * clock,
        np.full(len(rows), ""), names, problems.n,
    )  # fmt: skip


def read_choices(folder: Path) -> list[Measured]:
    """The same convolutions with the algorithm that cuDNN advises, and with the fastest: two groups per card and run.

    A curve must not join two runs: K80 and M60 have batch 1 to 32 of one release of cuDNN, and 64 and more of another.
    """
    tables = _read_cudnn_scope(folder / _BY_ALGORITHM_FILE)
    return [group for device, table, _ in tables for group in _choices(device, table)]


def _choices(device: str, table: pd.DataFrame) -> Iterator[Measured]:
    problem = ["n", "c", "h", "w", "k", "r", "s", "pad_h", "pad_w", "stride_h", "stride_w"]
    for source, chosen in (
        (ASKED_ROWS, table[table.algo == table.advised]),
        (TIMED_ROWS, table.sort_values("time_ms", kind="stable").drop_duplicates(problem)),
    ):
        for release, rows in chosen.groupby("cudnn"):
            problems = convolutions(rows, rows.pad_h, rows.pad_w)
            algorithms = rows.algo.to_numpy(str)
            group = measured_rows(source, device, "cudnn7.6", "forward", problems, rows, algorithms=algorithms)
            yield replace(group, release=str(release))


_NEUSIGHT_ALGORITHMS = {
    "WINOGRAD": "WINOGRAD",
    "WINOGRAD_NONFUSED": "WINOGRAD_NONFUSED",
    "IMPLICIT_GEMM_FAMILY": "IMPLICIT_PRECOMP_GEMM",
    "EXPLICIT_GEMM": "GEMM",
    "FFT": "FFT",
}


def read_neusight(folder: Path, name: str = "neusight_conv.csv.gz") -> list[Measured]:
    """NeuSight's forward convolutions; the algorithm, where it is known, is inferred from the kernel's name."""
    table = pd.read_csv(folder / name).rename(columns={"stride": "stride_h"})
    table["stride_w"] = table.stride_h
    measured = []
    for gpu, rows in table.groupby("gpu"):
        problems = convolutions(rows, rows.pad, rows.pad)
        inferred = rows.get("algo_inferred", pd.Series("", rows.index))
        labels = inferred.map(_NEUSIGHT_ALGORITHMS).fillna("").to_numpy(str)
        measured.append(
            measured_rows(
                "neusight", _NEUSIGHT[str(gpu)], "cudnn8", "forward", problems, rows, "latency_raw_ms", labels
            )
        )
    return measured


def read_neusight_later(folder: Path) -> list[Measured]:
    """NeuSight's matrix products on five cards and its convolutions on three more, of 1 ms and longer; never fitted."""
    table = pd.read_csv(folder / "neusight_products.csv.gz")
    measured = read_neusight(folder, "neusight_later_conv.csv.gz")
    for (gpu, op), rows in table.groupby(["gpu", "op"]):
        # The weights of a linear layer are stored transposed.
        problems = Products(rows.m, rows.n, rows.k, np.full(len(rows), op == "linear"), rows["count"])
        blank = np.full(len(rows), "")
        time_s = rows.latency_ms.to_numpy() / 1e3
        measured.append(
            Measured(f"neusight {op}", _NEUSIGHT[str(gpu)], "cudnn8", "product", problems, time_s, blank, blank, rows.n)
        )
    return measured


def convolutions(rows: pd.DataFrame, pad_h: object, pad_w: object) -> Convolutions:
    """The problems of a table; its columns are named as in `Convolutions`."""
    return Convolutions(
        rows.n, rows.c, rows.h, rows.w, rows.k, rows.r, rows.s, np.asarray(pad_h), np.asarray(pad_w),
        rows.stride_h, rows.stride_w,
    )  # fmt: skip


def measured_rows(
    source: str,
    device: str,
    library: str,
    kind: str,
    problems: Convolutions,
    rows: pd.DataFrame,
    time: str = "time_ms",
    algorithms: Labels | None = None,
    around: Callable[[ModelledGpu], Floats] | None = None,
) -> Measured:
    """The convolutions of a table, whose times in ms are in a column."""
    parts = [rows[column].astype(str) for column in ("w", "h", "c", "k", "r", "s", "stride_w")]
    names = np.asarray(["x".join(name) for name in zip(*parts, strict=True)])
    labels = np.full(len(rows), "") if algorithms is None else algorithms
    time_s = rows[time].to_numpy() / 1e3
    return Measured(source, device, library, kind, problems, time_s, labels, names, problems.n, around)
