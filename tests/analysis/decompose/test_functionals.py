from math import log2

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import bend, curvature, excess, neighbours

from ...tables import ask_each


def value(functional, cost):
    return sum(weight * cost(batch) for batch, weight in functional.coefficients)


@ask_each(
    ("functional", "cost", "expected"),
    [
        (excess(64, 128), {64: 420.28, 128: 899.86}.get, 59.30),  # VGG on a GTX 1080, published
        (excess(32, 40), {32: 100.0, 40: 130.0}.get, 5.0),
        (curvature(4, 8, 16), {4: 20.0, 8: 30.0, 16: 44.0}.get, 44 / 16 - 2 * 30 / 8 + 20 / 4),
        (curvature(1, 2, 4, "linear"), lambda b: 3.0 * b * b, 6.0),
        # Time per sample 5, 3 and 2 ms at 0, 1 and 3 doublings: slopes −2 and −½ over a mean
        # distance of 1½.
        (curvature(1, 2, 8), {1: 5.0, 2: 6.0, 8: 16.0}.get, (-0.5 - -2.0) / 1.5),
        # The square of the number of doublings has second derivative 2, whatever the spacing; a
        # line in it has 0.
        (curvature(1, 2, 8), {1: 0.0, 2: 2.0 * 1, 8: 8.0 * 9}.get, 2.0),
        (curvature(3, 5, 11), lambda b: b * (10 - log2(b)), 0.0),
    ],
)
def test_functionals_by_hand(functional, cost, expected):
    assert value(functional, cost) == pytest.approx(expected, abs=1e-9)


@given(st.floats(0, 1e3), st.floats(0.01, 1e3))
def test_fixed_plus_proportional_cost_has_no_bend_but_looks_concave_up_per_sample(fixed, slope):
    def cost(batch):
        return fixed + slope * batch

    assert value(bend(4, 8, 16), cost) == pytest.approx(0, abs=1e-9 * cost(16))
    assert value(excess(8, 16), cost) == pytest.approx(-fixed, abs=1e-9 * cost(16))
    assert value(curvature(4, 8, 16, "linear"), cost) == pytest.approx(0, abs=1e-9 * cost(16))
    assert value(curvature(4, 8, 16), cost) == pytest.approx(fixed / 16, abs=1e-9 * cost(16))


def test_an_unknown_axis_is_refused():
    with pytest.raises(ValueError, match="axis"):
        curvature(1, 2, 4, "log10")


def test_neighbours_of_one_batch_size_are_none():
    assert neighbours([8]) == ([], [])
    assert neighbours([4, 1, 2]) == ([(1, 2), (2, 4)], [(1, 2, 4)])


def test_the_curvature_of_throughput_by_hand():
    # T = 10, 10, 20 ms at batch 4, 8, 16: 400, 800 and 800 samples/s, so 800 - 2 * 800 + 400 =
    # -400.
    steps = pd.DataFrame(
        [(b, 0, t * 1_000_000, False) for b, t in ((4, 10), (8, 10), (16, 20))],
        columns=["batch", "round", "duration_ns", "profiled"],
    )
    functional = curvature(4, 8, 16, "throughput")
    value = cost_curve(steps, noise=0.01).evaluate(functional)
    assert (value.value, functional.unit) == (pytest.approx(-400), "samples/s")
    # Errors of 1 % of 400, 2 * 800 and 800.
    assert value.high - value.value == pytest.approx(1.959964 * (4**2 + 16**2 + 8**2) ** 0.5)


def test_a_fixed_cost_bends_throughput_down_only_where_it_is_amortised():
    small, large = (curvature(b // 2, b, 2 * b, "throughput") for b in (2, 512))
    rate = {b: 1e3 / (50 + b) for b in (1, 2, 4, 256, 512, 1024)}  # steps per second
    assert (
        sum(w * rate[b] for b, w in small.coefficients)
        > 0
        > sum(w * rate[b] for b, w in large.coefficients)
    )
