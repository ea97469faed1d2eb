"""Fit the cost model to the published measurements, hold it against what was left out, write tables and figures.

`python benchmarks/cost_model.py` (about ten minutes on one core) rewrites constants.json and choices.json of
analysis/cost_model, cost_model_residuals.csv.gz and cost_model_left_out.json here, docs/cost-model-validation.md and
docs/figures/cost_model_*.svg.
`--no-fit` keeps the constants and the residuals and redoes the network validation, its table and its figures.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from evidence import beginning
from fitting import holdout
from fitting.anomalies import score, shapes, share
from fitting.engine import measure_engine, write_engine_report
from fitting.fit import fit_constants
from fitting.groups import write_group_report
from fitting.pools import write_pool_report
from fitting.published import (
    BY_ALGORITHM,
    K40_TRAINING,
    PRODUCTS_ALONE,
    Measured,
    read_by_algorithm,
    read_caffe_streams,
    read_choices,
    read_deepbench,
    read_k40,
    read_k40_training,
    read_kepler_products,
    read_neusight,
    read_streams,
)
from fitting.remaining import write_remaining_report
from fitting.reports import (
    ASKED_ROWS,
    FASTEST,
    TIMED_ROWS,
    learn_choices,
    write_choice_report,
    write_tensor_report,
    write_width_table,
)
from fitting.tensor import compare_tensor_folds, fit_tensor, read_tensor_times
from fitting.transfer import write_publication_report, write_transfer_report
from fitting.trees import as_document
from network_sweeps import CURVE, compare_sweeps, judge_shapes, read_later_sweeps, read_sweeps
from scatter import Series, write_scatter

from curvescope.analysis.cost_model.constants import FITTED, PARAMETERS, Constants, Offset, load_fitted
from curvescope.analysis.cost_model.learned import LEARNED
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RESIDUALS = HERE / "cost_model_residuals.csv.gz"
LEFT_OUT = HERE / "cost_model_left_out.json"  # constants of the fits that left a GPU out
DOCS = HERE.parent / "docs"
MISSED = (HERE / "cost_model_missed.md").read_text()  # the end of the page, written by hand
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
    return fit_constants(measured, most_steps=8)


def refit(jobs: int) -> None:
    """Fit, hold out, and write the constants and the residuals.

    Args:
        jobs: number of fits that run at once.
    """
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
    """Predict cudnn_scope's cards, with choices learned from other architectures and with the fastest algorithm.

    Args:
        without: constants by architecture of fits that left a GPU out, by its key.
    """
    groups = read_choices(PUBLISHED)
    learned = {name: learn_choices(PUBLISHED, name) for name in {group.architecture for group in groups}}
    frames = []
    for suffix, choices in (("", learned), (FASTEST, None)):
        rows = holdout.compare_left_out(groups, "device", without, choices)
        frames.append(rows.assign(held_out=rows.source + suffix))
    return frames


def rejudge_choices() -> None:
    """Predict cudnn_scope's cards anew, with the constants of the fits that left them out."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    kept = table[~table.held_out.str.startswith(BY_ALGORITHM)]
    _write_residuals(pd.concat([kept, *compare_choices(read_left_out())]).drop(columns="known"))


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
    unseen, other = (table[table.held_out == held_out] for held_out in ("architecture", "neusight"))
    unseen = unseen.assign(architecture=[get_device(device).architecture for device in unseen.device])
    other = other[other.measured_ms >= LONG_MS]
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
        "other_library": _rounded(asdict(_offset(other, "device"))),
    }
    FITTED.write_text(json.dumps(document, indent=1) + "\n")
    load_fitted.cache_clear()


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


