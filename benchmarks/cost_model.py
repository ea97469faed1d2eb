"""Fit the cost model to the published measurements and hold it against what was left out.

`python benchmarks/cost_model.py` (about ten minutes on one core) rewrites constants.json and choices.json of
analysis/cost_model, cost_model_residuals.csv.gz and cost_model_left_out.json here, and prints the errors that
docs/cost-model-validation.md quotes. `--no-fit` keeps the constants and prints the errors only.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fitting import holdout
from fitting.fit import fit_constants
from fitting.published import (
    ASKED_ROWS,
    BY_ALGORITHM,
    K40_TRAINING,
    PRODUCTS_ALONE,
    TIMED_ROWS,
    Measured,
    read_by_algorithm,
    read_caffe_streams,
    read_choices,
    read_deepbench,
    read_k40,
    read_k40_training,
    read_kepler_products,
    read_neusight,
    read_neusight_later,
    read_streams,
)
from fitting.tensor import compare_tensor_folds, fit_tensor, read_tensor_times
from fitting.trees import FASTEST, as_document, learn_choices
from network_sweeps import compare_sweeps, measure_engine, read_later_sweeps, read_sweeps, read_torch7

from curvescope.analysis.cost_model.choice import get_library, lacks_transposed
from curvescope.analysis.cost_model.constants import FITTED, Constants, Offset, constants_for, load_fitted
from curvescope.analysis.cost_model.learned import LEARNED, load_learned
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RESIDUALS = HERE / "cost_model_residuals.csv.gz"
LEFT_OUT = HERE / "cost_model_left_out.json"  # constants of the fits that left a GPU out
LATER = "neusight, P4 and T4"
LONG_MS = 1.0  # NeuSight times hold launch gaps of some 0.3 ms: only rows longer than this are judged


def measurements() -> tuple[list[Measured], list[Measured]]:
    """What is fitted, and the other half of the K40's tables.

    Of tables with far more rows than a group's weight in the fit, only every third or twelfth row is fitted.
    """
    k40, training = read_k40(PUBLISHED), read_k40_training(PUBLISHED)
    index, steps = np.arange(len(k40.time_s)), np.arange(len(training.time_s))
    by_algorithm = [group.take(np.arange(len(group.time_s)) % 3 == 0) for group in read_by_algorithm(PUBLISHED)]
    alone = [*by_algorithm, read_kepler_products(PUBLISHED), k40.take(index % 12 == 0), training.take(steps % 2 == 0)]
    fitted_to = [*read_deepbench(PUBLISHED), *read_streams(PUBLISHED), *alone]
    return fitted_to, [k40.take(index % 2 == 1), training.take(steps % 2 == 1)]


def _fit_without(by: str, left_out: str) -> dict[str, Constants]:
    """The constants of a fit without one GPU, one architecture or one fold of the problems; "nothing": of all."""
    measured = measurements()[0]
    if by == "fold":
        measured = [group.take(~holdout.in_fold(group, int(left_out))) for group in measured]
    elif by != "nothing":
        measured = [group for group in measured if getattr(group, by) != left_out]
    return fit_constants(measured)


def refit(jobs: int) -> None:
    fitted_to, k40_rest = measurements()
    operators = [group for group in fitted_to if group.kind != "streaming"]
    left_out = [
        ("nothing", ""),
        *(("device", name) for name in sorted({group.device for group in operators})),
        # Of Kepler and Turing, products and gradients were not measured one by one.
        *(("architecture", name) for name in ("maxwell", "pascal", "volta")),
        *(("fold", str(fold)) for fold in range(holdout.FOLDS)),
    ]
    without: dict[str, dict[str, dict[str, Constants]]] = {by: {} for by, _ in left_out}
    with ProcessPoolExecutor(jobs) as pool:
        for (by, name), constants in zip(left_out, pool.map(_fit_without, *zip(*left_out, strict=True)), strict=True):
            without[by][name] = constants
            print(f"fitted without {by} {name}", flush=True)
    constants = without["nothing"][""]
    judged = [group for group in fitted_to if group.source not in (BY_ALGORITHM, PRODUCTS_ALONE, K40_TRAINING, "k40")]
    gpus = holdout.compare_left_out(judged, "device", without["device"])
    frames = [
        gpus[gpus.known].assign(held_out="gpu"),
        holdout.compare_left_out(judged, "architecture", without["architecture"]).assign(held_out="architecture"),
        holdout.compare_folds(judged, without["fold"]).assign(held_out="problem"),
        *(holdout.compare(one, constants["kepler"]).assign(held_out=f"{one.source} odd rows") for one in k40_rest),
    ]
    frames += compare_choices(without["device"])
    for group in read_neusight(PUBLISHED):
        rows = holdout.compare(group, constants[group.architecture])
        frames.append(rows.assign(held_out="neusight"))
    frames += compare_later(constants)
    caffe = read_caffe_streams(PUBLISHED)
    frames.append(holdout.compare(caffe, constants[caffe.architecture]).assign(held_out="caffe streams"))
    times = read_tensor_times(PUBLISHED)
    frames.append(compare_tensor_folds(times, constants["volta"]))
    _write_residuals(pd.concat(frames, ignore_index=True).drop(columns="known"))
    tensor = _rounded(fit_tensor(times, constants["volta"]).values)
    write_constants({a: _rounded(c.values) for a, c in constants.items()}, tensor)
    documents = {
        device: {a: _rounded(c.values) for a, c in fitted.items()} for device, fitted in without["device"].items()
    }
    LEFT_OUT.write_text(json.dumps(documents, indent=1) + "\n")


def compare_choices(without: Mapping[str, Mapping[str, Constants]]) -> list[pd.DataFrame]:
    """Predict cudnn_scope's cards, with choices learned from other architectures and with the fastest algorithm."""
    groups = read_choices(PUBLISHED)
    learned = {name: learn_choices(PUBLISHED, name) for name in {group.architecture for group in groups}}
    frames = []
    for suffix, choices in (("", learned), (FASTEST, None)):
        rows = holdout.compare_left_out(groups, "device", without, choices)
        frames.append(rows.assign(held_out=rows.source + suffix))
    return frames


