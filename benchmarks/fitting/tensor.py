"""Fits the constants of tensor cores to DeepBench in fp16 on V100, and predicts shapes that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from curvescope.analysis.cost_model.constants import PARAMETERS, Constants
from curvescope.analysis.cost_model.problems import Floats, Products
from curvescope.analysis.cost_model.tensor_cores import (
    estimate_tensor_convolutions,
    estimate_tensor_products,
    tensor_machine,
)
from curvescope.profiling.hardware.devices import get_device

from .holdout import FOLDS, as_rows, in_fold
from .published import DEEPBENCH_PHASES, Measured, convolutions, measured_rows

_CARD, _DEVICE, _LIBRARY = "Tesla V100", "v100", "cudnn7.6"
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


def read_tensor_times(folder: Path) -> list[Measured]:
    table = pd.read_csv(folder / "deepbench_conv_fp16.csv")
    measured = []
    for phase, rows in table[table.gpu == _CARD].groupby("pass"):
        problems = convolutions(rows, rows.pad_h, rows.pad_w)
        kind = DEEPBENCH_PHASES[str(phase)]
        measured.append(measured_rows("deepbench", _DEVICE, _LIBRARY, kind, problems, rows))
    table = pd.read_csv(folder / "deepbench_gemm_fp16.csv")
    rows = table[table.gpu == _CARD]
    products = Products(rows.m, rows.n, rows.k, (rows.a_t == "T").to_numpy(), np.ones(1))
    names = (rows.m.astype(str) + "x" + rows.k.astype(str)).to_numpy(str)
    time_s, blank = rows.time_ms.to_numpy() / 1e3, np.full(len(rows), "")
    alone = Measured("deepbench", _DEVICE, _LIBRARY, "product", products, time_s, blank, names, products.n)
    return [*measured, alone]


def fit_tensor(measured: Sequence[Measured], lanes: Constants) -> Constants:
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


def predict_tensor(group: Measured, constants: Constants) -> Floats:
    machine = tensor_machine(get_device(_DEVICE), "fp16", constants)
    if isinstance(group.problems, Products):
        return estimate_tensor_products(group.problems, machine).time_s
    return estimate_tensor_convolutions(group.kind, group.problems, machine).time_s


def compare_tensor_folds(measured: Sequence[Measured], lanes: Constants) -> pd.DataFrame:
    """Predict each fifth of the shapes from a fit to the others."""
    frames = []
    for fold in range(FOLDS):
        inside = [in_fold(group, fold) for group in measured]
        fitted = fit_tensor([group.take(~rows) for group, rows in zip(measured, inside, strict=True)], lanes)
        for part in (group.take(rows) for group, rows in zip(measured, inside, strict=True)):
            rows_of_part = as_rows(part, predict_tensor(part, fitted), part.algorithms)
            frames.append(rows_of_part.assign(held_out="fp16", error_kind=part.kind))
    return pd.concat(frames, ignore_index=True)
