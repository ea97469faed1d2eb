"""Sections of the validation page on learned choices and on tensor cores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.frameworks import FRAMEWORKS
from curvescope.analysis.cost_model.learned import ASKED, TIMED, LearnedChoice
from curvescope.analysis.cost_model.networks import estimate_step, load_operations
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.profiling.hardware.devices import get_device

from .holdout import summarize
from .published import read_choices
from .trees import as_markdown, learn_choice

ASKED_ROWS, TIMED_ROWS = "cudnn_scope, asked", "cudnn_scope, timed"
FASTEST = ", fastest"  # of the same rows, if the fastest modelled algorithm is assumed
_LIBRARY = "cudnn7.6"
_NETWORKS = {"inception3": "inception_v3", **{name: name for name in ("alexnet", "resnet50", "resnet152", "vgg16")}}
_V100 = "Platinum-Tesla_V100-SXM3-32GB_HP16_TF2_2"


def learn_choices(folder: Path, without: str = "") -> dict[str, LearnedChoice]:
    """Learn what cuDNN 7.6 advises and what is the fastest, from cudnn_scope's cards.

    Args:
        folder: of the published files.
        without: architecture to leave out.
    """
    groups = [group for group in read_choices(folder) if group.architecture != without]
    return {
        f"{_LIBRARY} {name}": learn_choice([group for group in groups if group.source == source])
        for name, source in ((ASKED, ASKED_ROWS), (TIMED, TIMED_ROWS))
    }


def write_choice_report(residuals: pd.DataFrame, learned: Mapping[str, LearnedChoice]) -> list[str]:
    """How often the learned choice is the published one, and the trees.

    Args:
        residuals: rows of `compare`, each with and without learned choices.
        learned: the choices learned from all cards.
    """
    lines = [
        "## Choices of cuDNN 7.6", "",
        "Which algorithm is taken, as a tree of at most four questions, learned from the cards of other architectures:",
        "share of rows with the published algorithm, and error of their times after each card's median, in logarithms,",
        "is taken out (its clock is not published). *Fastest* takes the fastest modelled algorithm instead.", "",
        "| rows | GPU | n | fastest: agree | error | learned: agree | error |", "|---|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for source in (ASKED_ROWS, TIMED_ROWS):
        for device, rows in residuals[residuals.source == source].groupby("device"):
            cells = []
            for held_out in (source + FASTEST, source):
                part = rows[rows.held_out == held_out]
                error = np.log(part.predicted_ms / part.measured_ms)
                agree = (part.algorithm == part.published).mean()
                cells.append(f"{agree:.0%} | {(error - error.median()).abs().mean():.1%}")
            lines.append(f"| {source} | {device} | {len(rows) // 2} | {' | '.join(cells)} |")
    lines += [
        "", "Kepler's row is the same twice: trees of newer cards say nothing about it. The trees of all cards, where",
        "*fill* is the number of blocks of 128 pixels and 64 output channels per SM, *kernel* the kernel's height,",
        "*generation* 0 Kepler, 1 Maxwell, 3 Volta, 4 Turing:", "",
    ]  # fmt: skip
    for name, choice in learned.items():
        lines += [f"{name}:", "", *as_markdown(choice.tree), ""]
    return lines


def write_tensor_report(folds: pd.DataFrame, folder: Path) -> list[str]:
    """Errors of tensor cores: shapes left out, and whole networks, none of which is fitted.

    Args:
        folds: rows of `compare_tensor_folds`.
        folder: of the published files.
    """
    lines = [
        "## Tensor cores", "",
        "DeepBench in fp16 on V100, a fifth of the shapes left out at a time. It is the only card with tensor cores",
        "whose times in fp16 are at hand, so errors on other cards are unknown: Turing to Blackwell are predicted with",
        "V100's constants and their own peaks. No time in bf16 is at hand.", "",
        "| kind | n | median | mean | 90th percentile | bias |", "|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for row in summarize(folds, ["kind"]).itertuples():
        lines.append(
            f"| {row.kind} | {row.n} | {row.median_error:.1%} | {row.mean_error:.1%} | {row.p90_error:.1%} | "
            f"{row.bias:+.1%} |"
        )
    steps = _network_steps(folder)
    ratio = steps.modelled_ms / steps.published_ms
    lines += [
        "", "Whole networks on V100 under TensorFlow 2.2 (lambda-tensorflow-benchmark), one batch size each. None is",
        "fitted; V100's operators are, in both precisions:", "",
        "| network | mode | precision | batch | published ms | modelled / published |", "|---|---|---|--:|--:|--:|",
        *(f"| {s.network} | {s.mode} | {s.precision} | {s.batch} | {s.published_ms:.1f} | {one:.2f} |"
          for s, one in zip(steps.itertuples(), ratio, strict=True)), "",
    ]  # fmt: skip
    for precision, part in (ratio - 1).abs().groupby(steps.precision):
        lines.append(f"- {precision}: median error {part.median():.1%}, mean {part.mean():.1%} over {len(part)}.")
    return [*lines, ""]


def _network_steps(folder: Path) -> pd.DataFrame:
    table = pd.read_csv(folder / "networks.csv")
    rows = table[(table.gpu == _V100) & table.network.isin(list(_NETWORKS))]
    machine, library = machine_for(get_device("v100_32gb")), get_library(_LIBRARY)
    found = []
    for row in rows.itertuples():
        step = estimate_step(
            load_operations(_NETWORKS[row.network]), [row.batch], machine, library, row.step,
            framework=FRAMEWORKS["tensorflow"], precision=row.precision,
        )  # fmt: skip
        found.append((row.network, row.step, row.precision, row.batch, row.time_ms, 1e3 * step.time_s[0]))
    return pd.DataFrame(found, columns=["network", "mode", "precision", "batch", "published_ms", "modelled_ms"])


def write_width_table(products: pd.DataFrame) -> list[str]:
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
        summary = summarize(part, ["width"]).set_index("width")
        cells = [
            f"{summary.mean_error[w]:.0%} ({summary.bias[w]:+.0%}, n = {summary.n[w]})" for w in least.cat.categories
        ]
        lines.append(f"| {device} | {library} | {' | '.join(cells)} |")
    return [*lines, ""]
