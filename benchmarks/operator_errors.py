"""Errors of modelled operators: published times that no fit saw, and how many lie inside their 90 % interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.choice import choose_algorithm, estimate_products_of, get_library, known_choice
from curvescope.analysis.cost_model.constants import Constants, Spread
from curvescope.analysis.cost_model.convolution import estimate_algorithms
from curvescope.analysis.cost_model.launches import ModelledGpu
from curvescope.analysis.cost_model.learned import LearnedChoice
from curvescope.analysis.cost_model.problems import Convolutions, Floats, Products, product_kinds
from curvescope.analysis.diagnosis.modelled import draw_errors
from curvescope.profiling.hardware.devices import get_device

_TAILS = (5, 95)  # percentiles: an interval contains nine of ten
_LIBRARY = "cudnn8"
_NEUSIGHT = {
    "Tesla P100-PCIE-16GB": "p100_pcie",
    "Tesla V100-PCIE-32GB": "v100_pcie",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "NVIDIA A100-PCIE-40GB": "a100_pcie",
    "NVIDIA A100 80GB PCIe": "a100_pcie_80gb",
}


@dataclass(frozen=True)
class Measured:
    """NeuSight's measurements of one kind of operator on one GPU; arrays have the shape (problems,)."""

    source: str
    device: str
    problems: Convolutions | Products  # forward convolutions, or matrix products
    time_s: Floats

    @property
    def architecture(self) -> str:
        return get_device(self.device).architecture


def read_neusight(folder: Path) -> list[Measured]:
    """Forward convolutions, and products on five cards; of the products and the later cards only those of 1 ms or more.

    Nothing was ever fitted to them.
    """
    measured = []
    for name in ("neusight_conv.csv.gz", "neusight_later_conv.csv.gz"):
        for gpu, rows in pd.read_csv(folder / name).groupby("gpu"):
            pad, stride = rows.pad.to_numpy(), rows.stride
            problems = Convolutions(
                rows.n, rows.c, rows.h, rows.w, rows.k, rows.r, rows.s, pad, pad, stride, stride
            )  # fmt: skip
            measured.append(Measured("neusight", _NEUSIGHT[str(gpu)], problems, rows.latency_raw_ms.to_numpy() / 1e3))
    for (gpu, op), rows in pd.read_csv(folder / "neusight_products.csv.gz").groupby(["gpu", "op"]):
        # The weights of a linear layer are stored transposed.
        products = Products(rows.m, rows.n, rows.k, np.full(len(rows), op == "linear"), rows["count"])
        measured.append(Measured(f"neusight {op}", _NEUSIGHT[str(gpu)], products, rows.latency_ms.to_numpy() / 1e3))
    return measured


def compare(group: Measured, constants: Constants, learned: Mapping[str, LearnedChoice]) -> pd.DataFrame:
    """Measured and predicted times of each problem."""
    machine, library, problems = ModelledGpu(get_device(group.device), constants), get_library(_LIBRARY), group.problems
    if isinstance(problems, Products):
        time_s = estimate_products_of(problems, machine, library).time_s
        kinds = product_kinds(problems.flops, problems.touched_bytes)
    else:
        estimates = estimate_algorithms("forward", problems, machine)
        taken = known_choice(library, "forward", problems, machine.device, learned, timed=False)
        time_s = choose_algorithm(estimates, problems, "forward", library, taken=taken).time_s
        kinds = np.full(len(time_s), "forward")
    times = {"measured_ms": group.time_s * 1e3, "predicted_ms": time_s * 1e3}
    return pd.DataFrame({"source": group.source, "device": group.device, "error_kind": kinds, **times})


def summarize(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    ratio = rows.predicted_ms / rows.measured_ms - 1
    grouped = rows.assign(ratio=ratio, error=ratio.abs()).groupby(list(by), sort=True)
    return grouped.agg(
        n=("error", "size"),
        median_error=("error", "median"),
        mean_error=("error", "mean"),
        p90_error=("error", lambda e: e.quantile(0.9)),
        bias=("ratio", "median"),
    ).reset_index()


def inside_of(rows: pd.DataFrame, spreads: Mapping[str, Spread]) -> pd.Series:
    """Whether each measurement, a row of `compare`, lies inside its 90 % interval."""
    factor = rows.measured_ms / rows.predicted_ms
    limits = {
        kind: np.percentile(draw_errors([kind], [""], [""], 1, spreads), _TAILS) for kind in rows.error_kind.unique()
    }
    low, high = (rows.error_kind.map({kind: ends[i] for kind, ends in limits.items()}) for i in (0, 1))
    return factor.between(low, high)
