"""Intervals of modelled recordings: a model repeats itself exactly, so what it may be wrong by comes from its errors.

The error of a term is drawn in three parts, as GPUs and shapes left out of the fit show it: one for all operators of a
kind on this GPU, one for this layer and phase at every batch size, one for each batch size alone. The first two nearly
cancel in an excess or a curvature; the last does not.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..anomalies import Diagnosis, diagnose_curve
from ..causes.context import Recorded
from ..curve import MODELLED, Curve, Point
from ..statistics import REPLICATES, estimate
from ..terms import IDLE, Terms, step_parts
from .constants import Spread, load_fitted

# Replicates are draws of the error itself, not of a mean over rounds: as if from very many rounds.
_ROUNDS = 1_000_000
_SEED = 3
# Kernels that only move data have no measurements of their own to be held against: taken for as wrong as products.
_STREAMING_LIKE = "product"


def diagnose_modelled(kernels: pd.DataFrame, recorded: Recorded, axis: str = "log2") -> Diagnosis:
    """Find and explain the anomalies of a modelled recording.

    Args:
        kernels: its `kernels` table.
        recorded: its steps, and what else causes look at.
        axis: of the curvatures shown: log2 or linear.
    """
    parts = step_parts(kernels, recorded.steps)
    terms = _terms(parts)
    totals = terms.values_ms.sum(axis=1)
    replicates = terms.replicates_ms.sum(axis=2)
    points = tuple(
        Point(batch, estimate(total, replicates[:, i], _ROUNDS, total), 0.0, 1, 1)
        for i, (batch, total) in enumerate(zip(terms.batches, totals, strict=True))
    )
    return diagnose_curve(Curve(points, replicates, _ROUNDS, MODELLED), terms, parts, recorded, axis)


def _terms(parts: pd.DataFrame) -> Terms:
    spreads = load_fitted().spreads
    named = parts.assign(
        layer=parts["layer"].astype(object).where(parts["layer"].notna(), None),
        phase=parts["phase"].astype(object).where(parts["phase"].notna(), None),
        group=np.where(parts["name"] == IDLE, IDLE, "kernels"),
        kind=[_kind(name) for name in parts["name"]],
    )
    table = named.pivot_table(
        index="batch", columns=["layer", "phase", "group", "kind"], values="exclusive_ms", aggfunc="sum", dropna=False
    )
    table = table.loc[:, table.notna().any()].fillna(0.0)
    generator = np.random.default_rng(_SEED)
    values = table.to_numpy(np.float64)
    of_gpu = {kind: generator.normal(0, spread.gpu, REPLICATES) for kind, spread in spreads.items()}
    replicates = np.empty((REPLICATES, *values.shape))
    for column, (*_, kind) in enumerate(table.columns):
        replicates[:, :, column] = values[:, column] * _factors(spreads[kind], of_gpu[kind], len(values), generator)
    # A layer's phase is one term, whatever kinds of kernel it is made of.
    keys = [
        (None if pd.isna(layer) else str(layer), None if pd.isna(phase) else str(phase), str(group))
        for layer, phase, group, _ in table.columns
    ]
    merged = tuple(dict.fromkeys(keys))
    places = [merged.index(key) for key in keys]
    summed, drawn = np.zeros((len(values), len(merged))), np.zeros((REPLICATES, len(values), len(merged)))
    for column, place in enumerate(places):
        summed[:, place] += values[:, column]
        drawn[:, :, place] += replicates[:, :, column]
    batches = tuple(int(batch) for batch in table.index)
    return Terms(merged, batches, summed, drawn, dict.fromkeys(batches, (_ROUNDS, _ROUNDS)))


def _factors(
    spread: Spread, of_gpu: np.typing.NDArray[np.float64], batches: int, generator: np.random.Generator
) -> np.typing.NDArray[np.float64]:
    of_problem = generator.normal(0, spread.problem, (REPLICATES, 1))
    of_batch = generator.normal(0, spread.batch, (REPLICATES, batches))
    return np.asarray(np.exp(of_gpu[:, None] + of_problem + of_batch))


def _kind(kernel: str) -> str:
    """Which measurements a kernel's error is judged by."""
    for kind in ("forward", "backward_data", "backward_weights"):
        if kernel.startswith(kind + "_"):
            return kind
    return _STREAMING_LIKE
