"""Intervals of modelled recordings: a model repeats itself exactly, so what it may be wrong by comes from its errors.

The error of a kernel is drawn in three parts, as GPUs and shapes left out of the fit show it: one for the GPU, which
all kernels share in proportion to how much their kind varies; one for each shape at every batch size, which layers of
one shape share; one for each layer, phase and batch size alone. The first two nearly cancel in an excess or a
curvature; the last does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...profiling.devices import get_device
from ..anomalies import Diagnosis, diagnose_curve
from ..causes.context import Recorded
from ..curve import MODELLED, Curve, Point
from ..statistics import REPLICATES, estimate
from ..terms import IDLE, Terms, step_parts
from .constants import load_fitted

# Replicates are draws of the error itself, not of a mean over rounds: as if from very many rounds.
_ROUNDS = 1_000_000
_SEED = 3
# Kernels that only move data have no measurements of their own to be held against: taken for as wrong as products.
_STREAMING_LIKE = "product"


def diagnose_modelled(kernels: pd.DataFrame, recorded: Recorded, device: str, axis: str = "log2") -> Diagnosis:
    """Find and explain the anomalies of a modelled recording.

    Args:
        kernels: its `kernels` table.
        recorded: its steps, and what else causes look at.
        device: key of the GPU it is modelled for.
        axis: of the curvatures shown: log2 or linear.
    """
    parts = step_parts(kernels, recorded.steps)
    terms = _terms(parts, get_device(device).architecture)
    totals = terms.values_ms.sum(axis=1)
    replicates = terms.replicates_ms.sum(axis=2)
    points = tuple(
        Point(batch, estimate(total, replicates[:, i], _ROUNDS, total), 0.0, 1, 1)
        for i, (batch, total) in enumerate(zip(terms.batches, totals, strict=True))
    )
    return diagnose_curve(Curve(points, replicates, _ROUNDS, MODELLED), terms, parts, recorded, axis)


def draw_errors(
    kinds: Sequence[str], shapes: Sequence[str], batches: int, architecture: str
) -> npt.NDArray[np.float64]:
    """Factors between what the model says and what may be true.

    Args:
        kinds: of each kernel: forward, backward_data, backward_weights, product or streaming.
        shapes: of each kernel, a name that kernels with the same error share.
        batches: how many batch sizes.
        architecture: of the GPU.

    Returns:
        Shape (replicates, batches, kernels).
    """
    fitted = load_fitted()
    generator = np.random.default_rng(_SEED)
    of_gpu = generator.normal(size=(REPLICATES, 1))
    of_shape = {shape: generator.normal(size=(REPLICATES, 1)) for shape in dict.fromkeys(shapes)}
    factors = np.empty((REPLICATES, batches, len(kinds)))
    for place, (kind, shape) in enumerate(zip(kinds, shapes, strict=True)):
        spread = fitted.spread(_STREAMING_LIKE if kind == "streaming" else kind, architecture)
        alone = generator.normal(size=(REPLICATES, batches))
        factors[:, :, place] = spread.gpu * of_gpu + spread.problem * of_shape[shape] + spread.batch * alone
    return np.exp(factors)


def _terms(parts: pd.DataFrame, architecture: str) -> Terms:
    kinds = [_kind(name, flops) for name, flops in zip(parts["name"], parts["flops"], strict=True)]
    named = parts.assign(
        layer=parts["layer"].astype(object).where(parts["layer"].notna(), None),
        phase=parts["phase"].astype(object).where(parts["phase"].notna(), None),
        group=np.where(parts["name"] == IDLE, IDLE, "kernels"),
        kind=kinds,
        shape=[
            f"{kind} {name}" if pd.isna(flops) else f"{kind} {flops / batch:.0f}"
            for kind, name, flops, batch in zip(kinds, parts["name"], parts["flops"], parts["batch"], strict=True)
        ],
    )
    keys = ["layer", "phase", "group", "kind", "shape"]
    table = named.pivot_table(index="batch", columns=keys, values="exclusive_ms", aggfunc="sum", dropna=False)
    table = table.loc[:, table.notna().any()].fillna(0.0)
    values = table.to_numpy(np.float64)
    columns = list(table.columns)
    factors = draw_errors([c[3] for c in columns], [c[4] for c in columns], len(values), architecture)
    # A layer's phase is one term, whatever kinds of kernel it is made of.
    labels = [
        (None if pd.isna(layer) else str(layer), None if pd.isna(phase) else str(phase), str(group))
        for layer, phase, group, *_ in columns
    ]
    merged = tuple(dict.fromkeys(labels))
    summed, drawn = np.zeros((len(values), len(merged))), np.zeros((REPLICATES, len(values), len(merged)))
    for column, label in enumerate(labels):
        place = merged.index(label)
        summed[:, place] += values[:, column]
        drawn[:, :, place] += values[:, column] * factors[:, :, column]
    batches = tuple(int(batch) for batch in table.index)
    return Terms(merged, batches, summed, drawn, dict.fromkeys(batches, (_ROUNDS, _ROUNDS)))


def _kind(kernel: str, flops: float | None) -> str:
    """Which measurements a kernel's error is judged by."""
    for kind in ("forward", "backward_data", "backward_weights"):
        if kernel.startswith(kind + "_"):
            return kind
    return "streaming" if pd.isna(flops) else "product"
