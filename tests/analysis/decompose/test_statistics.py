import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.statistics import (
    FASTER_HALF,
    STATISTICS,
    block_estimate,
    estimate,
    fieller,
    holm,
    mean_correlation,
    moderate,
    replicate,
    resample_rounds,
    time_estimate,
    with_unseen,
)
from curvescope.profiling.attribution.step_pattern import faster_half
from curvescope.profiling.measure.protocol import PROTOCOLS

from ...tables import ask_each
from ..synthetic import timed_steps


def test_holm_on_the_worked_example():
    # Four p-values at 0.05: 0.01·4 and 0.02·3... the adjusted ones never decrease along the order.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_one_round_knows_nothing_of_its_spread():
    result = estimate(5.0, np.array([5.0, 5.0]), rounds=1, scale=5.0)
    assert (result.low, result.high, result.p) == (-np.inf, np.inf, 1.0)


def test_rounding_of_equal_numbers_is_no_effect():
    # 3 · 0.1 − 0.3 is 5.6e-17, with no spread at all
    result = estimate(3 * 0.1 - 0.3, np.full(100, 3 * 0.1 - 0.3), rounds=5, scale=0.3)
    assert result.p > 0.9


def test_the_faster_half_by_hand():
    assert faster_half(np.array([5.0, 1.0, 3.0])) == 2.0
    assert faster_half(np.array([9.0, 2.0])) == 2.0
    table = np.array([[4.0, 1.0, 3.0, 2.0, np.nan], [7.0, np.nan, np.nan, np.nan, np.nan]])
    assert faster_half(table, 1).tolist() == [1.5, 7.0]
    assert faster_half(table.T, 0).tolist() == [1.5, 7.0]
    assert STATISTICS[PROTOCOLS["default"].statistic] is STATISTICS[FASTER_HALF]


def test_slow_visits_move_the_faster_half_less_than_the_median():
    """A machine that is slower by a third in 30 % of the visits, of 8 rounds each."""
    random = np.random.default_rng(0)
    slow = np.where(random.random((400, 8, 1)) < 0.3, 1.33, 1.0)
    steps = (10.0 * slow * np.exp(0.01 * random.standard_normal((400, 8, 3)))).reshape(400, 24)
    spread = {
        name: float(np.std(STATISTICS[name](steps, axis=1))) for name in ("median", FASTER_HALF)
    }
    assert spread[FASTER_HALF] < spread["median"] / 3


def test_medians_of_replicates_come_from_the_drawn_rounds_alone():
    rounds = [np.array([1.0, 1.0, 1.0]), np.array([9.0])]
    drawn = np.array([[0, 0], [1, 1], [0, 1]])
    medians = replicate(rounds, drawn)
    assert medians.tolist() == [1.0, 9.0, 1.0]


@pytest.mark.slow
@ask_each("rounds", [4, 6, 14])
def test_intervals_of_a_mean_difference_cover_the_truth(rounds):
    """95 % intervals of T(2b) − 2·T(b) hold it in 93 to 99 % of 400 simulated sweeps with drift
    that rounds share.
    """
    random = np.random.default_rng(rounds)
    drawn = resample_rounds(rounds, 400)
    covered = 0
    for _ in range(400):
        drift = 1 + 0.03 * random.standard_normal(rounds)
        times = {
            b: [b * drift[r] * (1 + 0.01 * random.standard_normal(4)) for r in range(rounds)]
            for b in (1, 2)
        }
        replicates = {b: replicate(values, drawn) for b, values in times.items()}
        value = np.median(np.concatenate(times[2])) - 2 * np.median(np.concatenate(times[1]))
        result = estimate(float(value), replicates[2] - 2 * replicates[1], rounds, 2.0)
        covered += result.low <= 0 <= result.high
    assert 0.93 * 400 <= covered <= 400


def test_the_noise_of_steps_counts_once():
    """Six rounds of four steps that share nothing: replicates vary as 24 steps do, with √(5/6) of
    rounds.
    """
    random = np.random.default_rng(2)
    spreads = []
    for _ in range(100):
        rounds = [1 + 0.02 * random.standard_normal(4) for _ in range(6)]
        spreads.append(np.std(replicate(rounds, resample_rounds(6, 400), "mean")))
    assert np.sqrt(np.mean(np.square(spreads))) == pytest.approx(
        0.02 / 24**0.5 * (5 / 6) ** 0.5, rel=0.08
    )


