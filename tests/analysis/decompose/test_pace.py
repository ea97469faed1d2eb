"""The machine's pace, which a reference beside the steps sees, is taken out where that narrows."""

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.averaged_steps import samples_of_time
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.pace import REFERENCE, pace_of, scale_to_pace
from curvescope.analysis.decompose.statistics import FASTER_HALF

from .drifting_sweeps import drifting_sweep


@pytest.fixture
def steps():
    return drifting_sweep(np.random.default_rng(3))


def half_widths(steps):
    """Half-widths of all excesses, as shares of the step, together."""
    curve = cost_curve(steps, FASTER_HALF)
    values = {large: curve.evaluate(excess(large // 2, large)) for large in (2, 4, 8, 16, 32)}
    return sum((one.high - one.low) / 2 / curve.at(at).time_ms.value for at, one in values.items())


def test_a_reference_that_sees_the_pace_narrows_what_is_known_of_the_curve(steps):
    pace = pace_of(steps)
    assert 0.6 < pace.slope < 1.2
    assert pace.left < 0.7
    assert half_widths(steps) < 0.85 * half_widths(steps.drop(columns=REFERENCE))
    assert "beside the steps" in pace.sentence


def test_a_slow_machine_at_one_size_is_not_taken_for_a_slow_size(steps):
    """Each visit of one size falls into a time in which the machine is 3 % slower, as its reference
    says.
    """
    slow = np.where(steps["batch"] == 16, 1.03, 1.0)
    slower = steps.assign(
        duration_ns=steps["duration_ns"] * slow, reference_ns=steps[REFERENCE] * slow
    )

    def ratio(after, before):
        """T(16) over T(8) after, beside the same before."""
        curves = [cost_curve(one, FASTER_HALF) for one in (after, before)]
        after, before = (of.at(16).time_ms.value / of.at(8).time_ms.value for of in curves)
        return after / before

    raw = slower.drop(columns=REFERENCE), steps.drop(columns=REFERENCE)
    assert ratio(*raw) == pytest.approx(1.03)
    assert ratio(slower, steps) == pytest.approx(1.0, abs=0.01)


def test_what_sees_nothing_of_the_pace_is_not_used(steps):
    noise = np.random.default_rng(0).normal(0, 0.05, len(steps))
    assert pace_of(steps.assign(reference_ns=1e6 * np.exp(noise))) is None
    assert pace_of(steps.assign(reference_ns=1_000_000)) is None
    assert pace_of(steps.drop(columns=REFERENCE)) is None
    assert pace_of(steps.assign(reference_ns=np.nan)) is None
    assert pace_of(steps[steps["round"] < 2]) is None


def test_a_reference_that_depends_on_the_size_is_not_used(steps):
    """It would take the cost of a size for the pace of the machine."""
    warm = np.where(steps["batch"] >= 8, 1.15, 1.0)
    assert pace_of(steps.assign(reference_ns=steps[REFERENCE] * warm)) is None


def test_a_visit_without_a_reference_keeps_its_times(steps):
    lost = (steps["round"] == 1) & (steps["batch"] == 4)
    partly = steps.assign(reference_ns=steps[REFERENCE].mask(lost))
    after = scale_to_pace(partly)
    assert after.loc[lost, "duration_ns"].tolist() == steps.loc[lost, "duration_ns"].tolist()
    assert REFERENCE not in after


def test_a_recording_without_a_reference_reads_as_before():
    steps = pd.DataFrame(
        [
            {"batch": batch, "round": round_, "duration_ns": 10 * batch + round_, "profiled": False}
            for batch in (1, 2)
            for round_ in range(4)
        ]
    )
    pd.testing.assert_frame_equal(scale_to_pace(steps), steps)
    pd.testing.assert_frame_equal(samples_of_time(steps), steps)


def test_t_is_of_the_marked_steps_of_a_visit_that_has_some():
    kinds = [(0, None, 9), (0, True, 5), (1, True, 6), (2, None, 7)]
    steps = pd.DataFrame(
        [
            {"batch": 1, "round": round_, "marked": marked, "duration_ns": ns, "profiled": False}
            for round_, marked, ns in kinds
        ]
    )
    assert samples_of_time(steps)["duration_ns"].tolist() == [5, 6, 7]
