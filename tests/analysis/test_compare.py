"""The changes between two recordings are one family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.compare import compare, side

from .causes.planted_causes import planted
from .synthetic import timed_steps, times_of

BATCHES = (1, 2, 4)


def recording(name, times_ms, seed):
    steps = timed_steps(times_ms.get, np.random.default_rng(seed), batches=BATCHES, spikes=0, drift=0)
    parts = pd.DataFrame(columns=["name", "layer", "phase", "batch", "step", "exclusive_ms"])
    return side(name, {"device": {}}, steps, parts)


def at_one_batch(one, i):
    curve = one.curve
    return replace(one, curve=replace(curve, points=curve.points[i : i + 1], replicates_ms=curve.replicates_ms[:, [i]]))


def p_values(*sides):
    return [line.changes[0].p_adjusted for line in compare(sides).steps]


def test_p_of_each_change_counts_how_many_changes_there_are():
    """Holm by hand: the least of three p-values counts three times, the next twice, the largest once."""
    base = recording("base", {1: 10.0, 2: 20.0, 4: 40.0}, 1)
    changed = recording("changed", {1: 10.1, 2: 20.5, 4: 42.0}, 2)
    alone = [p_values(at_one_batch(base, i), at_one_batch(changed, i))[0] for i in range(3)]
    least, middle, largest = sorted(range(3), key=alone.__getitem__)
    together = p_values(base, changed)
    assert alone[largest] > 3 * alone[least] > 0
    assert together[least] == pytest.approx(3 * alone[least])
    assert together[middle] == pytest.approx(max(3 * alone[least], min(1.0, 2 * alone[middle])))
    assert together[largest] == pytest.approx(max(together[middle], alone[largest]))


@pytest.mark.parametrize(
    ("classes", "label"),
    [
        (({"conv3": "Conv2d"}, {}), "conv3 (Conv2d) backward"),
        (({"conv3": "Conv2d"}, {"conv3": "Linear"}), "conv3 backward"),
        (({}, {}), "conv3 backward"),
    ],
    ids=["one recording knows it", "two do not agree", "unknown"],
)
def test_a_row_names_the_class_of_its_layer(classes, label):
    steps, kernels, _ = planted("unexplained", 1, rounds=2)
    sides = [side("a", {"device": {}, "layer_classes": one}, steps, times_of(steps, kernels)) for one in classes]
    assert label in {line.label for line in compare(sides).rows}
