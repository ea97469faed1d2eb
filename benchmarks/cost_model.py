"""Fit the cost model to the published measurements, hold it against what was left out, write tables and figures.

`python benchmarks/cost_model.py` (about five minutes on one core) rewrites analysis/cost_model/constants.json,
benchmarks/cost_model_residuals.csv.gz, docs/cost-model-validation.md and docs/figures/cost_model_*.svg.
`--no-fit` keeps the constants and the residuals and redoes the network validation, its table and its figures.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from network_sweeps import compare_sweeps, judge_shapes
from scatter import Series, write_scatter

from curvescope.analysis.cost_model import holdout
from curvescope.analysis.cost_model.constants import FITTED, PARAMETERS, load_fitted
from curvescope.analysis.cost_model.fit import fit_constants
from curvescope.analysis.cost_model.networks import load_operations
from curvescope.analysis.cost_model.published import Measured, read_deepbench, read_k40, read_neusight
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.profiling.devices import get_device

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RESIDUALS = HERE / "cost_model_residuals.csv.gz"
DOCS = HERE.parent / "docs"
LONG_MS = 1.0  # NeuSight times hold launch gaps of some 0.3 ms: only rows longer than this are judged


def measurements() -> tuple[list[Measured], Measured]:
    """What is fitted, and the K40's other half."""
    k40 = read_k40(PUBLISHED)
    even = np.arange(len(k40.time_s)) % 2 == 0
    return [*read_deepbench(PUBLISHED), k40.take(even)], k40.take(~even)


def refit() -> None:
    """Fit, hold out, and write the constants and the residuals."""
    fitted_to, k40_rest = measurements()
    deepbench = [group for group in fitted_to if group.source == "deepbench"]
    print("fitting to all")
    constants = fit_constants(fitted_to)
    print("leaving out GPUs")
    shorter = partial(fit_constants, most_steps=10)  # within a tenth of a percent of where 25 end
    gpus = holdout.hold_out_gpus(deepbench, shorter)
    print("leaving out problems")
    problems = holdout.hold_out_problems(deepbench, shorter)
    k40 = holdout.compare(k40_rest, constants["kepler"])
    frames = [
        gpus[gpus.known].assign(held_out="gpu"),
        gpus[~gpus.known].assign(held_out="architecture"),
        problems.assign(held_out="problem"),
        k40.assign(held_out="k40 odd rows"),
    ]
    for group in read_neusight(PUBLISHED):
        rows = holdout.compare(group, constants[group.architecture])
        frames.append(rows.assign(held_out="neusight"))
    table = pd.concat(frames, ignore_index=True).drop(columns="known").round({"measured_ms": 4, "predicted_ms": 4})
    with RESIDUALS.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(table.to_csv(index=False).encode())
    write_constants({a: {k: round(v, 4) for k, v in c.values.items()} for a, c in constants.items()})


