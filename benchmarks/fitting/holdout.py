"""Accuracy of the model on data outside the fit: GPUs left out, problems left out, and the resulting intervals."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from curvescope.analysis.cost_model.constants import LEVELS, Constants, Spread, constants_for
from curvescope.analysis.cost_model.learned import LearnedChoice
from curvescope.analysis.cost_model.problems import Flags, Floats, Products, product_kinds
from curvescope.analysis.diagnosis.modelled import draw_errors

from .published import Labels, Measured, predict

_TAILS = (5, 95)  # percentiles: an interval contains nine of ten
FOLDS = 5
_OFTEN = 4  # least rows of a group for separating its error from theirs


def compare_left_out(
    measured: Sequence[Measured],
    by: str,
    without: Mapping[str, Mapping[str, Constants]],
    learned: Mapping[str, Mapping[str, LearnedChoice]] | None = None,
) -> pd.DataFrame:
    """Predict every GPU, or every architecture, from a fit to the others."""
    frames = []
    for group in measured:
        if (constants := without.get(getattr(group, by))) is not None:
            # Kepler's gradients and products were hardly measured, so it stands in for no other architecture.
            alike = {a: c for a, c in constants.items() if group.architecture == "kepler" or a != "kepler"}
            choices = (learned or {}).get(group.architecture)
            rows = compare(group, constants_for(group.architecture, alike), choices)
            known = any(
                (other.architecture, other.kind) == (group.architecture, group.kind) and other.device != group.device
                for other in measured
            )
            frames.append(rows.assign(known=known and group.architecture in constants))
    return pd.concat(frames, ignore_index=True)


def compare_folds(measured: Sequence[Measured], without: Mapping[str, Mapping[str, Constants]]) -> pd.DataFrame:
    """Predict each fifth of the shapes, the same on every GPU, from a fit to the others."""
    frames = []
    for fold, constants in without.items():
        for group in measured:
            rows = in_fold(group, int(fold))
            if rows.any():
                frames.append(compare(group.take(rows), constants[group.architecture]))
    return pd.concat(frames, ignore_index=True)


def in_fold(group: Measured, fold: int) -> Flags:
    """Measurements of a fold; a GPU's bandwidth has no shapes, so it is in none."""
    return np.array(
        [group.kind != "streaming" and zlib.crc32(str(name).encode()) % FOLDS == fold for name in group.names]
    )


def compare(group: Measured, constants: Constants, learned: Mapping[str, LearnedChoice] | None = None) -> pd.DataFrame:
    return as_rows(group, *predict(group, constants, learned=learned))


def as_rows(group: Measured, time_s: Floats, names: Labels) -> pd.DataFrame:
    """Measured and predicted times, `names` of the predicted algorithms; columns that `compare` returns."""
    return pd.DataFrame(
        {
            "source": group.source,
            "device": group.device,
            "library": group.library,
            "release": group.release,
            "kind": group.kind,
            "error_kind": _error_kinds(group),  # which errors it counts among
            "problem": group.names,
            "batch": group.batches.astype(int),
            "algorithm": names,
            "published": group.algorithms,
            "measured_ms": group.time_s * 1e3,
            "predicted_ms": time_s * 1e3,
        }
    )


def _error_kinds(group: Measured) -> Labels:
    problems = group.problems
    if not isinstance(problems, Products):
        return np.full(len(group.time_s), group.kind)
    return product_kinds(problems.flops, problems.touched_bytes)


