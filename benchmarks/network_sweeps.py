"""The published batch sweeps of whole networks, and what the cost model says to them.

Of the model, only the time of MXNet's engine comes from here: for the scores of a card, from other
cards' steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.constants import Constants, Spread, constants_for, load_fitted
from curvescope.analysis.cost_model.errors import HOST, draw_errors
from curvescope.analysis.cost_model.frameworks import FRAMEWORKS
from curvescope.analysis.cost_model.launches import ModelledGpu
from curvescope.analysis.cost_model.networks import Step, estimate_step, load_operations
from curvescope.analysis.cost_model.problems import Floats, product_kinds
from curvescope.profiling.hardware.devices import get_device

_TAILS = (5, 95)  # percentiles: an interval contains nine of ten
_MOST_IMAGES = 4  # of steps that show the engine: of larger batch sizes, kernels are nearly all

DEVICES = {
    "Tesla K40m": "k40",
    "Tesla K80 (one GK210)": "k80",
    "Tesla P100": "p100",
    "Tesla M60 (one GM204)": "m60",
    "Tesla V100": "v100",
    "GTX 1080": "gtx1080",
    "GTX 1080 Ti": "gtx1080ti",
    "Maxwell Titan X": "titanx_maxwell",
    "Pascal Titan X": "titanx_pascal",
    "Tesla P100 (DGX-1, SXM2)": "p100",
    "Tesla K80 (GCE)": "k80",
    "Tesla K80 (EC2)": "k80",
    "i7-6850K-GeForce_GTX_1080_Ti": "gtx1080ti",
    "Platinum-Tesla_V100-SXM3-32GB_HP16_TF2_2": "v100_32gb",
}
_NETWORKS = {
    "AlexNet-227(group=1)": "alexnet",
    "Alexnet": "alexnet",
    "GoogLeNet(no aux)": "googlenet",
    "Inception-BN": "inception_bn",
    "Inception-v3": "inception_v3",
    "Resnet 50": "resnet50",
    "Resnet 152": "resnet152",
    "VGG": "vgg_a",  # by its source at that commit: example/image-classification/symbol/vgg.py
    "VGG 16": "vgg16",
    # Torch7's; its ResNets stride in their 3x3 convolutions (fb.resnet.torch, models/resnet.lua).
    "Inception-V1": "googlenet",
    "ResNet-50": "resnet50_v1.5",
    "ResNet-101": "resnet101_v1.5",
    "ResNet-152": "resnet152_v1.5",
    "VGG-16": "vgg16",
    "VGG-19": "vgg19",
    # tf_cnn_benchmarks'; its ResNets stride in their 1x1 convolutions.
    "alexnet": "alexnet",
    "inception3": "inception_v3",
    "resnet50": "resnet50",
    "resnet152": "resnet152",
    "vgg16": "vgg16",
}
_RULES = {
    "PaddlePaddle": "paddle",
    "TensorFlow": "tensorflow",
    "Caffe": "caffe",
    "MXNet 0.9": "mxnet0.9",
    "MXNet 1.2": "mxnet",
    "Torch7": "torch7",
    "TensorFlow 1.1 tf_cnn_benchmarks": "tensorflow1.0",
    "TensorFlow tf_cnn_benchmarks": "tensorflow",
}
# MXNet's ResNet asks for 256 MiB where other networks leave the default (symbol/resnet.py,
# conv_workspace).
_RESNET_WORKSPACE_BYTES = 256 * 2**20


def alexnet_ungrouped(image: int = 227) -> Mapping[str, Any]:
    """AlexNet as Caffe, Paddle and MXNet time it: 96 and 256 filters first, no groups, no padding
    of the image.

    Source: Krizhevsky et al. (2012), figure 2, its two halves joined; PaddlePaddle 9d377f0
    benchmark/README.md says group=1; MXNet's is example/image-classification/symbol/alexnet.py @
    0a03417.
    """
    rows: list[dict[str, Any]] = []
    parameters = 0
    channels, extent = 3, image

    def add(
        layer: str, op: str, inputs: list[list[list[int]]], output: list[list[int]], **settings: Any
    ) -> None:
        rows.append(
            {"layer": layer, "op": op, "inputs": inputs, "outputs": [output], "settings": settings}
        )

    for name, width, kernel, stride, pad, after in (
        ("1", 96, 11, 4, 0, "np"), ("2", 256, 5, 1, 2, "np"),
        ("3", 384, 3, 1, 1, ""), ("4", 384, 3, 1, 1, ""), ("5", 256, 3, 1, 1, "p"),
    ):  # fmt: skip
        before = [[1, 0], [0, channels], [0, extent], [0, extent]]
        weight = [[0, width], [0, channels], [0, kernel], [0, kernel]]
        extent = (extent + 2 * pad - kernel) // stride + 1
        output = [[1, 0], [0, width], [0, extent], [0, extent]]
        add(f"conv{name}", "convolution", [before, weight, [[0, width]]], output,
            stride=[stride, stride], padding=[pad, pad], groups=1)  # fmt: skip
        add(f"relu{name}", "relu_", [output], output)
        if "n" in after:
            # a fused response normalisation moves as much
            add(f"norm{name}", "gelu", [output], output)
        if "p" in after:
            extent = (extent - 3) // 2 + 1
            pooled = [[1, 0], [0, width], [0, extent], [0, extent]]
            add(f"pool{name}", "max_pool2d", [output], pooled)
        parameters += width * (channels * kernel * kernel + 1)
        channels = width
    inputs = channels * extent * extent
    for name, width in (("6", 4096), ("7", 4096), ("8", 1000)):
        add(
            f"fc{name}",
            "addmm",
            [[[0, width]], [[1, 0], [0, inputs]], [[0, inputs], [0, width]]],
            [[1, 0], [0, width]],
        )
        parameters += width * (inputs + 1)
        inputs = width
    kept = sum(
        np.prod([c for _, c in row["outputs"][0]][1:])
        for row in rows
        if not row["op"].endswith("_")
    )
    return {
        "parameters": parameters,
        "activation_bytes": int(4 * (kept + 3 * image * image)),
        "operations": rows,
    }


def with_normalised_images(operations: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same network with a batch normalisation of its images, as MXNet's ResNets have it.

    Its parameters need the gradient of the first convolution's input. Source: `bn_data` of
    example/image-classification/symbol/resnet.py @ 0a03417.
    """
    images = operations["operations"][0]["inputs"][0]
    normalise = {"layer": "bn_data", "op": "native_batch_norm", "inputs": [images, *[[images[1]]] * 4],  # noqa: E501
                 "outputs": [images], "settings": {}}  # fmt: skip
    return {
        "parameters": operations["parameters"] + 2 * images[1][1],
        "activation_bytes": operations["activation_bytes"]
        + 4 * int(np.prod([constant for _, constant in images[1:]])),
        "operations": [normalise, *operations["operations"]],
    }