def write_constants(values: dict[str, dict[str, float]]) -> None:
    """Write the constants and, from the residuals, how far they are off."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    known, unseen = (table[table.held_out == held_out] for held_out in ("gpu", "architecture"))
    off = np.log(unseen.predicted_ms / unseen.measured_ms).groupby(unseen.kind).median().abs()
    kinds: dict[str, list[str]] = {}
    for group in measurements()[0]:
        kinds.setdefault(group.architecture, []).append(group.kind)
    document = {
        "about": "Written by benchmarks/cost_model.py; meanings and ranges in constants.py.",
        "values": values,
        "spreads": {k: {n: round(v, 4) for n, v in asdict(s).items()} for k, s in holdout.spreads(known).items()},
        "unseen": {str(kind): round(float(value), 4) for kind, value in off.items()},
        "measured": {architecture: sorted(set(names)) for architecture, names in sorted(kinds.items())},
    }
    FITTED.write_text(json.dumps(document, indent=1) + "\n")
    load_fitted.cache_clear()


def write_operator_report() -> list[str]:
    """Tables and figures of single operators, from the residuals."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    lines = ["## Operators", ""]
    titles = {
        "gpu": "A GPU left out of the fit, another of its architecture in it",
        "architecture": "V100 left out, and with it its architecture",
        "problem": "A fifth of the shapes left out on every GPU",
        "k40 odd rows": "K40, TensorFlow 1.10: every second row",
        "neusight": f"NeuSight (cuDNN 8, never fitted), rows over {LONG_MS:g} ms",
    }
    for held_out, title in titles.items():
        rows = table[table.held_out == held_out]
        if held_out == "neusight":
            rows = rows[rows.measured_ms >= LONG_MS]
        summary = pd.concat(
            [
                holdout.summarize(rows, ["device", "kind"]),
                holdout.summarize(rows.assign(device="all"), ["device", "kind"]),
            ]
        )
        lines += [
            f"### {title}",
            "",
            "| GPU | kind | n | median | mean | 90th percentile | bias |",
            "|---|---|--:|--:|--:|--:|--:|",
        ]
        for row in summary.itertuples():
            lines.append(
                f"| {row.device} | {row.kind} | {row.n} | {row.median_error:.1%} | {row.mean_error:.1%} | "
                f"{row.p90_error:.1%} | {row.bias:+.1%} |"
            )
        lines += ["", f"![{title}](figures/cost_model_{held_out.replace(' ', '_')}.svg)", ""]
        series = [
            Series(str(kind), list(part.measured_ms), list(part.predicted_ms)) for kind, part in rows.groupby("kind")
        ]
        write_scatter(
            DOCS / f"figures/cost_model_{held_out.replace(' ', '_')}.svg", title, "measured ms", "predicted ms", series
        )
    known = table[table.held_out == "gpu"]
    inside = holdout.coverage(known)
    lines += [
        "### Intervals", "",
        "The 90 % interval of a kind of operator on a GPU, taken from the other GPUs' held-out rows, contains:", "",
        "| GPU | kind | n | inside |", "|---|---|--:|--:|",
        *(f"| {row.device} | {row.kind} | {row.n} | {row.inside:.1%} |" for row in inside.itertuples()),
        f"| all | all | {inside.n.sum()} | {np.average(inside.inside, weights=inside.n):.1%} |", "",
    ]  # fmt: skip
    labelled = known[(known.published != "") & (known.kind == "forward")]
    groups = {"IMPLICIT_PRECOMP_GEMM": "IMPLICIT", "IMPLICIT_GEMM": "IMPLICIT"}
    agree = (labelled.algorithm.replace(groups) == labelled.published.replace(groups)).mean()
    lines += [f"The algorithm chosen is the published one in {agree:.1%} of {len(labelled)} forward rows.", ""]
    fitted = load_fitted()
    lines += ["### The constants", "", "| constant | meaning | range | " + " | ".join(fitted.constants) + " |"]
    lines += ["|---|---|---|" + "--:|" * len(fitted.constants)]
    for parameter in PARAMETERS:
        values = " | ".join(f"{c[parameter.name]:.3g}" for c in fitted.constants.values())
        lines.append(f"| {parameter.name} | {parameter.meaning} | {parameter.low:g} to {parameter.high:g} | {values} |")
    return [*lines, ""]


def write_streaming_report() -> list[str]:
    """A table of operators that only move bytes: the ReLUs of native Caffe, which read and write their tensor once."""
    table = pd.read_csv(PUBLISHED / "titanx_maxwell_caffe_per_layer.csv")
    machine = machine_for(get_device("titanx_maxwell"))
    passes = {
        "forward": 2,
        "backward": 3,
    }  # backward: the output's gradient and the output in, the input's gradient out
    found = []
    for network in ("vgg_a", "alexnet"):
        rows = table.rename(columns={"pass": "phase"})
        rows = rows[(rows.network == network) & rows.layer.str.fullmatch(r"conv\d/relu")]
        relus = [r for r in load_operations(network)["operations"] if r["op"] == "relu_" and len(r["outputs"][0]) == 4]
        for place, relu in enumerate(relus, start=1):
            for row in rows[rows.layer == f"conv{place}/relu"].itertuples():
                elements = np.prod([factor * row.batch_nominal + constant for factor, constant in relu["outputs"][0]])
                says_ms = machine.streaming("relu", np.array([4.0 * passes[row.phase] * elements])).time_s[0] * 1e3
                found.append((network, row.phase, row.time_ms, says_ms))
    frame = pd.DataFrame(found, columns=["network", "pass", "measured_ms", "modelled_ms"])
    lines = ["### Streams", "", "The ReLUs of native Caffe on Titan X (Maxwell), never fitted:", ""]
    lines += ["| network | pass | n | measured ms | modelled / measured |", "|---|---|--:|---|---|"]
    for (network, phase), part in frame.groupby(["network", "pass"]):
        ratio = part.modelled_ms / part.measured_ms
        lines.append(
            f"| {network} | {phase} | {len(part)} | {part.measured_ms.min():.2f} to {part.measured_ms.max():.2f} | "
            f"{ratio.min():.2f} to {ratio.max():.2f} |"
        )
    return [*lines, ""]