def test_a_mean_where_a_protocol_asks_for_it():
    rounds = [np.array([1.0, 3.0]), np.array([8.0])]
    assert replicate(rounds, np.array([[1, 1]]), "mean").tolist() == [8.0]
    steps = timed_steps(
        {1: 1.0, 2: 2.0}.get, np.random.default_rng(0), batches=(1, 2), noise=0, drift=0, spikes=0.3
    )
    times = steps[steps["batch"] == 1]["duration_ns"]
    assert cost_curve(steps, "mean").points[0].time_ms.value == pytest.approx(times.mean() / 1e6)
    assert cost_curve(steps).points[0].time_ms.value == pytest.approx(times.median() / 1e6)


def test_the_interval_of_a_time_stays_above_0():
    """Two rounds that disagree by a third: Student's t with one degree of freedom took 6 times that
    off the time.
    """
    steps = pd.DataFrame(
        [(1, round_, round_, ms * 10**6) for round_, ms in enumerate((10, 14))],
        columns=["batch", "round", "start_ns", "duration_ns"],
    ).assign(profiled=False)
    time = cost_curve(steps).points[0].time_ms
    assert 0 < time.low < 10
    assert time.high > 14
    assert time.low * time.high == pytest.approx(time.value**2)


def test_rounds_that_are_alike_count_as_fewer():
    draws = np.exp(0.01 * np.random.default_rng(0).standard_normal(4000))
    widths = [
        np.log((e := time_estimate(1.0, draws, 6, alike)).high / e.low) for alike in (0.0, 0.2, 1.0)
    ]
    # 6 rounds alike by 0.2 are worth 1 + 5 · 0.8 / 2 = 3 of them: t(2) √(6/2) for t(5) √(6/5).
    assert widths[1] / widths[0] == pytest.approx(4.3027 / 2.5706 * (3 / 1.2) ** 0.5, rel=1e-4)
    assert widths[2] / widths[0] == pytest.approx(12.7062 / 2.5706 * (6 / 1.2) ** 0.5, rel=1e-4)


def test_likeness_of_a_series_that_resembles_its_neighbours():
    random = np.random.default_rng(1)
    series = np.zeros(4000)
    for place in range(1, len(series)):
        series[place] = 0.8 * series[place - 1] + random.standard_normal()
    assert mean_correlation(series, np.arange(0, 4000, 2)[:2]) == pytest.approx(0.64, abs=0.05)
    assert mean_correlation(series, np.array([0, 100])) == pytest.approx(0, abs=1e-6)
    assert mean_correlation(random.standard_normal(4000), np.array([0, 1])) < 0.05
    assert mean_correlation(np.zeros(5), np.array([0, 1])) == 0


