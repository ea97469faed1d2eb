"""How often looks at a sweep that goes on end it with another verdict than that of all its rounds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sequential_rounds import LOOKS, Counts, simulate

RUNS = 25


@pytest.mark.parametrize(
    ("noise", "effect", "least_saved"),
    [("even", 0.0, 0.4), ("even", 0.2, 0.4), ("two states", 0.1, 0.3), ("skewed", 0.0, 0.3)],
)
def test_rounds_that_end_early_give_the_verdict_of_all(noise, effect, least_saved):
    """An effect of 5 % or more of the step, from batch 16 on, in up to 30 rounds."""
    counts = simulate(noise, effect, RUNS)
    assert counts.early == counts.complete == (RUNS if effect else 0)
    assert counts.rounds <= (1 - least_saved) * LOOKS[-1]


def test_counts_are_of_sweeps():
    assert simulate("even", 0.2, 2) == Counts(2, 2, 2, pytest.approx(np.mean([9, 9]), abs=6))
