"""Fit the cost model to the published measurements, hold it against what was left out, write tables and figures.

`python benchmarks/cost_model.py` (about ten minutes on one core) rewrites analysis/cost_model/constants.json,
benchmarks/cost_model_residuals.csv.gz, docs/cost-model-validation.md and docs/figures/cost_model_*.svg.
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
from fitting.anomalies import score, shapes
from fitting.fit import fit_constants
from fitting.published import (
    BY_ALGORITHM,
    Measured,
    read_by_algorithm,
    read_caffe_streams,
    read_choices,
    read_deepbench,
    read_k40,
    read_neusight,
    read_streams,
)
from network_sweeps import CURVE, compare_sweeps, judge_shapes, read_later_sweeps, read_sweeps
from scatter import Series, write_scatter

from curvescope.analysis.cost_model.constants import FITTED, PARAMETERS, Constants, Offset, load_fitted
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RESIDUALS = HERE / "cost_model_residuals.csv.gz"
LEFT_OUT = HERE / "cost_model_left_out.json"  # constants of the fits that left a GPU out
DOCS = HERE.parent / "docs"
MISSED = """## What is missed, and what would settle it

- **Matrix products, mean error.** Half of the products are within 8 %. The mean error comes from two groups: extents
  of 8 to 64, where old versions of cuBLAS change their kernel from one width to the next, and transposed operands on
  Titan X (Pascal), which take up to four times as long as others. At width 16, Titan X (Pascal) takes 0.16 ms for
  2560 × 2560, and 0.26 ms at width 32; P100 takes 0.11 and 0.08 ms. The cost of a width is common to the shapes of
  one card and differs on the next card, so no card predicts it for another. V100's cuBLAS splits every depth; its
  mean error is 7.5 % if only shapes are left out. The share of the DRAM rate that products reach is fitted by
  architecture: 0.3 on Maxwell and Pascal, 0.9 on Volta. Constants of older cards therefore make V100's narrow
  products twice too slow (mean error 34 %), and constants of Titan X (Pascal) do the same to P100's products of
  width 32. Shares by library were [tried and not kept](cost-model.md#how-far-to-trust-it): with other extents of
  1024 or more, P100's products read at 0.2 of the rate at width 16 and those of older cuBLAS at 0.3; at width 32
  P100's read at 0.5 and older ones still at 0.3; V100's read at 0.6 to 0.7 at both widths. Too few loads in flight
  are not the reason either: the rate of Maxwell stays at 0.3 from 4096 rows up to 8448, which make twice the blocks,
  and is the same at width 16 and 32, while at depth 500,000 M40 reads 1024 rows at 0.9 at width 8 and at 0.35 at
  width 16. The reason is the kernels, each of which serves one to a few widths. Kernel names of cuBLAS 7.5 and 8.0
  at these widths would settle it.
- **Forward convolutions, median error.** It is a tenth of a percent above the goal: P100 is predicted a tenth too
  fast and Titan X (Pascal) a tenth too slow when each is predicted from the other. Their versions of cuDNN and their
  clocks differ.
- **Intervals.** Just enough of the sums of operators are inside their interval when a GPU is left out. Those outside
  are wide products of M40 and Titan X (Pascal), i.e. the transposed ones above, P100's products of width 16 and 32,
  and forward convolutions of Titan X (Pascal). Most of the training steps outside are AlexNet's under MXNet 0.9,
  which are predicted far too slow at small batch sizes: the fully connected layers are products of those widths, and
  the update, which moves 19 times the bytes of the parameters, may run beside the backward pass on the second thread
  of MXNet, while the model runs it afterwards. A timeline of one such step would settle it. Pooling, normalisation
  and concatenation, which Inception has most of, have never been measured alone; they get the interval of streaming
  operators.
- **Anomalies.** The positive excesses of ResNet have the right sign, and about a third of their size: within the 256
  MiB of workspace that MXNet's ResNet gives a convolution, non-fused Winograd no longer fits at batch 256. Those of
  AlexNet and that of VGG from 1 to 2 have the wrong sign. Kernel names at the batch sizes before and after would
  settle them.
- **VGG and AlexNet on K80.** Steps at batch 16 and more are predicted up to two fifths too slow, those at batch 8
  are not: some algorithm is faster there than in the rows of K40, which contain few such shapes. Convolutions of 128
  channels and more on any Kepler card at batch 8 and 16, timed by algorithm, would settle it.
- **Training under MXNet 1.2.** A share of the step is missing that depends neither on the batch size nor on the
  card: ResNet-50 takes about 10 ms longer than modelled on K80, M60 and V100 alike, Inception-v3 16 to 23 ms, i.e.
  about 60 µs for each parameter tensor. On V100, the fastest card, it matters most. The published operator times
  begin when a thread of MXNet's engine runs an operator and end when the operator is done; they exclude the engine's
  own time between two operators. A chain of small operators timed without segments on MXNet 1.2, or a timeline of
  one step, would settle it. Apart from that, V100's steps are predicted a tenth too fast, like its forward passes.
- **Training of AlexNet** slows down beyond batch 256 on every card in that section, by 0.37 ms per image on K80,
  0.17 on M60 and 0.05 on V100. These times are in proportion to the peaks of the cards and not to their buses, so an
  algorithm changes. In the model, FFT serves all three passes of the second convolution up to batch 512, with 850 of
  the 1024 MiB that MXNet gives, and none at batch 1024. If one of the backward passes did not use FFT at batch 512
  any more, V100 would lose 26 to 28 ms there and K80 180 to 190 ms; the published losses are 27 and 190 ms. No
  workspace of cuDNN's FFT is published. Kernel names at 256 and 512 would settle it.
- **Curvature of forward passes.** Most wrong signs are those of K80 at batch 8, as above.
"""
LONG_MS = 1.0  # NeuSight times hold launch gaps of some 0.3 ms: only rows longer than this are judged


def measurements() -> tuple[list[Measured], Measured]:
    """What is fitted, and the K40's other half."""
    k40 = read_k40(PUBLISHED)
    even = np.arange(len(k40.time_s)) % 2 == 0
    by_algorithm = read_by_algorithm(PUBLISHED)
    return [*read_deepbench(PUBLISHED), *read_streams(PUBLISHED), *by_algorithm, k40.take(even)], k40.take(~even)


def _fit_without(by: str, left_out: str) -> dict[str, Constants]:
    """The constants of a fit without one GPU, one architecture or one fold of the problems; "nothing": of all."""
    measured = measurements()[0]
    if by == "fold":
        measured = [group.take(~holdout.in_fold(group, int(left_out))) for group in measured]
    elif by != "nothing":
        measured = [group for group in measured if getattr(group, by) != left_out]
    return fit_constants(measured, most_steps=10 if by == "nothing" else 6)


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
        # Kepler and Turing have no products nor gradients of their own.
        *(("architecture", name) for name in ("maxwell", "pascal", "volta")),
        *(("fold", str(fold)) for fold in range(holdout.FOLDS)),
    ]
    without: dict[str, dict[str, dict[str, Constants]]] = {by: {} for by, _ in left_out}
    with ProcessPoolExecutor(jobs) as pool:
        for (by, name), constants in zip(left_out, pool.map(_fit_without, *zip(*left_out, strict=True)), strict=True):
            without[by][name] = constants
            print(f"fitted without {by} {name}", flush=True)
    constants = without["nothing"][""]
    judged = [group for group in fitted_to if group.source not in (BY_ALGORITHM, "k40")]
    gpus = holdout.compare_left_out(judged, "device", without["device"])
    frames = [
        gpus[gpus.known].assign(held_out="gpu"),
        holdout.compare_left_out(judged, "architecture", without["architecture"]).assign(held_out="architecture"),
        holdout.compare_folds(judged, without["fold"]).assign(held_out="problem"),
        holdout.compare(k40_rest, constants["kepler"]).assign(held_out="k40 odd rows"),
    ]
    choices = holdout.compare_left_out(read_choices(PUBLISHED), "device", without["device"])
    frames.append(choices.assign(held_out=choices.source))
    for group in read_neusight(PUBLISHED):
        rows = holdout.compare(group, constants[group.architecture])
        frames.append(rows.assign(held_out="neusight"))
    caffe = read_caffe_streams(PUBLISHED)
    frames.append(holdout.compare(caffe, constants[caffe.architecture]).assign(held_out="caffe streams"))
    _write_residuals(pd.concat(frames, ignore_index=True).drop(columns="known"))
    write_constants({a: _rounded(c.values) for a, c in constants.items()})
    documents = {
        device: {a: _rounded(c.values) for a, c in fitted.items()} for device, fitted in without["device"].items()
    }
    LEFT_OUT.write_text(json.dumps(documents, indent=1) + "\n")