def summarize(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    ratio = rows.predicted_ms / rows.measured_ms - 1
    grouped = rows.assign(ratio=ratio, error=ratio.abs()).groupby(list(by), sort=True)
    return grouped.agg(
        n=("error", "size"),
        median_error=("error", "median"),
        mean_error=("error", "mean"),
        p90_error=("error", lambda e: e.quantile(0.9)),
        bias=("ratio", "median"),
    ).reset_index()


def _by_device(
    held_out: pd.DataFrame, unlevelled: pd.DataFrame
) -> Iterator[tuple[str, pd.DataFrame, dict[str, Spread]]]:
    """Each GPU with its rows and the variation on other GPUs; other boards of the chip are no other GPUs."""
    rows = pd.concat([held_out, unlevelled])
    for device, of_device in held_out.groupby("device"):
        elsewhere = rows[~rows.device.str.startswith(str(device))]
        yield str(device), of_device, spreads(elsewhere, unlevelled.source.unique())


def coverage(held_out: pd.DataFrame, unlevelled: pd.DataFrame) -> pd.DataFrame:
    """The share of a GPU's measurements inside the intervals that the other GPUs' held-out measurements give."""
    rows = []
    for device, inside, elsewhere in _by_device(held_out, unlevelled):
        for kind, part in inside.groupby("error_kind"):
            rows.append((device, kind, len(part), float(inside_of(part, elsewhere).mean())))
    return pd.DataFrame(rows, columns=["device", "kind", "n", "inside"])


def inside_of(rows: pd.DataFrame, spreads: Mapping[str, Spread]) -> pd.Series:
    """Whether each measurement, a row of `compare`, lies inside its 90 % interval."""
    factor = rows.measured_ms / rows.predicted_ms
    limits = {
        kind: np.percentile(draw_errors([kind], [""], [""], 1, spreads), _TAILS) for kind in rows.error_kind.unique()
    }
    low, high = (rows.error_kind.map({kind: ends[i] for kind, ends in limits.items()}) for i in (0, 1))
    return factor.between(low, high)


def sums(held_out: pd.DataFrame, unlevelled: pd.DataFrame) -> pd.DataFrame:
    """Sum a GPU's operators of a kind and batch size, like a step sums its layers, with the interval of the sum.

    Only sums of at least four operators.
    """
    rows = []
    for device, inside, elsewhere in _by_device(held_out, unlevelled):
        for (kind, batch), part in inside.groupby(["error_kind", "batch"]):
            if len(part) < _OFTEN:
                continue
            shapes = (part.algorithm + part.problem).tolist()
            factors = draw_errors([str(kind)] * len(part), part.algorithm.tolist(), shapes, 1, elsewhere)
            low, high = np.percentile(factors[:, 0] @ part.predicted_ms.to_numpy(), _TAILS)
            rows.append((device, kind, batch, len(part), part.measured_ms.sum(), low, high))
    return pd.DataFrame(rows, columns=["device", "kind", "batch", "n", "measured_ms", "low_ms", "high_ms"])


def spreads(held_out: pd.DataFrame, unlevelled: Collection[str]) -> dict[str, Spread]:
    """Split the error by kind: between GPUs, by algorithm and by batch size on a GPU, and the rest.

    The shared components are root mean squares of medians, so a few outliers do not determine them; the rest includes
    the outliers, as quantiles. An error common to all GPUs is part of the first component, because it is unknown for
    new GPUs.
    """
    found = {}
    for kind, rows in held_out.groupby("error_kind"):
        error = np.log(rows.measured_ms / rows.predicted_ms)
        card = rows.source + " " + rows.device
        levels = error.groupby(card).transform("median")
        # The clock of those cards is not published: they say nothing about levels.
        of_gpu = levels[~rows.source.isin(list(unlevelled))].groupby(rows.device).first()
        rest = error - levels
        of_algorithm = _shared(rest, [card, rows.algorithm]) if rows.algorithm.nunique() > 1 else 0.0 * rest
        rest = rest - of_algorithm.fillna(0.0)
        of_size = _shared(rest, [card, rows.batch])
        rest = rest - of_size.fillna(0.0)
        found[str(kind)] = Spread(
            gpu=_root_mean_square(of_gpu),
            gpus=len(of_gpu),
            algorithm=_root_mean_square(of_algorithm),
            size=_root_mean_square(of_size),
            rest=tuple(float(quantile) for quantile in np.quantile(rest, LEVELS)),
            lasting=_lasting(rest, [card, rows.algorithm, rows.problem]),
        )
    return found


def _lasting(errors: pd.Series, by: Sequence[pd.Series]) -> float:
    """Share of the variance between groups, by ranks, so that outliers have no extra weight; 1 if unknown."""
    ranks = errors.rank(pct=True)
    groups = ranks.groupby(list(by))
    several = groups.transform("size") > 1
    if not several.any():
        return 1.0
    within = (ranks - groups.transform("mean"))[several]
    freedom = several.sum() - groups.ngroup()[several].nunique()
    return float(np.clip(1 - (within**2).sum() / freedom / ranks[several].var(), 0.0, 1.0))


def _shared(errors: pd.Series, by: Sequence[pd.Series]) -> pd.Series:
    """The median of each row's group; missing if the group is too small."""
    groups = errors.groupby(list(by))
    return groups.transform("median").where(groups.transform("size") >= _OFTEN)


def _root_mean_square(values: pd.Series) -> float:
    known = values.dropna()
    return float(np.sqrt((known**2).mean())) if len(known) else 0.0
