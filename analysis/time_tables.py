"""Many cost curves of one table, as published measurements give them, through the same detector as a sweep.

Each problem on each device is a curve. All tests of all curves are one family (Holm): of two thousand pairs, one in
twenty would else be called an anomaly by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from .decompose.anomalies import Finding, find, judge
from .decompose.curve import Curve, cost_curve
from .decompose.statistics import holm


@dataclass(frozen=True)
class Series:
    """One curve of a table, tested.

    Attributes:
        problem: what was stepped; null where the table names nothing.
        device_name: what it ran on; null where the table does not tell.
        curve: its cost curve.
        findings: as `anomalies.find` gives them, p adjusted over the whole table.
    """

    problem: str | None
    device_name: str | None
    curve: Curve
    findings: tuple[Finding, ...]


def find_all(
    steps: pd.DataFrame, noise: float | None, axis: str = "log2", statistic: str = "median"
) -> tuple[Series, ...]:
    """Test every pair and every inner point of every curve.

    Args:
        steps: a `steps` table with problems.
        noise: see `cost_curve`.
        axis: of the curvatures shown: log2 or linear.
        statistic: of T(b): median or mean.
    """
    alone = []
    for (problem, device_name), rows in steps.groupby(["problem", "device_name"], dropna=False, sort=False):
        curve = cost_curve(rows, statistic, noise)
        names = (None if pd.isna(problem) else str(problem), None if pd.isna(device_name) else str(device_name))
        alone.append(Series(*names, curve, find(curve, axis)))
    adjusted = iter(holm([f.tested_value.p for series in alone for f in series.findings]))
    return tuple(
        replace(series, findings=tuple(judge(series.curve, f, next(adjusted)) for f in series.findings))
        for series in alone
    )