def rejudge_choices() -> None:
    """Predict cudnn_scope's cards anew: those that a fit left out, or that no fit has seen."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    left_out, fitted = read_left_out(), load_fitted()
    seen = set(table[table.held_out.isin(("gpu", "architecture"))].device)
    choices = [group for group in read_choices(PUBLISHED) if group.device in left_out or group.device not in seen]
    rows = holdout.compare_left_out(choices, "device", {g.device: fitted.constants for g in choices} | left_out)
    table = pd.concat([table[~table.held_out.isin(_CHOICES)], rows.assign(held_out=rows.source)])
    _write_residuals(table.drop(columns="known"))


def _write_residuals(table: pd.DataFrame) -> None:
    table = table.round({"measured_ms": 5, "predicted_ms": 5})
    with RESIDUALS.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(table.to_csv(index=False).encode())


def read_left_out() -> dict[str, dict[str, Constants]]:
    """Constants by architecture of the fits that left a GPU out, by its key; none before the first complete run."""
    documents = json.loads(LEFT_OUT.read_text()) if LEFT_OUT.exists() else {}
    return {device: {a: Constants(values) for a, values in fitted.items()} for device, fitted in documents.items()}


def write_constants(values: dict[str, dict[str, float]]) -> None:
    """Write the constants and, from the residuals, how far they are off."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    known = table[table.held_out.isin(("gpu", "caffe streams"))]
    unseen, other = (table[table.held_out == held_out] for held_out in ("architecture", "neusight"))
    unseen = unseen.assign(architecture=[get_device(device).architecture for device in unseen.device])
    other = other[other.measured_ms >= LONG_MS]
    measured: dict[str, dict[str, list[str]]] = {}
    for group in measurements()[0]:
        libraries = measured.setdefault(group.architecture, {}).setdefault(group.kind, [])
        libraries.extend([group.library] if group.library not in libraries else [])
    document = {
        "about": "Written by benchmarks/cost_model.py; meanings and ranges in constants.py.",
        "values": values,
        "spreads": {kind: _rounded(asdict(spread)) for kind, spread in holdout.spreads(known).items()},
        "unseen": {
            str(kind): _rounded(asdict(_offset(rows, "architecture"))) for kind, rows in unseen.groupby("error_kind")
        },
        "measured": {architecture: dict(sorted(kinds.items())) for architecture, kinds in sorted(measured.items())},
        "other_library": _rounded(asdict(_offset(other, "device"))),
    }
    FITTED.write_text(json.dumps(document, indent=1) + "\n")
    load_fitted.cache_clear()


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
    inside = holdout.coverage(known[known.kind != "streaming"])
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
    inside, sums = holdout.coverage(computing), holdout.sums(computing)
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
    lines += _width_table(computing[computing.kind == "product"])
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