def inception_with_biases() -> Mapping[str, Any]:
    """Inception-BN as MXNet has it: its convolutions have biases, though a normalisation follows.

    Source: `ConvFactory` of example/image-classification/symbols/inception-bn.py @ 59b402c.
    """
    operations = load_operations("inception_bn")
    rows, parameters = [], operations["parameters"]
    for row in operations["operations"]:
        if row["op"] == "convolution":
            width = row["inputs"][1][0]
            parameters += width[1]
            row = {**row, "inputs": [*row["inputs"], [width]]}
        rows.append(row)
    return {**operations, "parameters": parameters, "operations": rows}


_OWN_TABLES = {
    "AlexNet-227(group=1)": alexnet_ungrouped,
    "Alexnet": partial(alexnet_ungrouped, 224),
    "Inception-BN": inception_with_biases,
}


def read_sweeps(folder: Path) -> pd.DataFrame:
    """The published sweeps that stood beside the model while it was made."""
    k40m = pd.read_csv(folder / "k40m_batch_sweeps.csv")
    k40m = k40m.assign(framework=k40m.framework.str.split().str[0], library="cudnn5.1")
    # `caffe time` leaves the update out; the others' steps have it (benchmark/README.md there).
    k40m["step"] = np.where(k40m.framework == "Caffe", "forward+backward", "training")
    return pd.concat([k40m, _read_mxnet(folder / "mxnet_batch_sweeps.csv")])


def read_later_sweeps(folder: Path) -> pd.DataFrame:
    """The sweeps of two cards that were entered when the model was finished; see `read_sweeps`."""
    return _read_mxnet(folder / "mxnet_later_sweeps.csv")


def read_torch7(folder: Path) -> pd.DataFrame:
    """Steps without an update at batch 16 of four cards under Torch7, never fitted; columns as of
    `read_sweeps`.

    Its timer stands around the forward and the backward pass of a network in training.
    """
    table = pd.read_csv(folder / "torch7_networks.csv", dtype={"cudnn": str})
    table = table[table.cudnn.str.startswith("5")]  # cuDNN 4 is not modelled
    library = np.where(table.cudnn.str.startswith("5.0"), "cudnn5", "cudnn5.1")
    table = table.assign(framework="Torch7", library=library)
    both_ms = table.forward_ms + table.backward_ms
    steps = [
        table.assign(step=s, time_ms=ms)
        for s, ms in (("forward", table.forward_ms), ("forward+backward", both_ms))
    ]
    return pd.concat(steps)


def read_tensorflow(folder: Path) -> pd.DataFrame:
    """Steps of tf_cnn_benchmarks in fp32, never fitted; columns as of `read_sweeps`."""
    table = pd.read_csv(folder / "networks.csv", dtype={"cudnn": str})
    table = table[(table.precision == "fp32") & table.gpu.isin(DEVICES)]
    library = np.where(table.cudnn == "5.1", "cudnn5.1", "cudnn7.6")
    return table.assign(library=library)


def _read_mxnet(path: Path) -> pd.DataFrame:
    mxnet = pd.read_csv(path).rename(columns={"time_ms_per_batch": "time_ms"})
    newer = mxnet.source.str.contains("7.0.5")
    return mxnet.assign(
        framework=np.where(newer, "MXNet 1.2", "MXNet 0.9"),
        library=np.where(newer, "cudnn7", "cudnn5.1"),
        step=np.where(mxnet["mode"] == "training", "training", "forward"),
    )