def test_visits_that_resemble_their_neighbours_widen_the_intervals_where_their_order_is_known():
    def steps(order):
        wave = np.repeat([1.0, 1.1], 12)  # the second half of the sweep is slower
        rows = [
            (batch, n // 2, int(order(n)), round(wave[n] * batch * 1e6))
            for n, batch in enumerate([1, 2] * 12)
        ]
        frame = pd.DataFrame(rows, columns=["batch", "round", "start_ns", "duration_ns"])
        return cost_curve(frame.assign(profiled=False))

    known, unknown = steps(lambda n: n), steps(lambda n: 0)
    assert known.round_correlation > 0.3
    assert unknown.round_correlation == 0
    assert known.points[0].time_ms.high > unknown.points[0].time_ms.high


def test_few_rounds_widen_the_interval_by_hand():
    """Replicates whose central 80 % are those of a normal deviate of 2 ms: t(R−1) · 2 ms ·
    √(R/(R−1)) on each side.
    """
    # the second of 11 is at 10 %, the tenth at 90 %
    deviates = 2 * 1.2815515655446004 / 4 * np.arange(-5, 6)
    for rounds, t in ((2, 12.7062), (5, 2.7764), (10, 2.2622)):
        found = estimate(7.0, deviates, rounds, 7.0)
        assert found.high - 7.0 == pytest.approx(t * 2.0 * (rounds / (rounds - 1)) ** 0.5, rel=1e-4)
        assert found.high - 7.0 == pytest.approx(7.0 - found.low)


def test_the_ratio_of_two_statistics_by_hand():
    """Fieller for independent normals 6 ± 1 and 12 ± 1 of very many rounds, with z = 1.96: (72 ∓
    √(72² − 140.16·32.16)) over 140.16 = 0.328 and 0.699.
    """
    random = np.random.default_rng(0)
    drawn = tuple(random.standard_normal(400_000) for _ in range(2))

    def spread(value, replicates):
        return estimate(value, replicates, 1_000_000, 12.0)

    ratio = fieller((6.0, 12.0), drawn, spread)
    assert ratio.value == 0.5
    assert (ratio.low, ratio.high) == (
        pytest.approx(0.328, abs=0.003),
        pytest.approx(0.699, abs=0.003),
    )
    assert fieller((6.0, 1.5), drawn, spread).low == -np.inf


def of_rows(random, rows, rounds=3):
    """The mean of normal values of each row, whose standard deviations differ by a factor of two
    either way, with Student's interval.
    """
    sizes = 10.0 ** random.uniform(-1, 2, rows)
    spreads = 0.1 * sizes * 2.0 ** random.uniform(-1, 1, rows)
    values = spreads[:, None] * random.standard_normal((rows, rounds))
    errors = values.std(axis=1, ddof=1) / np.sqrt(rounds)
    means = values.mean(axis=1)
    estimates = [
        block_estimate(float(mean), float(error), rounds - 1, float(size))
        for mean, error, size in zip(means, errors, sizes, strict=True)
    ]
    return estimates, [rounds] * rows, sizes.tolist()


def test_rows_that_are_alike_by_chance_have_the_usual_spread():
    estimates, rounds, sizes = of_rows(np.random.default_rng(1), 12)
    estimates[0] = block_estimate(0.14 * sizes[0], 0.0, 2, sizes[0])
    assert estimates[0].p < 1e-9
    alike, *others = moderate(estimates, rounds, sizes)
    assert alike.value == estimates[0].value
    assert alike.high - alike.low > 0.08 * sizes[0]
    assert alike.p > 0.001
    assert [other.value for other in others] == [before.value for before in estimates[1:]]


def test_spreads_of_other_rows_add_power_and_no_false_alarm():
    random = np.random.default_rng(2)
    p_alone, p_of_all, powers = [], [], []
    for _ in range(60):
        estimates, rounds, sizes = of_rows(random, 20)
        p_alone += [value.p for value in estimates]
        p_of_all += [value.p for value in moderate(estimates, rounds, sizes)]
        estimates[0] = block_estimate(0.6 * sizes[0], 0.05 * sizes[0], 2, sizes[0])
        powers.append((estimates[0].p, moderate(estimates, rounds, sizes)[0].p))
    for level in (0.05, 0.01):
        assert np.mean(np.array(p_of_all) < level) < 1.5 * level
    assert all(of_all < alone for alone, of_all in powers)
    assert np.mean(np.array(p_alone) < 0.05) == pytest.approx(0.05, abs=0.02)


def test_an_interval_holds_a_spread_that_no_round_shows():
    """Five rounds vary by 1, and all of them lie off the truth by 2 times a normal value."""
    random = np.random.default_rng(5)
    shown, known = [], []
    for _ in range(400):
        values = 2 * random.standard_normal() + random.standard_normal(5)
        error = float(values.std(ddof=1) / np.sqrt(5))
        shown.append(block_estimate(float(values.mean()), error, 4, 1.0))
        known.append(with_unseen(shown[-1], 4, 2.0))
    assert np.mean([value.low <= 0 <= value.high for value in shown]) < 0.6
    assert np.mean([value.low <= 0 <= value.high for value in known]) == pytest.approx(
        0.95, abs=0.02
    )
    assert np.mean([value.p < 0.01 for value in known]) < 0.02
    assert with_unseen(shown[0], 4, 0.0) is shown[0]
    equal = with_unseen(block_estimate(0.0, 0.0, 4, 1.0), 4, 2.0)
    assert equal.high == pytest.approx(1.96 * 2.0, rel=1e-3)


def test_two_rows_tell_nothing_usual_and_one_round_stays_unknown():
    estimates, rounds, sizes = of_rows(np.random.default_rng(3), 2)
    assert moderate(estimates, rounds, sizes) == estimates
    unknown = estimate(5.0, np.array([5.0]), rounds=1, scale=5.0)
    four, counts, all_sizes = of_rows(np.random.default_rng(4), 4)
    assert moderate([*four, unknown], [*counts, 1], [*all_sizes, 5.0])[-1] == unknown
