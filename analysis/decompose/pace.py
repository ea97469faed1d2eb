"""The machine's pace beside each step, by a reference of known work, taken out of the times of the
steps.

A shared machine slows down and speeds up within seconds, so that rounds differ by more than their
steps do. A reference that always does the same sees that (`profiling.hardware.reference`, column
`steps.reference_ns`): the logarithm of a visit's times is lowered by a slope times what its
reference says beyond the mean of all. This is regression on a covariate, as CUPED makes it: Deng et
al., Improving the Sensitivity of Online Controlled Experiments by Utilizing Pre-Experiment Data,
WSDM (2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

from ...profiling.recording.disturbed import select_used_steps
from .averaged_steps import samples_of_time
from .statistics import Floats, Ints

REFERENCE = "reference_ns"
_LEAST_VISITS = 10  # with a reference, for a slope
_LEAST_ROUNDS = 3
_MOST_LEFT = 0.9  # of the variance: a reference that takes out less is not used
_MOST_SLOPE = 1.5  # a step that slows by more than its reference is noise
_LEVEL = 0.01  # of the test whether references differ by condition, which their own work does not


@dataclass(frozen=True)
class Pace:
    """What the reference beside the steps of a sweep says."""

    slope: float  # change of log T over that of the logarithm of the reference
    left: float  # standard deviation of a visit's log T that is left, over the one before
    visits: int  # number of visits with a reference
    logs: pd.Series  # what a visit's log T is lowered by, by condition and round

    @property
    def sentence(self) -> str:
        """Its effect on the times, for the user."""
        return (
            "Times are at the mean pace of the machine, by a reference (fresh memory, products) "
            f"beside the steps: with slope {self.slope:.2f} it takes out {1 - self.left:.0%} of "
            f"the spread of {self.visits} visits."
        )

    def factors(self, conditions: Ints, rounds: Ints) -> Floats:
        """Factors of the times of steps, shape (steps,); 1 for a visit without a reference."""
        wanted = pd.MultiIndex.from_arrays([conditions, rounds])
        logs = self.logs.reindex(wanted).fillna(0.0)
        return np.asarray(np.exp(-logs), np.float64)


def pace_of(steps: pd.DataFrame, by: str = "batch") -> Pace | None:
    """The pace beside the timed steps; None without a reference, or where it narrows nothing.

    The slope is of all visits that are used. Whether it narrows is judged on each round by the
    slope of the others. A reference that differs by condition is no common measure, so it is not
    used.
    """
    if REFERENCE not in steps or steps[REFERENCE].isna().all():
        return None
    timed = select_used_steps(steps)
    timed = samples_of_time(timed[~timed["profiled"].astype(bool)])
    timed = timed[timed[REFERENCE].notna() & timed[by].notna()]
    timed = timed[(timed[REFERENCE] > 0) & (timed["duration_ns"] > 0)]
    logs = np.log(timed[["duration_ns", REFERENCE]].astype(np.float64))
    visits = logs.groupby([timed[by], timed["round"]]).mean()
    references = visits[REFERENCE]
    condition, rounds = (visits.index.get_level_values(level) for level in (0, 1))
    own = visits.groupby(condition).transform("mean")
    deviations = visits - own
    y = deviations["duration_ns"].to_numpy()
    x = deviations[REFERENCE].to_numpy()
    count = len(visits)
    least = max(_LEAST_VISITS, condition.nunique() + 2)
    if count < least or rounds.nunique() < _LEAST_ROUNDS:
        return None
    slope = _slope(x, y, _MOST_SLOPE)
    left = measure_rest(x, y, rounds.to_numpy(), _MOST_SLOPE)
    narrows = slope > 0 and left < _MOST_LEFT
    if not narrows or _differs(references, condition, x):
        return None
    middle = references.groupby(condition).mean().mean()
    return Pace(slope, float(np.sqrt(left)), count, slope * (references - middle))


def scale_to_pace(steps: pd.DataFrame, by: str = "batch") -> pd.DataFrame:
    """The steps with their times at the mean pace, and no reference any more; as they are without
    one.
    """
    pace = pace_of(steps, by)
    if pace is not None:
        factors = pace.factors(steps[by].to_numpy(), steps["round"].to_numpy())
        steps = steps.assign(duration_ns=steps["duration_ns"] * factors)
    return steps.drop(columns=REFERENCE, errors="ignore")


def _slope(x: Floats, y: Floats, most: float) -> float:
    squares = float(x @ x)
    if squares > 0:
        return min(float(x @ y) / squares, most)
    return 0.0


def measure_rest(x: Floats, y: Floats, rounds: Ints, most_slope: float = inf) -> float:
    """Variance left of each round by the slope of the others, over the variance of the whole."""
    rest = y.copy()
    for round_ in np.unique(rounds):
        inside = rounds == round_
        slope = _slope(x[~inside], y[~inside], most_slope)
        rest[inside] -= max(slope, 0.0) * x[inside]
    squares = float(y @ y)
    if squares > 0:
        return float(rest @ rest) / squares
    return 1.0


def _differs(references: pd.Series, condition: pd.Index, inside: Floats) -> bool:
    """Whether the logarithms of references differ by condition, by more than inside each (analysis
    of variance).
    """
    from scipy.special import fdtrc

    groups = references.groupby(condition)
    means, counts = groups.mean(), groups.size()
    freedom_between = len(means) - 1
    freedom_within = len(references) - len(means)
    squares = counts * (means - references.mean()) ** 2
    between = float(squares.sum()) / max(freedom_between, 1)
    within = float(inside @ inside) / freedom_within
    if len(means) < 2 or within <= 0:
        return False
    p = fdtrc(freedom_between, freedom_within, between / within)
    return bool(p < _LEVEL)
