"""Jumps between neighbouring sizes, where the time rises, and falls, where it is less at the larger
one.
"""

from dataclasses import replace

import numpy as np

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import (
    FindingVerdict,
    find,
    find_falls,
    find_jumps,
    list_open_jumps,
)
from curvescope.analysis.decompose.functionals import outlier

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
    assert find_jumps(curve, find(curve)) == []
    assert find_falls(curve) == []


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
    assert find_jumps(curve, find(curve)) == [(32, 33)]
    assert find_falls(curve) == []


def jump_in(rounds, jump_ms):
    """A curve with or without a jump from 16 to 17, of a step of 1.6 ms at 16."""
    steps = timed_steps(
        lambda batch: batch * 0.1 + jump_ms * (batch > 16),
        np.random.default_rng(5),
        batches=(4, 8, 16, 17, 32),
        rounds=rounds,
        noise=0.02,
        spikes=0,
    )
    return replace(cost_curve(steps), jumps=((16, 17),))


def test_a_jump_in_too_few_rounds_is_left_open_and_not_denied():
    """An H100 took 22 ms at 16 and 49 at 17, in two rounds of both."""
    curve = jump_in(2, 1.9)
    findings = find(curve)
    assert find_jumps(curve, findings) == []
    assert list_open_jumps(curve, findings) == [(16, 17)]
    found = jump_in(12, 1.9)
    assert list_open_jumps(found, find(found)) == []
    none = jump_in(30, 0.0)
    assert list_open_jumps(none, find(none)) == []


def test_a_size_that_was_found_in_the_last_round_takes_no_test_from_its_neighbours():
    """Memory taken anew at 64 had no answer: a probe at 17 became a neighbour with one round."""
    steps = timed_steps(
        lambda batch: batch * 0.1 + 8 * (batch == 64),
        np.random.default_rng(5),
        batches=(16, 17, 64, 128),
        noise=0.02,
        spikes=0,
    )
    steps = steps[(steps["batch"] != 17) | (steps["round"] == steps["round"].max())]
    curve = replace(cost_curve(steps), jumps=((16, 17),))
    findings = {finding.tested: finding for finding in find(curve)}
    assert findings[outlier(16, 64, 128)].verdict == FindingVerdict.ANOMALY
    assert list_open_jumps(curve, list(findings.values())) == [(16, 17)]
    going_on = {finding.tested for finding in find(curve, late=True)}
    assert outlier(17, 64, 128) in going_on


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
    assert find_jumps(curve, find(curve)) == []
    assert find_falls(curve) == [(64, 65)]
