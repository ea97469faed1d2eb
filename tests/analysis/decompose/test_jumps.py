"""Jumps between neighbouring sizes, where the time rises, and falls, where it is less at the larger
one.
"""

from dataclasses import replace

import numpy as np

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import find, found_falls, found_jumps

from ..synthetic import timed_steps


def test_the_size_behind_a_jump_is_none():
    """A step padded to multiples of 32 was said to jump from 33 to 34 samples, beside 5.27 and 5.20
    ms.
    """
    sizes = (32, 33, 34)
    steps = timed_steps(
        lambda batch: 2.6 * np.ceil(batch / 32),
        np.random.default_rng(5),
        batches=sizes,
        noise=0.005,
        spikes=0,
    )
    curve = replace(cost_curve(steps), jumps=((33, 34),))
    assert found_jumps(curve, find(curve)) == []
    assert found_falls(curve) == []


def test_a_jump_is_one():
    sizes = (16, 31, 32, 33)
    steps = timed_steps(
        lambda batch: batch * 0.08 + 2.6 * (batch > 32),
        np.random.default_rng(5),
        batches=sizes,
        noise=0.005,
        spikes=0,
    )
    curve = replace(cost_curve(steps), jumps=((32, 33),))
    assert found_jumps(curve, find(curve)) == [(32, 33)]
    assert found_falls(curve) == []


def test_a_size_that_is_faster_than_the_one_before_is_a_fall():
    """Of sizes that are multiples of 64, each is slow."""
    sizes = (32, 64, 65, 128)
    steps = timed_steps(
        lambda batch: batch * 0.08 * (1 if batch % 64 else 3.3),
        np.random.default_rng(5),
        batches=sizes,
        noise=0.005,
        spikes=0,
    )
    curve = replace(cost_curve(steps), jumps=((64, 65),))
    assert found_jumps(curve, find(curve)) == []
    assert found_falls(curve) == [(64, 65)]