def compare_later(constants: Mapping[str, Constants]) -> list[pd.DataFrame]:
    """Predict NeuSight's convolutions on the cards of fitted architectures that were added later."""
    groups = [group for group in read_neusight_later(PUBLISHED) if group.kind == "forward"]
    return [
        holdout.compare(group, constants[group.architecture]).assign(held_out=LATER)
        for group in groups
        if group.architecture in constants
    ]


def _write_residuals(table: pd.DataFrame) -> None:
    table = table.round({"measured_ms": 5, "predicted_ms": 5})
    with RESIDUALS.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(table.to_csv(index=False).encode())


def read_left_out() -> dict[str, dict[str, Constants]]:
    """Constants by architecture of the fits that left a GPU out, by its key; none before the first complete run."""
    documents = json.loads(LEFT_OUT.read_text()) if LEFT_OUT.exists() else {}
    return {device: {a: Constants(values) for a, values in fitted.items()} for device, fitted in documents.items()}


def read_left_out_of_networks() -> dict[str, dict[str, Constants]]:
    """The same for the GPUs whose architecture another GPU measures, too: without K40 or V100, its level is unknown."""
    levels = [g for g in measurements()[0] if g.kind != "streaming" and not g.source.startswith(BY_ALGORITHM)]
    return {
        device: constants
        for device, constants in read_left_out().items()
        if any(g.device != device and g.architecture == get_device(device).architecture for g in levels)
    }


def write_constants(values: dict[str, dict[str, float]], tensor: dict[str, float]) -> None:
    """Write the constants, learned choices and, from the residuals, how far the constants are off."""
    choices = {name: as_document(choice) for name, choice in learn_choices(PUBLISHED).items()}
    LEARNED.write_text(json.dumps(choices, indent=1) + "\n")
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    known, unlevelled = table[table.held_out.isin(("gpu", "caffe streams"))], sweeps_and_random(table)
    unseen = table[table.held_out == "architecture"]
    unseen = unseen.assign(architecture=[get_device(device).architecture for device in unseen.device])
    measured: dict[str, dict[str, list[str]]] = {}
    for group in (group for group in measurements()[0] if group.source != K40_TRAINING):  # no kind of operator
        libraries = measured.setdefault(group.architecture, {}).setdefault(group.kind, [])
        libraries.extend([group.library] if group.library not in libraries else [])
    document = {
        "about": "Written by benchmarks/cost_model.py; meanings and ranges in constants.py.",
        "values": values,
        "tensor": tensor,
        "spreads": {
            kind: _rounded(asdict(spread))
            for kind, spread in holdout.spreads(pd.concat([known, unlevelled]), unlevelled.source.unique()).items()
        },
        "unseen": {
            str(kind): _rounded(asdict(_offset(rows, "architecture"))) for kind, rows in unseen.groupby("error_kind")
        },
        "measured": {architecture: dict(sorted(kinds.items())) for architecture, kinds in sorted(measured.items())},
        "other_library": _rounded(asdict(other_library(table))),
    }
    FITTED.write_text(json.dumps(document, indent=1) + "\n")
    load_fitted.cache_clear()


def other_library(table: pd.DataFrame, without: str = "") -> Offset:
    """How far convolutions with cuDNN 8 lie off as a whole, on all cards of fitted architectures or without one."""
    rows = table[table.held_out.isin(("neusight", LATER)) & (table.measured_ms >= LONG_MS) & (table.device != without)]
    return _offset(rows, "device")