def _width_table(products: pd.DataFrame) -> list[str]:
    """Errors of matrix products left out by their least extent, per library."""
    extents = products.problem.str.extract(r"(\d+)x(\d+)").astype(int).assign(n=products.batch)
    least = pd.cut(extents.min(axis=1), [0, 16, 32, 64, 128, np.inf], labels=["16", "32", "64", "128", "over 128"])
    classes = products.assign(width=least.astype(str))
    lines = [
        "Matrix products on a GPU that was left out, by their smallest extent (m, n or k): mean error and bias:", "",
        "| GPU | library | " + " | ".join(f"to {w}" if w.isdigit() else w for w in least.cat.categories) + " |",
        "|---|---|" + "--:|" * len(least.cat.categories),
    ]  # fmt: skip
    for (device, library), part in classes.groupby(["device", "library"]):
        summary = holdout.summarize(part, ["width"]).set_index("width")
        cells = [
            f"{summary.mean_error[w]:.0%} ({summary.bias[w]:+.0%}, n = {summary.n[w]})" for w in least.cat.categories
        ]
        lines.append(f"| {device} | {library} | {' | '.join(cells)} |")
    return [*lines, ""]


_CHOICES = ("cudnn_scope, asked", "cudnn_scope, timed")
OPERATOR_CURVE = ("source", "device", "kind", "problem")  # columns that name a curve


