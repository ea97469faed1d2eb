"""Fits the constants of tensor cores to DeepBench in fp16 on V100, and predicts shapes that were left out."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from curvescope.analysis.cost_model.constants import PARAMETERS, Constants
from curvescope.analysis.cost_model.problems import Convolutions, Flags, Floats, Products
from curvescope.analysis.cost_model.tensor_cores import (
    estimate_tensor_convolutions,
    estimate_tensor_products,
    tensor_machine,
)
from curvescope.profiling.hardware.devices import get_device

from .holdout import FOLDS
from .published import DEEPBENCH_PHASES, Labels, convolution_names, convolutions

_CARD, _DEVICE = "Tesla V100", "v100"
_UNIT, _OUTLIER, _PRIOR = 0.1, 0.25, 1.0
# The others are those of the fp32 lanes, or of algorithms that tensor cores do not run here.
_FITTED = (
    "product", "implicit", "weights", "data", "dram", "product_dram", "l2_bytes_per_clock", "half_warps", "start_us",
    "prologue_cycles", "product_cycles", "step_cycles", "small_tile", "split", "stride_waste", "misaligned",
)  # fmt: skip
# A step of depth 8 takes a tensor core a few clocks: the ranges of the lanes do not hold for it.
_OTHER_RANGES = {
    "product": (0.3, 1.0, 0.8),  # no card's tensor cores run above their published clock
    "implicit": (0.2, 1.0, 0.75),
    "step_cycles": (1.0, 200.0, 20.0),
    "small_tile": (0.01, 4.0, 0.3),
    "misaligned": (1.0, 8.0, 1.5),  # slowdown of a convolution whose channels are no multiples of 8
}


@dataclass(frozen=True)
class TensorTimes:
    """Published times of one kind of operator."""

    kind: str  # forward, backward_data, backward_weights or product
    problems: Convolutions | Products
    time_s: Floats  # this and the next are of shape (problems,)
    names: Labels  # the same for all batch sizes
    batches: Floats  # or widths of products

    def take(self, rows: Flags) -> TensorTimes:
        """Some of the measurements."""
        problems = self.problems.take(rows)
        return TensorTimes(self.kind, problems, self.time_s[rows], self.names[rows], self.batches[rows])


def read_tensor_times(folder: Path) -> list[TensorTimes]:
    """DeepBench's convolutions and products in fp16 on V100."""
    table = pd.read_csv(folder / "deepbench_conv_fp16.csv")
    measured = []
    for phase, rows in table[table.gpu == _CARD].groupby("pass"):
        problems = convolutions(rows, rows.pad_h, rows.pad_w)
        names = convolution_names(rows)
        measured.append(
            TensorTimes(DEEPBENCH_PHASES[str(phase)], problems, rows.time_ms.to_numpy() / 1e3, names, problems.n)
        )
    table = pd.read_csv(folder / "deepbench_gemm_fp16.csv")
    rows = table[table.gpu == _CARD]
    products = Products(rows.m, rows.n, rows.k, (rows.a_t == "T").to_numpy(), np.ones(1))
    names = (rows.m.astype(str) + "x" + rows.k.astype(str)).to_numpy(str)
    return [*measured, TensorTimes("product", products, rows.time_ms.to_numpy() / 1e3, names, products.n)]


def fit_tensor(measured: Sequence[TensorTimes], lanes: Constants) -> Constants:
    """Fit the constants of tensor cores by robust least squares on logarithms, within physical ranges."""
    ranges = {p.name: (p.low, p.high, p.start) for p in PARAMETERS} | _OTHER_RANGES
    low, high, start = (np.log([ranges[name][i] for name in _FITTED]) for i in range(3))

    def constants(vector: Floats) -> Constants:
        fitted = zip(_FITTED, np.exp(vector), strict=True)
        return Constants({**lanes.values, **{name: float(value) for name, value in fitted}})

    def residuals(vector: Floats) -> Floats:
        parts = [(vector - start) / _PRIOR]
        for group in measured:
            error = np.log(predict_tensor(group, constants(vector)) / group.time_s)
            soft = np.sign(error) * _OUTLIER * np.sqrt(2 * (np.sqrt(1 + (error / _OUTLIER) ** 2) - 1))
            parts.append(soft / _UNIT)
        return np.concatenate(parts)

    fitted = least_squares(residuals, start, bounds=(low - 1e-9, high + 1e-9), x_scale=0.3, diff_step=1e-3, max_nfev=20)
    return constants(fitted.x)


def predict_tensor(group: TensorTimes, constants: Constants) -> Floats:
    """Predicted seconds, shape (problems,)."""
    machine = tensor_machine(get_device(_DEVICE), "fp16", constants)
    if isinstance(group.problems, Products):
        return estimate_tensor_products(group.problems, machine).time_s
    return estimate_tensor_convolutions(group.kind, group.problems, machine).time_s


def compare_tensor_folds(measured: Sequence[TensorTimes], lanes: Constants) -> pd.DataFrame:
    """Predict each fifth of the shapes from a fit to the others."""
    frames = []
    for fold in range(FOLDS):
        inside = [np.array([zlib.crc32(str(n).encode()) % FOLDS == fold for n in group.names]) for group in measured]
        fitted = fit_tensor([group.take(~rows) for group, rows in zip(measured, inside, strict=True)], lanes)
        for group, rows in zip(measured, inside, strict=True):
            part = group.take(rows)
            frames.append(
                pd.DataFrame(
                    {
                        "held_out": "fp16",
                        "source": "deepbench",
                        "device": _DEVICE,
                        "library": "cudnn7.6",
                        "kind": part.kind,
                        "error_kind": part.kind,
                        "problem": part.names,
                        "batch": part.batches.astype(int),
                        "algorithm": "",
                        "published": "",
                        "measured_ms": 1e3 * part.time_s,
                        "predicted_ms": 1e3 * predict_tensor(part, fitted),
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)