def sweeps_and_random(table: pd.DataFrame) -> pd.DataFrame:
    """Held-out rows from which intervals are drawn, too: cudnn_scope's sweeps, and every eighth of NeuSight's shapes.

    So few of the latter, because they are all forward convolutions of one size of kernel. The clocks of their cards are
    not published, or the library was not fitted.
    """
    random = table[(table.held_out == "neusight") & (table.measured_ms >= LONG_MS)]
    return pd.concat([table[table.held_out.isin((ASKED_ROWS, TIMED_ROWS))], random.iloc[::8]])


def _offset(rows: pd.DataFrame, cases: str) -> Offset:
    """How far GPUs lie off as a whole: root mean square over GPUs of the median, in logarithms."""
    medians = np.log(rows.predicted_ms / rows.measured_ms).groupby(rows.device).median()
    return Offset(float(np.sqrt((medians**2).mean())), int(rows[cases].nunique()))


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [round(v, 4) for v in value] if isinstance(value, tuple) else round(value, 4)
        for name, value in values.items()
    }


def print_operator_errors() -> None:
    """Errors of single operators by what was left out, and how many are inside their 90 % interval."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    judged = table[~table.held_out.str.startswith("neusight") | (table.measured_ms >= LONG_MS)]
    for held_out, rows in judged.groupby("held_out"):
        both = pd.concat([rows, rows.assign(device="all")])
        print(f"\n{held_out}\n{holdout.summarize(both, ['device', 'kind']).round(3).to_string(index=False)}")
    known = table[(table.held_out == "gpu") & (table.kind != "streaming")]
    beside = sweeps_and_random(table)
    inside, sums = holdout.coverage(known, beside), holdout.sums(known, beside)
    held = (sums.measured_ms >= sums.low_ms) & (sums.measured_ms <= sums.high_ms)
    print(f"\ninside the 90 % interval\n{inside.round(3).to_string(index=False)}")
    everywhere = np.average(inside.inside, weights=inside.n)
    print(f"all {everywhere:.1%} of {inside.n.sum()}; sums {held.sum()} of {len(sums)}")


def compare_other_cards() -> pd.DataFrame:
    """Cards and a library that no fit has seen: rows, whether in their intervals, and whether the model refuses."""
    fitted, frames, residuals = load_fitted(), [], pd.read_csv(RESIDUALS, keep_default_na=False)
    for group in [*read_neusight(PUBLISHED), *read_neusight_later(PUBLISHED)]:
        rows = holdout.compare(group, constants_for(group.architecture, fitted.constants), load_learned())
        rows = rows[rows.measured_ms >= LONG_MS]
        # What convolutions with that library tell comes from the other cards.
        others = replace(fitted, other_library=other_library(residuals, group.device))
        spreads = others.spreads_for(group.architecture, group.library)
        refused = lacks_transposed(get_device(group.device), get_library(group.library)) and "linear" in group.source
        frames.append(rows.assign(inside=holdout.inside_of(rows, spreads), refused=refused))
    return pd.concat(frames)


def print_other_cards() -> None:
    """Errors of cards and a library that no fit has seen, and how many are inside their 90 % interval."""
    table = compare_other_cards()
    for what in (["device", "source", "error_kind"], ["device"], ["error_kind"]):
        by = ["refused", *what]
        summary = holdout.summarize(table, by).assign(inside=table.groupby(by).inside.mean().tolist())
        print(f"\nother cards and cuDNN 8\n{summary.round(3).to_string(index=False)}")


def print_network_errors() -> None:
    left_out = read_left_out_of_networks()
    published = [read(PUBLISHED) for read in (read_sweeps, read_later_sweeps, read_torch7)]
    engine = measure_engine(pd.concat(published), left_out)
    print(f"\nMXNet's engine\n{engine.to_string(index=False)}")
    others_s = dict(zip(engine.device, engine.others_s, strict=True))
    rows = pd.concat([compare_sweeps(sweeps, left_out, others_s) for sweeps in published])
    inside = (rows.published_ms >= rows.low_ms) & (rows.published_ms <= rows.high_ms)
    rows = rows.assign(held_out="", measured_ms=rows.published_ms, predicted_ms=rows.modelled_ms, inside=inside)
    table = holdout.summarize(rows, ["gpu", "mode"]).assign(inside=rows.groupby(["gpu", "mode"]).inside.mean().tolist())
    print(f"\nwhole steps\n{table.round(3).to_string(index=False)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-fit", action="store_true", help="keep the constants and the residuals")
    parser.add_argument("--jobs", type=int, default=1, help="fits that run at once (default %(default)s)")
    args = parser.parse_args()
    if not args.no_fit:
        refit(args.jobs)
    print_operator_errors()
    print_other_cards()
    print_network_errors()


if __name__ == "__main__":
    main()
