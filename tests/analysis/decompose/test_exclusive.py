import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvescope.analysis.decompose.exclusive import exclusive_ns, share_by_layer_ns

EPOCH = 1_795_236_526_763_605_605  # a realistic clock: float64 alone would round it to 256 ns

intervals = st.lists(st.tuples(st.integers(-50, 1050), st.integers(0, 400)), max_size=30)


def test_overlap_is_shared_and_the_rest_is_idle():
    #  a: 0....40        shared with b from 20 to 40
    #  b:   20......60
    #  idle 60..100
    shares, idle = exclusive_ns([EPOCH, EPOCH + 20], [40, 40], EPOCH, 100)
    assert shares.tolist() == [30, 30]
    assert idle == 40


@given(intervals)
def test_parts_and_idle_add_up_to_the_window(drawn):
    starts, durations = [s for s, _ in drawn], [d for _, d in drawn]
    shares, idle = exclusive_ns(np.array(starts, np.int64) + EPOCH, durations, EPOCH, 1000)
    assert shares.sum() + idle == pytest.approx(1000, rel=1e-12)
    assert (shares >= 0).all()
    assert all(
        share <= max(duration, 0) + 1e-9 for share, duration in zip(shares, durations, strict=True)
    )


@pytest.mark.slow
@given(intervals, st.data())
def test_matches_counting_every_nanosecond_where_a_lower_level_hides_what_runs_behind_it(
    drawn, data
):
    levels = data.draw(st.lists(st.integers(0, 3), min_size=len(drawn), max_size=len(drawn)))
    starts, durations = [s for s, _ in drawn], [d for _, d in drawn]
    shares, idle = share_by_layer_ns(starts, durations, levels, 0, 1000)
    expected, quiet = np.zeros(len(drawn)), 0
    for t in range(1000):
        running = [i for i, (start, duration) in enumerate(drawn) if start <= t < start + duration]
        quiet += not running
        first = [i for i in running if levels[i] == min(levels[j] for j in running)]
        for i in first:
            expected[i] += 1 / len(first)
    np.testing.assert_allclose(shares, expected, atol=1e-9)
    assert idle == quiet