def write_anomaly_report() -> list[str]:
    """Scores of the anomalies that no fixed cost can make, each kind apart."""
    table = pd.read_csv(RESIDUALS, keep_default_na=False)
    table = table[table.held_out.isin(("gpu", *_CHOICES))]
    operators = shapes(_as_published(table[table.kind != "streaming"]), OPERATOR_CURVE)
    rows = pd.concat(compare_sweeps(sweeps(PUBLISHED), read_left_out()) for sweeps in (read_sweeps, read_later_sweeps))
    networks = shapes(rows, CURVE)
    lines = [
        "## Anomalies", "",
        "What no fixed cost can make, each kind apart, where twice the batch was published: *concave-down* is a",
        "curvature of time per sample over log2 of the batch below -5 % of the time per sample; *positive excess* is",
        "T(2b) - 2 T(b) over 5 % of T(2b); a *jump* is T(2b) over 2.5 T(b). The model has an anomaly if its own curve",
        "passes the same limit. *Found* are those that both have, *false* those that only the model has. Operators are",
        "predicted from fits to other GPUs. No network is fitted; of their GPUs, operators of K40m, P100 and V100 are.",
        "",
        "| curves | anomaly | published | found | without | false |", "|---|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for title, found, by in (
        ("operators", operators, ("source", "device")), ("operators", operators, ("source",)),
        ("operators", operators, ()), ("networks", networks, ("gpu",)), ("networks", networks, ("mode",)),
        ("networks", networks, ()),
    ):  # fmt: skip
        for row in score(found, by).itertuples():
            if row.anomaly.startswith("jump") and title == "networks":
                continue
            name = " ".join([title, *(str(getattr(row, column)) for column in by)]) if by else f"all {title}"
            lines.append(
                f"| {name} | {row.anomaly} | {row.published} | {row.found}{_share(row.found, row.published)} | "
                f"{row.quiet} | {row.false}{_share(row.false, row.quiet)} |"
            )
    return [*lines, ""]


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _as_published(residuals: pd.DataFrame) -> pd.DataFrame:
    """Residuals with the names of the columns of sweeps."""
    return residuals.rename(columns={"measured_ms": "published_ms", "predicted_ms": "modelled_ms"})


def write_network_report(title: str, about: str, sweeps: pd.DataFrame, figure: str) -> list[str]:
    """Tables and the figure of whole networks; nothing of them was fitted."""
    rows = compare_sweeps(sweeps, read_left_out())
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
    write_scatter(DOCS / f"figures/{figure}.svg", f"{title}, none fitted", "published ms", "modelled ms", series)
    return lines


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-fit", action="store_true", help="keep the constants and the residuals")
    parser.add_argument("--jobs", type=int, default=1, help="fits that run at once (default %(default)s)")
    args = parser.parse_args()
    if args.no_fit:
        rejudge_choices()
        write_constants(json.loads(FITTED.read_text())["values"])
    else:
        refit(args.jobs)
    lines = [
        beginning("Validation of the cost model", *three_figures())
        + "Written by `python benchmarks/cost_model.py`; see [cost-model.md](cost-model.md).",
        "",
    ]
    lines += write_anomaly_report()
    lines += write_operator_report()
    lines += write_network_report(
        "Whole networks",
        "Published sweeps, none of which was fitted: modelled time over published time.",
        read_sweeps(PUBLISHED),
        "cost_model_networks",
    )
    lines += write_network_report(
        "Two more cards",
        "The published times of MXNet on M60 and V100 were added when the model was finished. The model has changed\n"
        "once since: V100's training steps were predicted a quarter too fast, so the sources of MXNet were read again\n"
        "for what a training step waits for; see [what was changed since](cost-model.md#how-far-to-trust-it).",
        read_later_sweeps(PUBLISHED),
        "cost_model_later_networks",
    )
    (DOCS / "cost-model-validation.md").write_text("\n".join([*lines, MISSED]))


if __name__ == "__main__":
    main()
