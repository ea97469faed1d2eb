"""Grouped and depthwise convolutions of cudnn_scope, predicted with nothing fitted to the card itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.constants import load_fitted
from curvescope.analysis.cost_model.convolution import (
    DEPTHWISE,
    DEPTHWISE_SLOWDOWN,
    GROUPED_ON,
    estimate_algorithms,
)
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.analysis.diagnosis.modelled import draw_errors
from curvescope.profiling.hardware.devices import get_device

from .published import CUDNN_SCOPE_CARDS, convolutions

_PROBLEM = ["card", "n", "c", "h", "w", "k", "r", "s", "pad_h", "pad_w", "stride_h", "stride_w", "group"]
_IMPLICIT = ("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM")


def predict_groups(folder: Path) -> pd.DataFrame:
    """Predict the fastest of cuDNN 7.6's algorithms for each convolution with groups; no constant is fitted to them.

    Args:
        folder: of the published files.

    Returns:
        Columns device, known (whether the model takes such convolutions on that card), depthwise, measured_ms, bytes_ms
        (of the bytes alone; NaN for grouped ones) and predicted_ms (with the slowdown of the depthwise kernel on the
        other known cards).
    """
    table = pd.read_csv(folder / "cudnn_conv_by_algorithm.csv.gz", dtype={"cudnn": str}).rename(columns={"batch": "n"})
    table = table[(table.group > 1) & table.card.isin(CUDNN_SCOPE_CARDS) & (table.algo != "DIRECT")]
    frames = []
    for card, rows in table.sort_values("time_ms", kind="stable").drop_duplicates(_PROBLEM).groupby("card"):
        device = get_device(CUDNN_SCOPE_CARDS[str(card)])
        problems = replace(convolutions(rows, rows.pad_h, rows.pad_w), groups=rows.group)
        estimates = estimate_algorithms("forward", problems, machine_for(device))
        alone = estimates[DEPTHWISE].time_s / DEPTHWISE_SLOWDOWN
        implicit = np.min([estimates[name].time_s for name in _IMPLICIT], axis=0)
        frames.append(
            pd.DataFrame(
                {
                    "device": device.key,
                    "known": device.architecture in GROUPED_ON,
                    "depthwise": problems.depthwise,
                    "measured_ms": rows.time_ms.to_numpy(),
                    "bytes_ms": np.where(problems.depthwise, 1e3 * alone, np.nan),
                    "predicted_ms": 1e3 * implicit,
                }
            )
        )
    found = pd.concat(frames, ignore_index=True)
    slowdown = (found.measured_ms / found.bytes_ms)[found.known & found.depthwise].groupby(found.device).median()
    for device, rows in found[found.depthwise].groupby("device"):
        found.loc[rows.index, "predicted_ms"] = rows.bytes_ms * slowdown.drop(device, errors="ignore").mean()
    return found


def write_group_report(folder: Path) -> list[str]:
    """The section on grouped and depthwise convolutions.

    Args:
        folder: of the published files.
    """
    rows = predict_groups(folder)
    rows = rows.assign(error=rows.predicted_ms / rows.measured_ms - 1, alone=rows.bytes_ms / rows.measured_ms - 1)
    factors = draw_errors(["forward"], [f"forward_{DEPTHWISE}"], ["one"], 1, load_fitted().spreads)
    low, high = np.quantile(factors, (0.05, 0.95))
    rows = rows.assign(inside=(rows.measured_ms / rows.predicted_ms).between(low, high))
    lines = [
        "### Grouped and depthwise convolutions, each card left out", "",
        "Forward, the fastest of cuDNN 7.6's algorithms. Depthwise: 3×3 kernels of MobileNet v2, from their bytes at",
        "STREAM's rate and the slowdown of this kernel on the others from Volta on (V100 and Titan V are one chip);",
        "*by bytes* takes no slowdown. Grouped: two 1×1 kernels in four groups, batch 128, from the constants of plain",
        "convolutions. Gradients are not published. *Inside*: the time is in the 90 % interval of a plain forward",
        "convolution, which these have, too. The rows of K80 and M60 show why the model refuses them there.",
        "",
        "| GPU | kind | n | modelled | median | mean | bias | inside | by bytes: median | bias |",
        "|---|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for depthwise, kind in ((True, "depthwise"), (False, "grouped")):
        part_of = rows[rows.depthwise == depthwise]
        for device, part in [*part_of.groupby("device"), ("all modelled", part_of[part_of.known])]:
            error = part.error.abs()
            alone = f"{part.alone.abs().median():.1%} | {part.alone.median():+.1%}" if depthwise else " | "
            lines.append(
                f"| {device} | {kind} | {len(part)} | {'yes' if part.known.all() else 'no'} | {error.median():.1%} | "
                f"{error.mean():.1%} | {part.error.median():+.1%} | {part.inside.mean():.0%} | {alone} |"
            )
    return [*lines, ""]
