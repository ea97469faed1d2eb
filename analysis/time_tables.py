"""Tests the cost curves of a table of times (e.g. published measurements) with the same detector as
a sweep.

Each problem on each device is a curve; all tests of all curves form one family (Holm). Times
without repeats have no spread of their own: unless it is stated, their noise is estimated from the
table. Real curves also bend a little everywhere, so an effect under 5 % of the larger time is no
anomaly here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .decompose.curve import Curve, cost_curve
from .decompose.findings import Finding, FindingVerdict, find, judge
from .decompose.statistics import LEVEL, Floats, holm

MATERIAL = 0.05
# Noise of a table that is too short to show its own; published benchmarks vary by 1 to 5 % between
# runs.
ASSUMED_NOISE = 0.05
# printed times are rounded, and no table states the difference between two runs of one card
LEAST_NOISE = 0.005
_LEAST_RESIDUALS = 8
# Share of the residuals that is taken as free of anomalies, and its quantile of a normal
# distribution's size.
_QUIET = 0.25
_LEAST_CURVES = 5  # for a mean over curves


@dataclass(frozen=True)
class TestedCurve:
    """One curve of a table, tested."""

    problem: str | None  # name of the problem; None if the table has no names
    device_name: str | None  # name of the device; None if unknown
    curve: Curve  # cost curve
    findings: tuple[Finding, ...]  # result of `findings.find`, with p adjusted over the whole table


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The mean of a bend over several curves of a network or a problem, each of which may be too
    uncertain alone.
    """

    name: str  # what the curves share
    label: str  # the functional, e.g. `bend at 2`.
    curves: int  # number of curves
    mean: float  # mean effect, as a share of the larger time
    low: float  # lower end of its 95 % interval, over curves
    high: float  # upper end
    p_adjusted: float  # p of a mean of 0, adjusted over the table
    verdict: str  # anomaly, real but under 5 %, or noise


def find_all(
    steps: pd.DataFrame, noise: float | None, axis: str = "log2", statistic: str = "median"
) -> tuple[TestedCurve, ...]:
    """Test every pair and every inner point of every curve of a `steps` table with problems, as
    `find` does.
    """
    alone = []
    for (problem, device_name), rows in steps.groupby(
        ["problem", "device_name"], dropna=False, sort=False
    ):
        curve = cost_curve(rows, statistic, noise)
        names = (
            None if pd.isna(problem) else str(problem),
            None if pd.isna(device_name) else str(device_name),
        )
        alone.append(TestedCurve(*names, curve, find(curve, axis)))
    adjusted = iter(holm([f.tested_value.p for series in alone for f in series.findings]))
    return tuple(
        replace(
            series, findings=tuple(_judge(series.curve, f, next(adjusted)) for f in series.findings)
        )
        for series in alone
    )


def estimate_noise(steps: pd.DataFrame) -> float | None:
    """Estimate the standard error of a single time, as a share of it, from how smooth the table's
    curves are.

    Four neighbours of a smooth curve lie near a parabola in logarithms of time and batch; what is
    left, over the root of its squared weights, has the noise as its standard deviation. Anomalies
    are left over too, so the estimate takes the smallest quarter of the residuals, and the quietest
    quarter of the batch sizes. It is at least `LEAST_NOISE`; None if the table has fewer than eight
    groups of four neighbours without repeats.
    """
    residuals: dict[int, list[float]] = {}
    for _, rows in steps.groupby(["problem", "device_name"], dropna=False, sort=False):
        times = rows.groupby("batch").duration_ns.agg(["median", "size"])
        times = times[times["size"] == 1].sort_index()
        batches = times.index.to_numpy(np.float64)
        places, logs = np.log(batches), np.log(times["median"].to_numpy(np.float64))
        for first in range(len(logs) - 3):
            four = slice(first, first + 4)
            # The third divided difference: 0 for every parabola.
            weights = 1 / np.prod(np.subtract.outer(places[four], places[four]) + np.eye(4), axis=1)
            size = abs(float(weights @ logs[four])) / float(np.linalg.norm(weights))
            residuals.setdefault(int(batches[first]), []).append(size)
    groups = [sizes for sizes in residuals.values() if len(sizes) >= _LEAST_RESIDUALS]
    if not groups:
        groups = [[size for sizes in residuals.values() for size in sizes]]
    if len(groups[0]) < _LEAST_RESIDUALS:
        return None
    from scipy.special import ndtri

    quiet = [np.quantile(sizes, _QUIET) / ndtri((1 + _QUIET) / 2) for sizes in groups]
    return max(LEAST_NOISE, float(np.quantile(quiet, _QUIET)))