def model_curve(
    curve: tuple[str, ...],
    batches: list[int],
    without: Mapping[str, Mapping[str, Constants]],
    **changed: Any,
) -> Step:
    gpu, framework, network, step, library = curve
    rules = FRAMEWORKS[_RULES[framework]]
    operations = (
        _OWN_TABLES[network]() if network in _OWN_TABLES else load_operations(_NETWORKS[network])
    )
    if network.startswith("Resnet"):
        rules = replace(rules, workspace_bytes=_RESNET_WORKSPACE_BYTES)
        operations = with_normalised_images(operations)
    device = get_device(DEVICES[gpu])
    constants = constants_for(device.architecture, without.get(device.key, load_fitted().constants))
    return estimate_step(
        operations, batches, ModelledGpu(device, constants), get_library(library), step,
        framework=replace(rules, **changed),
    )  # fmt: skip


COLUMNS = ("gpu", "framework", "network", "step", "library")  # they name a published curve


def curves(sweeps: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Each published curve of a network that has a table: its `COLUMNS` and its rows by
    batch size.
    """
    for curve, rows in sweeps.groupby(list(COLUMNS)):
        if curve[2] in _NETWORKS:  # else recurrent networks, and a toy for CIFAR
            yield curve, rows.sort_values("batch")


def measure_engine(
    sweeps: pd.DataFrame, without: Mapping[str, Mapping[str, Constants]]
) -> pd.DataFrame:
    """What small training steps of MXNet take beyond the model, for each time that the host waits.

    The model of these steps has no engine and no updates, which run beside.
    """
    small = sweeps[sweeps.framework.str.startswith("MXNet") & (sweeps.step == "training")]
    found: dict[str, list[float]] = {}
    for curve, part in curves(small[small.batch <= _MOST_IMAGES]):
        batches = part.batch.tolist()
        bare, with_second = (
            model_curve(
                curve, batches, without, engine_s=engine_s, update_operators=0, update_passes=0
            ).time_s
            for engine_s in (0.0, 1.0)
        )
        beyond_s = (part.time_ms.to_numpy(np.float64) * 1e-3 - bare) / (with_second - bare)
        found.setdefault(DEVICES[curve[0]], []).extend(beyond_s.tolist())
    rows = [(device, len(times_s), float(np.median(times_s))) for device, times_s in found.items()]
    table = pd.DataFrame(rows, columns=["device", "n", "engine_s"])
    return table.assign(
        others_s=[table.engine_s[table.device != device].median() for device in table.device]
    )


def compare_sweeps(
    sweeps: pd.DataFrame,
    without: Mapping[str, Mapping[str, Constants]],
    engine_s: Mapping[str, float],
) -> pd.DataFrame:
    """Published and modelled steps, with 90 % intervals; `without` has the fits that left a GPU
    out, by its key.
    """
    frames, fitted = [], load_fitted()
    for curve, rows in curves(sweeps):
        gpu, framework, network, step, library = curve
        device = get_device(DEVICES[gpu])
        changed = {"engine_s": engine_s[device.key]} if framework.startswith("MXNet") else {}
        modelled = model_curve(curve, rows.batch.tolist(), without, **changed)
        drawn_ms = _draw_ms(modelled, fitted.spreads_for(device.architecture, library))
        low, high = np.percentile(drawn_ms, _TAILS, axis=0)
        frames.append(
            pd.DataFrame(
                {"gpu": gpu, "framework": framework, "network": network, "mode": step, "batch": rows.batch,  # noqa: E501
                 "published_ms": rows.time_ms, "modelled_ms": modelled.time_s * 1e3, "low_ms": low, "high_ms": high}  # noqa: E501
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _draw_ms(step: Step, spreads: Mapping[str, Spread]) -> Floats:
    """Draws of the true time of a step, ms, shape (replicates, batches)."""
    sizes = step.batches
    # A term whose algorithm or kind changes is one column per algorithm and kind, as in a
    # recording.
    columns: list[tuple[str, str, str, Any]] = []
    for term in step.terms:
        kinds = np.array([term.kind] * len(sizes))
        if term.kind == "product":
            kinds = product_kinds(term.flops, term.bytes_compulsory)
        for kind, name in dict.fromkeys(zip(kinds.tolist(), term.kernel, strict=True)):
            shape = name if term.flops is None else f"{term.flops[0] / sizes[0]:.0f}"
            times = term.time_s * ((kinds == kind) & (np.array(term.kernel) == name))
            columns.append((kind, name, f"{kind} {shape}", times))
    names = zip(*[column[:3] for column in columns], (HOST, "", ""), strict=True)
    errors = draw_errors(*names, len(sizes), spreads)
    device_s = np.einsum(
        "rbt,tb->rb", errors[:, :, :-1], np.stack([times for *_, times in columns])
    )
    host = errors[:, :, -1]
    return np.asarray(
        np.maximum(device_s - step.beside_s + step.waiting_s * host, step.host_s * host) * 1e3
    )
