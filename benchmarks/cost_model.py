"""Holds the cost model against published measurements, and prints its errors.

Errors of single operators are those of the fits that left GPUs, architectures and problems out, one
row per published time in cost_model_residuals.csv.gz; of other cards and of complete steps the
model is asked anew. Both are of the fits of 2026-11-24; docs/internals/cost-model.md says how to
repeat them. Run: `python benchmarks/cost_model.py`, half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from network_sweeps import (
    compare_sweeps,
    measure_engine,
    read_later_sweeps,
    read_sweeps,
    read_tensorflow,
    read_torch7,
)

from curvescope.analysis.cost_model.choice import (
    choose_algorithm,
    estimate_products_of,
    get_library,
    lacks_transposed,
    look_up_choice,
)
from curvescope.analysis.cost_model.constants import (
    Constants,
    Offset,
    Spread,
    constants_for,
    load_fitted,
)
from curvescope.analysis.cost_model.convolution import estimate_algorithms
from curvescope.analysis.cost_model.errors import draw_errors
from curvescope.analysis.cost_model.launches import ModelledGpu
from curvescope.analysis.cost_model.learned import LearnedChoice, load_learned
from curvescope.analysis.cost_model.problems import Convolutions, Floats, Products, product_kinds
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RESIDUALS = HERE / "cost_model_residuals.csv.gz"
LEFT_OUT = HERE / "cost_model_left_out.json"  # constants of the fits that left a GPU out
# NeuSight times hold launch gaps of some 0.3 ms: only rows longer than this are judged
LONG_MS = 1.0
# GPUs of whose architecture another one gave the level, too: without K40 or V100, it is unknown.
LEVELLED = ("k80", "m40", "m60", "p100", "titan_v", "titanx_maxwell", "titanx_pascal")
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
    """NeuSight's measurements of one kind of operator on one GPU; arrays have the shape
    (problems,).
    """

    source: str
    device: str
    problems: Convolutions | Products  # forward convolutions, or matrix products
    time_s: Floats


def read_neusight(folder: Path) -> list[Measured]:
    """Forward convolutions, and products on five cards; of the products and the later cards only
    those of 1 ms or more.

    Nothing was ever fitted to them.
    """
    measured = []
    for name in ("neusight_conv.csv.gz", "neusight_later_conv.csv.gz"):
        for gpu, rows in pd.read_csv(folder / name).groupby("gpu"):
            pad, stride = rows.pad.to_numpy(), rows.stride
            problems = Convolutions(
                rows.n, rows.c, rows.h, rows.w, rows.k, rows.r, rows.s, pad, pad, stride, stride
            )  # fmt: skip
            measured.append(
                Measured(
                    "neusight", _NEUSIGHT[str(gpu)], problems, rows.latency_raw_ms.to_numpy() / 1e3
                )
            )
    for (gpu, op), rows in pd.read_csv(folder / "neusight_products.csv.gz").groupby(["gpu", "op"]):
        # The weights of a linear layer are stored transposed.
        products = Products(
            rows.m, rows.n, rows.k, np.full(len(rows), op == "linear"), rows["count"]
        )
        measured.append(
            Measured(
                f"neusight {op}", _NEUSIGHT[str(gpu)], products, rows.latency_ms.to_numpy() / 1e3
            )
        )
    return measured


def compare(
    group: Measured, constants: Constants, learned: Mapping[str, LearnedChoice]
) -> pd.DataFrame:
    """Measured and predicted times of each problem."""
    machine, library, problems = (
        ModelledGpu(get_device(group.device), constants),
        get_library(_LIBRARY),
        group.problems,
    )
    if isinstance(problems, Products):
        time_s = estimate_products_of(problems, machine, library).time_s
        kinds = product_kinds(problems.flops, problems.touched_bytes)
    else:
        estimates = estimate_algorithms("forward", problems, machine)
        taken = look_up_choice(library, "forward", problems, machine.device, learned, timed=False)
        time_s = choose_algorithm(estimates, problems, "forward", library, taken=taken).time_s
        kinds = np.full(len(time_s), "forward")
    times = {"measured_ms": group.time_s * 1e3, "predicted_ms": time_s * 1e3}
    return pd.DataFrame(
        {"source": group.source, "device": group.device, "error_kind": kinds, **times}
    )


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
        kind: np.percentile(draw_errors([kind], [""], [""], 1, spreads), _TAILS)
        for kind in rows.error_kind.unique()
    }
    low, high = (
        rows.error_kind.map({kind: ends[i] for kind, ends in limits.items()}) for i in (0, 1)
    )
    return factor.between(low, high)


def read_residuals() -> pd.DataFrame:
    return pd.read_csv(RESIDUALS, keep_default_na=False)


def read_left_out() -> dict[str, dict[str, Constants]]:
    """Constants by architecture of the fits that left a GPU of `LEVELLED` out, by its key."""
    documents = json.loads(LEFT_OUT.read_text())
    return {
        device: {a: Constants(values) for a, values in documents[device].items()}
        for device in LEVELLED
    }


def other_library(table: pd.DataFrame, without: str) -> Offset:
    """How far convolutions with cuDNN 8 lie off as a whole, on all cards of fitted architectures
    but one.

    Root mean square over cards of their median, in logarithms.
    """
    rows = table[
        table.held_out.isin(("neusight", "neusight, P4 and T4")) & (table.measured_ms >= LONG_MS)
    ]
    rows = rows[rows.device != without]
    medians = np.log(rows.predicted_ms / rows.measured_ms).groupby(rows.device).median()
    return Offset(float(np.sqrt((medians**2).mean())), int(rows.device.nunique()))


def print_operator_errors() -> None:
    """Errors of single operators by what was left out."""
    table = read_residuals()
    judged = table[~table.held_out.str.startswith("neusight") | (table.measured_ms >= LONG_MS)]
    for held_out, rows in judged.groupby("held_out"):
        both = pd.concat([rows, rows.assign(device="all")])
        print(
            f"\n{held_out}\n{summarize(both, ['device', 'kind']).round(3).to_string(index=False)}"
        )


def compare_other_cards() -> pd.DataFrame:
    """Cards and a library that no fit has seen: rows, whether in their intervals, and whether the
    model refuses.
    """
    fitted, frames, residuals, library = load_fitted(), [], read_residuals(), get_library(_LIBRARY)
    for group in read_neusight(PUBLISHED):
        device = get_device(group.device)
        rows = compare(group, constants_for(device.architecture, fitted.constants), load_learned())
        rows = rows[rows.measured_ms >= LONG_MS]
        # What convolutions with that library tell comes from the other cards.
        others = replace(fitted, other_library=other_library(residuals, group.device))
        spreads = others.spreads_for(device.architecture, _LIBRARY)
        refused = lacks_transposed(device, library) and "linear" in group.source
        frames.append(rows.assign(inside=inside_of(rows, spreads), refused=refused))
    return pd.concat(frames)


def print_other_cards() -> None:
    """Errors of cards and a library that no fit has seen, and how many are inside their 90 %
    interval.
    """
    table = compare_other_cards()
    for what in (["device", "source", "error_kind"], ["device"], ["error_kind"]):
        by = ["refused", *what]
        summary = summarize(table, by).assign(inside=table.groupby(by).inside.mean().tolist())
        print(f"\nother cards and cuDNN 8\n{summary.round(3).to_string(index=False)}")


def print_network_errors() -> None:
    left_out = read_left_out()
    readers = read_sweeps, read_later_sweeps, read_torch7, read_tensorflow
    published = [read(PUBLISHED) for read in readers]
    engine = measure_engine(pd.concat(published), left_out)
    print(f"\nMXNet's engine\n{engine.to_string(index=False)}")
    others_s = dict(zip(engine.device, engine.others_s, strict=True))
    frames = [compare_sweeps(sweeps, left_out, others_s) for sweeps in published]
    rows = pd.concat(frames, ignore_index=True)
    inside = rows.published_ms.between(rows.low_ms, rows.high_ms)
    rows = rows.assign(measured_ms=rows.published_ms, predicted_ms=rows.modelled_ms, inside=inside)
    for by in (["framework", "gpu", "mode"], ["gpu", "mode"], ["mode"]):
        table = summarize(rows, by).assign(inside=rows.groupby(by).inside.mean().tolist())
        print(f"\nwhole steps\n{table.round(3).to_string(index=False)}")
    for by in (["gpu"], ["framework"], ["network"]):
        table = narrow_intervals(rows, by[0])
        print(f"\nnarrowed intervals\n{table.round(3).to_string(index=False)}")


def narrow_intervals(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """The steps of each card, framework or network inside intervals that hold 90 % of the others.

    The width is a factor on the logarithms of both ends; 1 leaves an interval as it is.
    """
    error = np.log(rows.measured_ms / rows.predicted_ms)
    ends = np.where(error > 0, rows.high_ms, rows.low_ms)
    needed = error / np.log(ends / rows.predicted_ms)
    groups = []
    for name, own in needed.groupby(rows[by]):
        width = needed.drop(own.index).quantile(0.9)
        groups.append({by: name, "n": len(own), "width": width, "inside": (own <= width).mean()})
    return pd.DataFrame(groups)


def main() -> None:
    print_operator_errors()
    print_other_cards()
    print_network_errors()


if __name__ == "__main__":
    main()
