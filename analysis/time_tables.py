"""Tests the cost curves of a table of times (e.g. published measurements) with the same detector as a sweep.

Each problem on each device is a curve. All tests of all curves form one family (Holm): otherwise one in twenty of two
thousand pairs would be called an anomaly by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from .decompose.anomalies import Finding, find, judge
from .decompose.curve import Curve, cost_curve
from .decompose.statistics import holm


@dataclass(frozen=True)
class TestedCurve:
    """One curve of a table, tested.

    Attributes:
        problem: name of the problem; None if the table has no names.
        device_name: name of the device; None if unknown.
        curve: cost curve.
        findings: result of `anomalies.find`, with p adjusted over the whole table.
    """

    problem: str | None
    device_name: str | None
    curve: Curve
    findings: tuple[Finding, ...]


def find_all(
    steps: pd.DataFrame, noise: float | None, axis: str = "log2", statistic: str = "median"
) -> tuple[TestedCurve, ...]:
    """Test every pair and every inner point of every curve.

    Args:
        steps: a `steps` table with problems.
        noise: see `cost_curve`.
        axis: axis of the curvatures to show: log2 or linear.
        statistic: statistic for T(b): median or mean.
    """
    alone = []
    for (problem, device_name), rows in steps.groupby(["problem", "device_name"], dropna=False, sort=False):
        curve = cost_curve(rows, statistic, noise)
        names = (None if pd.isna(problem) else str(problem), None if pd.isna(device_name) else str(device_name))
        alone.append(TestedCurve(*names, curve, find(curve, axis)))
    adjusted = iter(holm([f.tested_value.p for series in alone for f in series.findings]))
    return tuple(
        replace(series, findings=tuple(judge(series.curve, f, next(adjusted)) for f in series.findings))
        for series in alone
    )
