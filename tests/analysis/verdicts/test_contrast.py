"""What a factor removes of a functional: by hand, at one speed, and how often intervals over starts
hold.
"""

import numpy as np
import pytest

from curvescope.analysis.decompose.functionals import bend, excess, fixed_cost
from curvescope.analysis.verdicts.contrast import Removal, Times, pool_spreads, rest_of

from ...tables import ask_each

BATCHES = (1, 2, 4, 8)


def starts_of(*rows):
    """Times in each start, over the batch sizes of a functional."""
    times = np.array(rows, float)
    return Times(times.mean(axis=0), times, np.full(times.shape[1], len(times)), replicates=False)


def removal_of(functional, unmodified, changed, batches=None):
    batches = batches or tuple(functional.conditions)
    coefficients = dict(functional.weights)
    weights = np.array([coefficients.get(batch, 0.0) for batch in batches])
    rest = rest_of(functional.kind, coefficients, batches)
    return Removal.of(starts_of(*unmodified), starts_of(*changed), weights, rest)


@ask_each(
    ("functional", "unmodified", "changed", "removed"),
    [
        # 8 - 2 * 3 = 2 of proportional 6 ms; then 9 - 2 * 4 = 1 of 8 ms, which is 0.75 of 6
        (excess(1, 2), (3.0, 8.0), (4.0, 9.0), 2 - 0.75),
        # 2 * 10 - 12 = 8, a sample costs 2; then 2 * 4 - 5 = 3, a sample costs 1: 6 at the speed of
        # before
        (fixed_cost(1, 2), (10.0, 12.0), (4.0, 5.0), 8 - 6),
        # 3 - 2 * 3 + 8 = 5 of 8 ms; then 3 - 2 * 3 + 4 = 1 of 4 ms
        (bend(1, 2, 3), (3.0, 3.0, 8.0), (3.0, 3.0, 4.0), 5 - 2),
    ],
)
def test_what_is_left_is_counted_at_the_speed_of_the_rest(functional, unmodified, changed, removed):
    both = (
        [np.array(times) * scale for scale in (0.99, 1.0, 1.01)] for times in (unmodified, changed)
    )
    found, share = removal_of(functional, *both).estimate_removal()
    assert found.value == pytest.approx(removed)
    assert share.value == pytest.approx(
        removed / sum(w * t for (_, w), t in zip(functional.weights, unmodified, strict=True))
    )
    # All times of a start are slower alike: its share removed is the same.
    assert share.high - share.low < 1e-6


def test_an_anomaly_far_longer_than_the_rest_has_not_its_noise():
    """Memory is mapped anew from 16 on: 1.1 ms a sample at 15, 11 ms at 16; kept, 1.5 and 1.6 ms.

    A fifth of noise in the short time at 15 is 0.3 ms: it is no noise of 9.4 ms that are gone.
    """
    unmodified = [(1.8, 10.1), (1.5, 11.5), (1.3, 11.7), (1.8, 11.4)]
    changed = [(1.7, 2.0), (1.5, 1.7), (1.4, 1.4), (1.6, 1.1)]
    removal = removal_of(excess(15, 16), unmodified, changed)
    removed, share = removal.estimate_removal()
    sizes = [large - small * 16 / 15 for small, large in unmodified]
    of_sizes = 3.18 * np.std(sizes, ddof=1) / 2  # half of their interval
    assert removed.high - removed.low < 2 * 1.5 * of_sizes
    assert share.low > 0.8
    assert removal.p_values(0.2, 0.2)[0] < 0.001


def test_what_a_sample_costs_is_taken_from_the_largest_batch_size_that_ran():
    """F is 2 * 10 - 12 = 8 ms, F' is 2 * 6 - 6.5 = 5.5; from 1 to 8 a sample costs 1 ms, then half
    as much.
    """
    unmodified, changed = (10.0, 12.0, 13.0, 17.0), (6.0, 6.5, 8.0, 9.5)
    both = (
        [np.array(times) * scale for scale in (0.999, 1.0, 1.001)]
        for times in (unmodified, changed)
    )
    removal = removal_of(fixed_cost(1, 2), *both, batches=BATCHES)
    assert removal.estimate_removal()[0].value == pytest.approx(8 - 11)


def test_where_a_sample_costs_nothing_that_is_known_all_of_the_step_is_fixed_cost():
    """10 ms at both sizes, and 4 with the factor: 6 of 10 go, though every size is as
    much faster.
    """
    random = np.random.default_rng(0)
    unmodified, changed = (
        [(t + 0.1 * random.standard_normal(2)) for _ in range(5)] for t in (10.0, 4.0)
    )
    removal = removal_of(fixed_cost(1, 2), unmodified, changed)
    assert not removal.at_one_speed
    assert removal.estimate_removal()[1].value == pytest.approx(0.6, abs=0.03)


def test_one_start_has_no_interval():
    removed, share = removal_of(excess(1, 2), [(3.0, 8.0)], [(4.0, 8.0)]).estimate_removal()
    assert not np.isfinite([removed.low, removed.high, share.low, share.high]).any()
    assert (removed.p, share.p) == (1.0, 1.0)


def _width(interval):
    return interval.high - interval.low


def test_factors_of_one_experiment_share_their_variance_where_their_own_is_smaller():
    random = np.random.default_rng(1)
    unmodified = [np.array([3.0, 8.0])] * 5
    calm, wild = (
        [np.array([3.0, 7.0]) + width * random.standard_normal(2) for _ in range(5)]
        for width in (0.01, 0.3)
    )
    alone = [removal_of(excess(1, 2), unmodified, changed) for changed in (calm, wild)]
    together = pool_spreads(alone)
    widths = [
        [_width(removal.estimate_removal()[0]) for removal in removals]
        for removals in (alone, together)
    ]
    assert [one.spread.freedom for one in together] == [8, 8]
    assert widths[1][0] > 5 * widths[0][0]  # the calm one has the variance of both
    assert together[1].spread.wider == 1.0  # the wild one its own
    assert pool_spreads(alone[:1])[0].spread == alone[0].spread


@pytest.mark.slow
@ask_each("factors", [1, 3])
@ask_each("between", [0.0, 0.03])
def test_intervals_over_five_starts_hold_what_is_removed(factors, between):
    """A half of an excess of a fifth is removed, in processes that differ: 300 of each, of which 93
    in 100 hold.
    """
    random, held = np.random.default_rng(factors), 0
    usual, less = np.array([480.0, 1200.0]), np.array([480.0, 1080.0])

    def ran(times):
        return [
            times * np.exp(np.hypot(between, 0.02) * random.standard_normal(2)) for _ in range(5)
        ]

    for _ in range(300):
        unmodified = ran(usual)
        removals = pool_spreads(
            [removal_of(excess(8, 16), unmodified, ran(less)) for _ in range(factors)]
        )
        removed, _ = removals[0].estimate_removal()
        held += removed.low <= 120 <= removed.high
    assert held >= 0.92 * 300