def write_network_report() -> list[str]:
    """Tables and the figure of whole networks; nothing of them was fitted."""
    rows = compare_sweeps(PUBLISHED)
    ratio = rows.modelled_ms / rows.published_ms
    lines = ["## Whole networks", "", "Published sweeps, none of them fitted: modelled over published time.", ""]
    lines += ["| GPU | framework | network | step | batch: modelled / published |", "|---|---|---|---|---|"]
    keys = ["gpu", "framework", "network", "mode"]
    for key, sweep in rows.assign(ratio=ratio).groupby(keys):
        cells = ", ".join(f"{row.batch}: {row.ratio:.2f}" for row in sweep.itertuples())
        lines.append(f"| {' | '.join(key)} | {cells} |")
    lines += ["", "| step | n | median error | mean error | bias |", "|---|--:|--:|--:|--:|"]
    for mode, part in rows.assign(ratio=ratio - 1).groupby("mode"):
        lines.append(
            f"| {mode} | {len(part)} | {part.ratio.abs().median():.1%} | {part.ratio.abs().mean():.1%} | "
            f"{part.ratio.median():+.1%} |"
        )
    inside = (rows.published_ms >= rows.low_ms) & (rows.published_ms <= rows.high_ms)
    lines += ["", "The 90 % interval of a modelled step contains the published time in "]
    lines[-1] += ", ".join(f"{part.mean():.0%} of {len(part)} {mode}" for mode, part in inside.groupby(rows["mode"]))
    lines[-1] += " steps."
    shapes = judge_shapes(rows)
    lines += ["", "Signs, where the published effect is over 5 % of the step:", ""]
    lines += ["| functional | step | n | sign right |", "|---|---|--:|--:|"]
    for (functional, mode), part in shapes.groupby(["functional", "mode"]):
        lines.append(f"| {functional} | {mode} | {len(part)} | {part.agree.mean():.1%} |")
    positive = shapes[(shapes.functional == "excess") & (shapes.published > 0)]
    lines += [
        "", f"Most published excesses are negative: a fixed cost is shared. Of the {len(positive)} positive ones, the "
        f"anomalies, the sign is right in {positive.agree.mean():.0%}:", "",
        "| GPU | framework | network | step | from batch | published | modelled |", "|---|---|---|---|--:|--:|--:|",
        *(f"| {r.gpu} | {r.framework} | {r.network} | {r.mode} | {r.at} | {r.published:+.1%} | {r.modelled:+.1%} |"
          for r in positive.itertuples()), "",
        "![Whole networks](figures/cost_model_networks.svg)", "",
    ]  # fmt: skip
    series = [Series(str(gpu), list(part.published_ms), list(part.modelled_ms)) for gpu, part in rows.groupby("gpu")]
    write_scatter(
        DOCS / "figures/cost_model_networks.svg", "Whole networks, none fitted", "published ms", "modelled ms", series
    )
    return lines


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-fit", action="store_true", help="keep the constants and the residuals")
    args = parser.parse_args()
    if args.no_fit:
        write_constants(json.loads(FITTED.read_text())["values"])
    else:
        refit()
    lines = [
        "# Validation of the cost model",
        "",
        "Written by `python benchmarks/cost_model.py`; see [cost-model.md](cost-model.md).",
        "",
    ]
    lines += write_operator_report()
    lines += write_streaming_report()
    lines += write_network_report()
    (DOCS / "cost-model-validation.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