def three_figures() -> tuple[str, str, str]:
    """What begins the page, from the residuals of the fits that left a GPU out."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    known = table[table.held_out == "gpu"]
    errors = holdout.summarize(known.assign(device="all"), ["kind"]).set_index("kind")
    inside = holdout.coverage(known[known.kind != "streaming"], sweeps_and_random(table))
    return (
        f"On a GPU left out of the fit, the median error of forward convolutions is "
        f"**{errors.median_error['forward']:.1%}** (n = {errors.n['forward']}).",
        f"That of matrix products is **{errors.median_error['product']:.1%}** (n = {errors.n['product']}), their mean "
        f"error {errors.mean_error['product']:.1%}.",
        f"**{np.average(inside.inside, weights=inside.n):.1%}** of these operators are inside their 90 % interval.",
    )


def write_operator_report() -> list[str]:
    """Tables and figures of single operators, from the residuals."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    lines = ["## Operators", ""]
    titles = {
        "gpu": "A GPU left out of the fit, another of its architecture in it",
        "architecture": "An architecture left out of the fit",
        "cudnn_scope, asked": "The same of cudnn_scope: every algorithm that cuDNN 7.6 advises",
        "cudnn_scope, timed": "The same, the fastest algorithm",
        "problem": "A fifth of the shapes left out on every GPU",
        "k40 odd rows": "K40, TensorFlow 1.10: every second row",
        f"{K40_TRAINING} odd rows": "K40, TensorFlow 1.10, steps of one convolution: every second row",
        "neusight": f"NeuSight (cuDNN 8, never fitted), rows over {LONG_MS:g} ms",
        "caffe streams": "ReLUs of native Caffe, which only move bytes, never fitted",
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
        lines += ["", f"![{title}](figures/cost_model_{held_out.replace(',', '').replace(' ', '_')}.svg)", ""]
        series = [
            Series(str(kind), list(part.measured_ms), list(part.predicted_ms)) for kind, part in rows.groupby("kind")
        ]
        write_scatter(
            DOCS / f"figures/cost_model_{held_out.replace(',', '').replace(' ', '_')}.svg",
            title,
            "measured ms",
            "predicted ms",
            series,
        )
    known = table[table.held_out == "gpu"]
    computing = known[known.kind != "streaming"]
    beside = sweeps_and_random(table)
    inside, sums = holdout.coverage(computing, beside), holdout.sums(computing, beside)
    sums = sums.assign(inside=(sums.measured_ms >= sums.low_ms) & (sums.measured_ms <= sums.high_ms))
    lines += [
        "### Intervals", "",
        "Share of operators inside their 90 % interval, which is drawn from the held-out rows of the other GPUs:", "",
        "| GPU | kind | n | inside |", "|---|---|--:|--:|",
        *(f"| {row.device} | {row.kind} | {row.n} | {row.inside:.1%} |" for row in inside.itertuples()),
        f"| all | all | {inside.n.sum()} | {np.average(inside.inside, weights=inside.n):.1%} |", "",
        "The time of a step is the sum of its layers. Share of the sums of all operators of one kind at one batch size",
        "(or width of a product) on a GPU that are inside their 90 % interval, drawn likewise:", "",
        "| kind | sums | inside |", "|---|--:|--:|",
        *(f"| {kind} | {len(part)} | {part.inside.mean():.0%} |" for kind, part in sums.groupby("kind")),
        f"| all | {len(sums)} | {sums.inside.mean():.0%} |", "",
    ]  # fmt: skip
    lines += write_width_table(computing[computing.kind == "product"])
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


OPERATOR_CURVE = ("source", "device", "release", "kind", "problem")  # columns that name a curve


def write_anomaly_report(sweeps: pd.DataFrame) -> list[str]:
    """Scores of the anomalies that no fixed cost can make, each kind apart; `sweeps` comes from `compare_sweeps`."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    table = table[(table.held_out == "gpu") | table.held_out.str.startswith(BY_ALGORITHM)]
    table = table[table.kind != "streaming"]
    before = shapes(_as_published(table[table.held_out.str.endswith(FASTEST)]), OPERATOR_CURVE)
    operators = shapes(_as_published(table[~table.held_out.str.endswith(FASTEST)]), OPERATOR_CURVE)
    networks = shapes(sweeps, CURVE)
    lines = [
        "## Anomalies", "",
        "What no fixed cost can make, each kind apart, where twice the batch was published: *concave-down* is a",
        "curvature of time per sample over log2 of the batch below -5 % of the time per sample; *positive excess* is",
        "T(2b) - 2 T(b) over 5 % of T(2b); a *jump* is T(2b) over 2.5 T(b). The model has an anomaly if its own curve",
        "passes the same limit. *Found* are those that both have, *false* those that only the model has. Operators are",
        "predicted from fits to other GPUs; the choices of cudnn_scope's, from other architectures. No network is",
        "fitted, but steps of other cards tell the time of MXNet's engine. K80, M60 and P100 are left out of the fit",
        "altogether; K40m and V100 are not, because no other card gives the level of their architecture.",
        "",
        "| curves | anomaly | published | found | without | false |", "|---|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for title, found, by in (
        ("operators", operators, ("source", "device")), ("operators", operators, ("source",)),
        ("fastest algorithm assumed:", before, ("source",)),
        ("operators", operators, ()), ("networks", networks, ("gpu",)), ("networks", networks, ("mode",)),
        ("networks", networks, ()),
    ):  # fmt: skip
        for row in score(found, by).itertuples():
            if row.anomaly.startswith("jump") and title == "networks":
                continue
            name = " ".join([title, *(str(getattr(row, column)) for column in by)]) if by else f"all {title}"
            lines.append(
                f"| {name} | {row.anomaly} | {row.published} | {row.found}{share(row.found, row.published)} | "
                f"{row.quiet} | {row.false}{share(row.false, row.quiet)} |"
            )
    return [*lines, ""]


def _as_published(residuals: pd.DataFrame) -> pd.DataFrame:
    """Residuals with the names of the columns of sweeps."""
    return residuals.rename(columns={"measured_ms": "published_ms", "predicted_ms": "modelled_ms"})


def write_network_report(title: str, about: str, rows: pd.DataFrame, figure: str) -> list[str]:
    """Tables and the figure of whole networks, as `compare_sweeps` gives them."""
    ratio = rows.modelled_ms / rows.published_ms
    lines = [f"## {title}", "", about, ""]
    lines += ["| GPU | framework | network | mode | batch: modelled / published |", "|---|---|---|---|---|"]
    keys = ["gpu", "framework", "network", "mode"]
    for key, sweep in rows.assign(ratio=ratio).groupby(keys):
        cells = ", ".join(f"{row.batch}: {row.ratio:.2f}" for row in sweep.itertuples())
        lines.append(f"| {' | '.join(key)} | {cells} |")
    lines += [
        "", "*Inside*: the 90 % interval of the modelled step contains the published time.", "",
        "| GPU | mode | n | median error | mean error | bias | inside |", "|---|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    inside = (rows.published_ms >= rows.low_ms) & (rows.published_ms <= rows.high_ms)
    judged = rows.assign(ratio=ratio - 1, inside=inside)
    for gpu, part_of in [*judged.groupby("gpu"), ("all", judged)]:
        for mode, part in part_of.groupby("mode"):
            lines.append(
                f"| {gpu} | {mode} | {len(part)} | {part.ratio.abs().median():.1%} | {part.ratio.abs().mean():.1%} | "
                f"{part.ratio.median():+.1%} | {part.inside.mean():.0%} |"
            )
    shapes = judge_shapes(rows)
    lines += ["", "Signs, where the published effect is more than 5 % of the step:", ""]
    lines += ["| functional | mode | n | sign right |", "|---|---|--:|--:|"]
    for (functional, mode), part in shapes.groupby(["functional", "mode"]):
        lines.append(f"| {functional} | {mode} | {len(part)} | {part.agree.mean():.1%} |")
    lines += [
        "", "Share of the published differences inside the 90 % interval of the modelled one, which is drawn with the",
        "errors that the steps of a curve share:", "", "| functional | mode | n | inside |", "|---|---|--:|--:|",
    ]  # fmt: skip
    for functional in ("excess", "curvature"):
        for mode, part in [*judged.groupby("mode"), ("all", judged)]:
            differences = part[f"{functional}_inside"].dropna()
            if len(differences):
                lines.append(f"| {functional} | {mode} | {len(differences)} | {differences.mean():.0%} |")
    positive = shapes[(shapes.functional == "excess") & (shapes.published > 0)]
    lines += [
        "", "Most published excesses are negative, because samples share a fixed cost. Of the "
        f"{len(positive)} positive ones, the anomalies, the sign is right in {positive.agree.mean():.0%}:", "",
        "| GPU | framework | network | mode | from batch | published | modelled |", "|---|---|---|---|--:|--:|--:|",
        *(f"| {r.gpu} | {r.framework} | {r.network} | {r.mode} | {r.at} | {r.published:+.1%} | {r.modelled:+.1%} |"
          for r in positive.itertuples()), "",
        f"![{title}](figures/{figure}.svg)", "",
    ]  # fmt: skip
    series = [Series(str(gpu), list(part.published_ms), list(part.modelled_ms)) for gpu, part in rows.groupby("gpu")]
    write_scatter(DOCS / f"figures/{figure}.svg", title, "published ms", "modelled ms", series)
    return lines


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-fit", action="store_true", help="keep the constants and the residuals")
    parser.add_argument("--jobs", type=int, default=1, help="fits that run at once (default %(default)s)")
    args = parser.parse_args()
    if args.no_fit:
        rejudge_choices()
        stored = json.loads(FITTED.read_text())
        write_constants(stored["values"], stored["tensor"])
    else:
        refit(args.jobs)
    lines = [
        beginning("Validation of the cost model", *three_figures())
        + "Written by `python benchmarks/cost_model.py`; see [cost-model.md](cost-model.md).",
        "",
    ]
    left_out = read_left_out_of_networks()
    published = [read(PUBLISHED) for read in (read_sweeps, read_later_sweeps)]
    engine = measure_engine(pd.concat(published), left_out)
    others_s = dict(zip(engine.device, engine.others_s, strict=True))
    sweeps, later = (compare_sweeps(one, left_out, others_s) for one in published)
    lines += write_anomaly_report(pd.concat([sweeps, later]))
    residuals = pd.read_csv(RESIDUALS, keep_default_na=False)
    operators = residuals[(residuals.held_out == "gpu") & (residuals.kind != "streaming")]
    lines += write_remaining_report(operators, pd.concat([sweeps, later]))
    lines += write_transfer_report(PUBLISHED)
    lines += write_choice_report(residuals, learn_choices(PUBLISHED))
    lines += write_operator_report()
    lines += write_pool_report(PUBLISHED)
    lines += write_group_report(PUBLISHED)
    lines += write_tensor_report(residuals[residuals.held_out == "fp16"], PUBLISHED)
    lines += write_engine_report(engine)
    lines += write_network_report(
        "Whole networks",
        "Published sweeps: modelled time over published time. Nothing was fitted to them but the time of MXNet's\n"
        "engine, which comes from other cards than the one in the row.",
        sweeps,
        "cost_model_networks",
    )
    lines += write_network_report(
        "Two more cards",
        "The published times of MXNet on M60 and V100 were added when the model was finished. The model has changed\n"
        "twice since: V100's training steps were predicted a quarter too fast, so the sources of MXNet were read\n"
        "again for what a training step waits for, and then for what training steps missed on every card; see\n"
        "[what was changed since](cost-model.md#how-far-to-trust-it).",
        later,
        "cost_model_later_networks",
    )
    lines += write_publication_report(PUBLISHED)
    (DOCS / "cost-model-validation.md").write_text("\n".join([*lines, MISSED]))


if __name__ == "__main__":
    main()
