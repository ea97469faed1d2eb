"""Holds the cost model against published measurements: prints the errors that docs/cost-model-validation.md quotes.

Errors of single operators are those of the fits that left GPUs, architectures and problems out, one row per published
time in cost_model_residuals.csv.gz; of other cards and of complete steps the model is asked anew. Both are of the fits
of 2026-11-24, which docs/cost-model.md says how to repeat. Run: `python benchmarks/cost_model.py`, half a minute.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from network_sweeps import compare_sweeps, measure_engine, read_later_sweeps, read_sweeps, read_torch7
from operator_errors import compare, inside_of, read_neusight, summarize

from curvescope.analysis.cost_model.choice import get_library, lacks_transposed
from curvescope.analysis.cost_model.constants import Constants, Offset, constants_for, load_fitted
from curvescope.analysis.cost_model.learned import load_learned
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RESIDUALS = HERE / "cost_model_residuals.csv.gz"
LEFT_OUT = HERE / "cost_model_left_out.json"  # constants of the fits that left a GPU out
LONG_MS = 1.0  # NeuSight times hold launch gaps of some 0.3 ms: only rows longer than this are judged
# GPUs of whose architecture another one gave the level, too: without K40 or V100, it is unknown.
LEVELLED = ("k80", "m40", "m60", "p100", "titan_v", "titanx_maxwell", "titanx_pascal")


def read_residuals() -> pd.DataFrame:
    return pd.read_csv(RESIDUALS, keep_default_na=False)


def read_left_out() -> dict[str, dict[str, Constants]]:
    """Constants by architecture of the fits that left a GPU of `LEVELLED` out, by its key."""
    documents = json.loads(LEFT_OUT.read_text())
    return {device: {a: Constants(values) for a, values in documents[device].items()} for device in LEVELLED}


def other_library(table: pd.DataFrame, without: str) -> Offset:
    """How far convolutions with cuDNN 8 lie off as a whole, on all cards of fitted architectures but one.

    Root mean square over cards of their median, in logarithms.
    """
    rows = table[table.held_out.isin(("neusight", "neusight, P4 and T4")) & (table.measured_ms >= LONG_MS)]
    rows = rows[rows.device != without]
    medians = np.log(rows.predicted_ms / rows.measured_ms).groupby(rows.device).median()
    return Offset(float(np.sqrt((medians**2).mean())), int(rows.device.nunique()))


def print_operator_errors() -> None:
    """Errors of single operators by what was left out."""
    table = read_residuals()
    judged = table[~table.held_out.str.startswith("neusight") | (table.measured_ms >= LONG_MS)]
    for held_out, rows in judged.groupby("held_out"):
        both = pd.concat([rows, rows.assign(device="all")])
        print(f"\n{held_out}\n{summarize(both, ['device', 'kind']).round(3).to_string(index=False)}")


def compare_other_cards() -> pd.DataFrame:
    """Cards and a library that no fit has seen: rows, whether in their intervals, and whether the model refuses."""
    fitted, frames, residuals, library = load_fitted(), [], read_residuals(), get_library("cudnn8")
    for group in read_neusight(PUBLISHED):
        rows = compare(group, constants_for(group.architecture, fitted.constants), load_learned())
        rows = rows[rows.measured_ms >= LONG_MS]
        # What convolutions with that library tell comes from the other cards.
        others = replace(fitted, other_library=other_library(residuals, group.device))
        spreads = others.spreads_for(group.architecture, "cudnn8")
        refused = lacks_transposed(get_device(group.device), library) and "linear" in group.source
        frames.append(rows.assign(inside=inside_of(rows, spreads), refused=refused))
    return pd.concat(frames)


def print_other_cards() -> None:
    """Errors of cards and a library that no fit has seen, and how many are inside their 90 % interval."""
    table = compare_other_cards()
    for what in (["device", "source", "error_kind"], ["device"], ["error_kind"]):
        by = ["refused", *what]
        summary = summarize(table, by).assign(inside=table.groupby(by).inside.mean().tolist())
        print(f"\nother cards and cuDNN 8\n{summary.round(3).to_string(index=False)}")


def print_network_errors() -> None:
    left_out = read_left_out()
    published = [read(PUBLISHED) for read in (read_sweeps, read_later_sweeps, read_torch7)]
    engine = measure_engine(pd.concat(published), left_out)
    print(f"\nMXNet's engine\n{engine.to_string(index=False)}")
    others_s = dict(zip(engine.device, engine.others_s, strict=True))
    rows = pd.concat([compare_sweeps(sweeps, left_out, others_s) for sweeps in published])
    inside = (rows.published_ms >= rows.low_ms) & (rows.published_ms <= rows.high_ms)
    rows = rows.assign(held_out="", measured_ms=rows.published_ms, predicted_ms=rows.modelled_ms, inside=inside)
    table = summarize(rows, ["gpu", "mode"]).assign(inside=rows.groupby(["gpu", "mode"]).inside.mean().tolist())
    print(f"\nwhole steps\n{table.round(3).to_string(index=False)}")


def main() -> None:
    print_operator_errors()
    print_other_cards()
    print_network_errors()


if __name__ == "__main__":
    main()
