"""The first sentence of a comparison, on step times made by hand."""

import math
from types import SimpleNamespace

from curvescope.analysis.change import Change
from curvescope.analysis.compare import ComparedLine
from curvescope.analysis.render.compare import verdicts

from ...tables import ask_each


def comparison(speedups, rows_at, known):
    """Two recordings whose second one has these speed-ups, by batch size; one row, which explains
    the largest batch.
    """

    def change(speedup):
        ends = (speedup * 0.99, speedup * 1.01, 0.001) if known else (0.0, math.inf, 1.0)
        return Change(speedup, *ends)

    steps = tuple(
        ComparedLine(str(batch), (1.0, 1 / up), (change(up),)) for batch, up in speedups.items()
    )
    return SimpleNamespace(
        unit="step",
        sides=(None, None),
        steps=steps,
        batch=rows_at,
        rows=(ComparedLine("conv", (9.0, 5.0), (None,)),),
    )


@ask_each(
    ("speedups", "known", "says"),
    [
        (
            {32: 1.33, 64: 1.36, 128: 1.0002},
            False,
            "B is faster than A: a step of batch 64 takes 0.735 times as long; no interval is "
            "known.",
        ),
        (
            {32: 1.33, 64: 1.36, 128: 1.25},
            False,
            "B is faster than A: a step of batch 128 takes 0.800 times as long; no interval is "
            "known. Most of it is in conv: 9.000 ms → 5.000 ms.",
        ),
        (
            {64: 1.002},
            False,
            "B and A take the same time within 2%: a step of batch 64 takes 0.998 times as long.",
        ),
        (
            {1: 0.8, 128: 1.25},
            True,
            "B is faster than A: a step of batch 128 takes 0.800 times as long (0.792 … 0.808); 2 "
            "of 2 step times differ significantly; slower at batch 1. Most of it is in conv: 9.000 "
            "ms → 5.000 ms.",
        ),
    ],
)
def test_the_verdict_names_a_batch_size_that_changed_and_its_rows(speedups, known, says):
    """Found by use: a step that takes 1.000 times as long was called faster, because smaller batch
    sizes are.
    """
    assert verdicts(comparison(speedups, 128, known), ("A", "B")) == [says]
