"""Lists of sizes to pad to: the cheapest of all, as trying all shows."""

import itertools
import time

import numpy as np
import pytest

from curvescope.analysis.curve_pieces import fit_pieces, fit_sizes_alone
from curvescope.analysis.size_lists import cheapest_lists, costs_of
from curvescope.base.errors import CurvescopeError

from ..tables import ask_each


def costs(times, counts, error=0.01):
    sizes = np.arange(1.0, 1 + len(times))
    fit = fit_sizes_alone(sizes, times, np.full(len(times), error))
    return costs_of(fit, {1 + place: count for place, count in enumerate(counts) if count})


@ask_each("seed", range(8))
def test_the_cheapest_lists_are_those_of_trying_all(seed):
    """Times that rise, and times with slow sizes; histograms with sizes that never occur."""
    random = np.random.default_rng(seed)
    for number in range(8):
        count = int(random.integers(3, 10))
        times = random.uniform(1, 10, count)
        weights = [*random.integers(0, 5, count - 1).tolist(), 1]
        planned = costs(np.sort(times) if number % 2 else times, weights)
        for most, listed in enumerate(cheapest_lists(planned, 4), 1):
            every = min(
                planned.padded_ms((*sizes, count))
                for fewer in range(most)
                for sizes in itertools.combinations(range(1, count), fewer)
            )
            assert len(listed) <= most
            assert planned.padded_ms(listed) == pytest.approx(every)


def test_padding_costs_what_the_next_size_takes_and_sizes_beyond_run_as_themselves():
    planned = costs([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1])
    assert planned.exact_ms() == pytest.approx(2.5)
    assert planned.padded_ms([2, 4]) == pytest.approx((2 + 2 + 4 + 4) / 4)
    assert planned.padded_ms([2]) == pytest.approx((2 + 2 + 3 + 4) / 4)
    assert planned.padded_ms([8]) == pytest.approx(4)


def test_a_step_padded_beyond_the_sizes_that_occur_takes_the_time_of_its_list():
    """24 captured for 20 requests took the time of 20."""
    planned = costs([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0])
    assert planned.padded_ms([1, 4]) == pytest.approx((1 + 4) / 2)
    assert planned.saving([1, 2], [1, 4]).value == pytest.approx(2 / 5)
    assert cheapest_lists(planned, 4) == [(2,), (1, 2)]
    faster = costs([1.0, 9.0, 3.0, 4.0], [1, 1, 0, 0])
    assert cheapest_lists(faster, 4)[-1] == (1, 3)


def test_a_saving_has_the_error_of_the_times():
    planned = costs([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1], error=0.02)
    saved = planned.saving([2, 4], [4])
    assert saved.value == pytest.approx(0.25)
    # (2 T(2) - 2 T(4)) / 4 T(4): the errors of T(2) and T(4) are apart
    assert saved.high - saved.value == pytest.approx(1.96 * np.hypot(0.04, 0.08) / 8, rel=0.01)
    assert planned.saving([4], [4]).high == 0


def test_slow_sizes_are_in_no_list():
    assert cheapest_lists(costs([1.0, 9.0, 3.0, 4.0], [1, 1, 1, 1]), 4)[-1] == (1, 3, 4)


def test_sizes_between_measured_ones_are_on_the_fitted_shape():
    sizes = np.array([1, 8, 16, 32, 64.0])
    planned = costs_of(fit_pieces(sizes, 10 + sizes), {24: 1.0})
    assert planned.exact_ms() == pytest.approx(34, rel=0.01)
    with pytest.raises(CurvescopeError, match="the curve ends at 64"):
        costs_of(planned.fit, {65: 1.0})


def test_a_single_slow_size_says_nothing_of_its_neighbours():
    """Sizes 17 to 23 took the time of 24, which 32 undercuts, so that padding saved time."""
    sizes = np.array([1, 2, 4, 8, 16, 24, 32, 64.0])
    times = 8 + 0.25 * sizes
    times[5] *= 1.6
    planned = costs_of(fit_pieces(sizes, times), dict.fromkeys(range(1, 65), 1.0))
    assert planned.times_ms[23] == pytest.approx(times[5])
    assert planned.times_ms[16:23] == pytest.approx(8 + 0.25 * np.arange(17, 24), rel=0.01)
    assert 24 not in cheapest_lists(planned, 8)[-1]


@pytest.mark.slow
def test_four_thousand_sizes_are_planned_in_seconds():
    """Under one second on a quiet machine; a busy one has six."""
    sizes = np.arange(1.0, 4097.0, 8)
    fit = fit_pieces(sizes[:500], 10 + 0.01 * sizes[:500] + np.floor(sizes[:500] / 64))
    begin = time.process_time()
    lists = cheapest_lists(costs_of(fit, None), 32)
    assert len(lists[-1]) == 32
    assert time.process_time() - begin < 6
