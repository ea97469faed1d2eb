"""The shape of a curve on a finer grid."""

from __future__ import annotations

import pytest

from curvescope.analysis.verdicts.outcome import outcomes_of
from curvescope.analysis.verdicts.shape import shape
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.experiments import Stage

from ...experiments.planted_experiments import experiment, rows_of


@pytest.mark.parametrize(
    ("cost_ms", "kind", "at", "period"),
    [
        (lambda b: 5.0 + b, "straight", None, None),
        (lambda b: 5.0 + b + 4.0 * (b >= 6), "jump", 6, None),
        (lambda b: 5.0 + b - 4.0 * (b >= 6), "jump", 6, None),
        (lambda b: 8.0 * -(-b // 4), "staircase", None, 4),
        (lambda b: 5.0 + 0.5 * b**1.5, "curve", None, None),
    ],
    ids=["straight", "jump up", "fall", "staircase", "curve"],
)
def test_the_shape_on_a_finer_grid(cost_ms, kind, at, period):
    one = experiment(0, Stage.GRID, (), batches=tuple(range(2, 18)))
    rows = rows_of(one, {None: cost_ms}, noise=0.01)
    (alone,) = outcomes_of(one, rows, {})
    found = shape(alone, rows, Axis("tokens"))
    assert (found.kind, found.at, found.period) == (kind, at, period)
    assert period is None or found.sentence.endswith(f"every {period} tokens.")
