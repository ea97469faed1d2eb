"""The terms of T(b): exclusive time of kernels by layer and phase, idle, and the observer effect, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from .curve import Curve, Point, coefficients
from .functionals import Functional
from .statistics import REPLICATES, Estimate, estimate, time_estimate

Floats = npt.NDArray[np.float64]

IDLE = "idle"
OBSERVER = "observer effect"
# What to do about a recording without any work of the device.
RECORD_DEVICE = (
    "Where the device did work, record again with its activity, as with `nsys profile --trace=cuda,nvtx`; under WSL 2 "
    "it may not be seen."
)
_SEED = 2
_TERM_COLUMNS = ("layer", "phase", "batch", "name")


@dataclass(frozen=True)
class Part:
    """One term's share of a functional.

    Attributes:
        layer: module path; null for what belongs to no layer.
        phase: forward, backward or optimizer; null where there is none.
        kind: kernels, idle or observer effect.
        value: the share with its interval, in the functional's unit.
    """

    layer: str | None
    phase: str | None
    kind: str
    value: Estimate


@dataclass(frozen=True)
class Terms:
    """The terms of every batch size, estimated from the profiled steps.

    Per batch size the estimate is the mean over the half of the profiled steps whose wall times lie nearest their
    median (all of them up to two): a mean of whole steps, so that terms keep adding up.

    Attributes:
        keys: (layer, phase, kind) of every term.
        batches: batch sizes with a profiled step, increasing.
        values_ms: shape (batches, terms).
        replicates_ms: bootstrap replicates, shape (replicates, batches, terms).
        profiled: profiled steps of each batch size, and how many of them the estimate uses.
    """

    keys: tuple[tuple[str | None, str | None, str], ...]
    batches: tuple[int, ...]
    values_ms: Floats
    replicates_ms: Floats
    profiled: dict[int, tuple[int, int]]

    def decompose(self, functional: Functional, curve: Curve) -> list[Part]:
        """Split the functional of the curve; the values of the parts add up to it.

        Args:
            functional: over batch sizes that all have profiled steps.
            curve: of the same recording.

        Returns:
            One part per term, then the observer effect, where the curve is of steps that no profiler watched.
        """
        weights = coefficients(functional, self.batches)
        values = weights @ self.values_ms
        replicates = np.einsum("b,rbt->rt", weights, self.replicates_ms)
        rounds = min(used for batch, (used, _) in self.profiled.items() if dict(functional.coefficients).get(batch))
        scale = float(np.abs(weights[:, None] * self.values_ms).max())
        parts = [
            Part(layer, phase, kind, estimate(float(values[i]), replicates[:, i], rounds, scale))
            for i, (layer, phase, kind) in enumerate(self.keys)
        ]
        if curve.watched:
            return parts
        timed = coefficients(functional, curve.batches)
        whole = float(timed @ [p.time_ms.value for p in curve.points])
        observer = curve.replicates_ms @ timed - replicates.sum(axis=1)
        parts.append(Part(None, None, OBSERVER, estimate(whole - float(values.sum()), observer, rounds, scale)))
        return parts

    def curve(self, steps: pd.DataFrame) -> Curve:
        """T(b) of the profiled steps themselves, where no step ran unwatched: the sum of the terms, to the last digit.

        Args:
            steps: the `steps` table.
        """
        sums, replicates = self.values_ms.sum(axis=1), self.replicates_ms.sum(axis=2)
        points = []
        for place, batch in enumerate(self.batches):
            count, used = self.profiled[batch]
            low, high = np.percentile(steps.loc[steps["batch"] == batch, "duration_ns"].astype(float) / 1e6, [25, 75])
            time = time_estimate(float(sums[place]), replicates[:, place], used)
            points.append(Point(batch, time, float((high - low) / sums[place]), count, count))
        rounds = min(used for _, used in self.profiled.values())
        return Curve(tuple(points), replicates, rounds, "mean of the central half", watched=True)


def estimate_terms(parts: pd.DataFrame) -> Terms:
    """Terms by layer and phase.

    Args:
        parts: of `kernel_times.step_parts`, or with a column `kind` that says more than kernels and idle.
    """
    kind = parts["kind"] if "kind" in parts else np.where(parts["name"] == IDLE, IDLE, "kernels")
    grouped = parts[["batch", "step", "layer", "phase", "exclusive_ms"]].assign(kind=kind)
    grouped = grouped.groupby(["batch", "step", "layer", "phase", "kind"], dropna=False, sort=False)
    table = grouped["exclusive_ms"].sum().unstack(["layer", "phase", "kind"]).fillna(0.0).sort_index(axis=1)
    keys = tuple(
        (None if pd.isna(layer) else str(layer), None if pd.isna(phase) else str(phase), str(kind))
        for layer, phase, kind in table.columns
    )
    batches = sorted(int(b) for b in table.index.unique("batch"))
    return terms_of(keys, {batch: table.xs(batch, level="batch").to_numpy(np.float64) for batch in batches})


def terms_of(keys: Sequence[tuple[str | None, str | None, str]], times_ms: Mapping[int, Floats]) -> Terms:
    """Terms from their times.

    Args:
        keys: (layer, phase, kind) of every term.
        times_ms: by batch size, increasing: time of every term in every profiled step, shape (steps, terms).
    """
    batches = tuple(times_ms)
    generator = np.random.default_rng(_SEED)
    values, replicates, profiled = [], [], {}
    for batch, steps_ms in times_ms.items():
        everything = np.arange(len(steps_ms))[None, :]
        drawn = generator.integers(0, len(steps_ms), size=(REPLICATES, len(steps_ms)))
        weights = _central_weights(steps_ms.sum(axis=1), everything)
        values.append((weights @ steps_ms)[0])
        replicates.append(_central_weights(steps_ms.sum(axis=1), drawn) @ steps_ms)
        profiled[batch] = (len(steps_ms), int((weights > 0).sum()))
    return Terms(tuple(keys), batches, np.array(values), np.stack(replicates, axis=1), profiled)


def central_steps(parts: pd.DataFrame) -> list[int]:
    """The profiled steps that an estimate of one batch size uses."""
    walls = parts.groupby("step")["exclusive_ms"].sum()
    return [int(walls.index[place]) for place in central_of(walls.to_numpy(np.float64))]


def central_of(walls_ms: Floats) -> npt.NDArray[np.int64]:
    """Positions of the steps that an estimate uses, of profiled steps with these wall times."""
    return np.flatnonzero(_central_weights(walls_ms, np.arange(len(walls_ms))[None, :])[0] > 0)


def _central_weights(walls: Floats, drawn: npt.NDArray[np.int64]) -> Floats:
    """Weights over steps that average the half of each draw nearest its median; shape (draws, steps)."""
    times = walls[drawn]
    distance = np.abs(times - np.median(times, axis=1, keepdims=True))
    count = drawn.shape[1] if drawn.shape[1] <= 2 else (drawn.shape[1] + 1) // 2
    nearest = np.take_along_axis(drawn, np.argsort(distance, axis=1, kind="stable")[:, :count], axis=1)
    weights = np.zeros((len(drawn), len(walls)))
    np.add.at(weights, (np.arange(len(drawn))[:, None], nearest), 1.0 / count)
    return weights


def main_kernels(parts: pd.DataFrame, batches: Sequence[int]) -> dict[tuple[str | None, str | None], list[str | None]]:
    """The kernel with the most time in every layer and phase, at each of the batch sizes.

    Returns:
        By (layer, phase): a name per batch size, null where the term has no kernel there.
    """
    kernels = parts.loc[parts["batch"].isin(batches) & (parts["name"] != IDLE), [*_TERM_COLUMNS, "exclusive_ms"]]
    total = kernels.groupby(["layer", "phase", "batch", "name"], dropna=False)["exclusive_ms"].sum().reset_index()
    largest = total.sort_values("exclusive_ms").drop_duplicates(["layer", "phase", "batch"], keep="last")
    names: dict[tuple[str | None, str | None], list[str | None]] = {}
    for row in largest.itertuples():
        key = (None if pd.isna(row.layer) else row.layer, None if pd.isna(row.phase) else row.phase)
        names.setdefault(key, [None] * len(batches))[list(batches).index(int(row.batch))] = row.name
    return names