def choose_noise(steps: pd.DataFrame, stated: float | None) -> tuple[float, str]:
    """The standard error of single times, and its origin: stated, estimated, or assumed where the
    table is short.
    """
    if stated is not None:
        return stated, "stated"
    estimated = estimate_noise(steps)
    return (ASSUMED_NOISE, "assumed") if estimated is None else (estimated, "estimated")


def _judge(curve: Curve, finding: Finding, p_adjusted: float) -> Finding:
    judged = judge(curve, finding, p_adjusted)
    if judged.verdict != FindingVerdict.ANOMALY:
        return judged
    if abs(relative_to_last(curve, finding)) < MATERIAL:
        return replace(judged, verdict=FindingVerdict.SMALL_IN_TABLE)
    if finding.tested.kind == "bend" and is_corner(curve, finding):
        return replace(judged, verdict=FindingVerdict.CORNER)
    return judged


def relative_to_last(curve: Curve, finding: Finding) -> float:
    """The tested functional as a share of the time at its largest batch size."""
    return finding.tested_value.value / curve.at(finding.tested.last).time_ms.value


def is_corner(curve: Curve, finding: Finding) -> bool:
    """Whether a bend is the corner of max(host, device): flat, then proportional, within the errors
    of its times.

    A host that takes the same time for every batch size hides a faster device up to some batch
    size.
    """
    before, at, after = sorted(finding.tested.conditions)
    first, middle, last = (curve.at(batch).time_ms for batch in (before, at, after))
    per_sample = last.value / after
    expected = max(first.value, per_sample * at)
    near = abs(middle.value - expected) <= 2 * (middle.high - middle.value)
    return bool(finding.tested_value.value > 0 and first.value >= per_sample * before and near)


def pool(
    listed: Sequence[TestedCurve], names: Sequence[str | None] | None = None
) -> tuple[Pooled, ...]:
    """Test each functional's mean over five curves or more that share a name, e.g. the problem;
    anomalies first.
    """
    from scipy.special import stdtrit

    effects: dict[tuple[str, str], list[float]] = {}
    for name, series in zip(names or [series.problem for series in listed], listed, strict=True):
        for finding in series.findings:
            if (
                name is not None and finding.tested.kind == "bend"
            ):  # a fixed cost makes an excess, but no bend
                effects.setdefault((name, finding.tested.label), []).append(
                    relative_to_last(series.curve, finding)
                )
    pooled_effects = [
        (key, np.array(values)) for key, values in effects.items() if len(values) >= _LEAST_CURVES
    ]
    pooled = []
    for ((name, label), values), p in zip(
        pooled_effects, holm([_p_of_mean(values) for _, values in pooled_effects]), strict=True
    ):
        half = float(
            stdtrit(len(values) - 1, 1 - LEVEL / 2) * values.std(ddof=1) / len(values) ** 0.5
        )
        mean = float(values.mean())
        large = FindingVerdict.ANOMALY if abs(mean) >= MATERIAL else FindingVerdict.SMALL_IN_TABLE
        verdict = large if p < LEVEL else FindingVerdict.NOISE
        pooled.append(
            Pooled(
                name=name,
                label=label,
                curves=len(values),
                mean=mean,
                low=mean - half,
                high=mean + half,
                p_adjusted=float(p),
                verdict=verdict,
            )
        )
    return tuple(
        sorted(
            pooled, key=lambda effect: (effect.verdict != FindingVerdict.ANOMALY, -abs(effect.mean))
        )
    )


def _p_of_mean(values: Floats) -> float:
    error = values.std(ddof=1) / len(values) ** 0.5
    from scipy.special import stdtr

    return float(2 * stdtr(len(values) - 1, -abs(values.mean()) / error)) if error > 0 else 1.0
