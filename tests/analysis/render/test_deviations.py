"""Anomalies in plain words."""

import pandas as pd
import pytest

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.render.deviations import cost_line, deviation, off_by
from curvescope.analysis.render.headline import finding_sentence, largest_sentence
from curvescope.analysis.render.remedies import SavedAt
from curvescope.profiling.recording.axis import Axis

from .test_headline import diagnosis_of


def curve_of(times_ms):
    rows = [
        {"batch": batch, "round": round_, "profiled": False, "duration_ns": ms * 1e6, "step": 0}
        for batch, ms in times_ms.items()
        for round_ in range(3)
    ]
    steps = pd.DataFrame(rows)
    return cost_curve(steps.assign(step=range(len(steps)), start_ns=range(len(steps))))


def test_a_slow_size_is_not_told_as_a_deviation_of_the_next():
    """From 17, which takes longer than 32, a line falls: 64 is not 69 ms too slow."""
    curve = curve_of({16: 22.8, 17: 49.5, 32: 31.2, 64: 61.4})
    functional = bend(17, 32, 64)
    said = deviation(functional, curve.evaluate(functional).value, curve, Axis())
    assert said == "batch 17 takes 49.50 ms, 26.2 more than the line between 16 and 32"


def test_a_first_size_that_is_slow_is_told_beside_the_next():
    curve = curve_of({1: 7.9, 2: 7.5, 4: 9.65})
    functional = bend(1, 2, 4)
    said = deviation(functional, curve.evaluate(functional).value, curve, Axis())
    assert said == "batch 1 takes 7.900 ms, 0.400 more than 2"


def test_bends_are_told_at_the_size_that_is_slow():
    curve = curve_of({4: 190.0, 8: 260.0, 16: 380.0, 32: 660.0})
    axis = Axis()
    down, up = bend(4, 8, 16), bend(8, 16, 32)
    said = [deviation(one, curve.evaluate(one).value, curve, axis) for one in (down, up)]
    assert said == [
        "batch 8 takes 260.0 ms, 6.67 more than the line between 4 and 16",
        "batch 32 takes 660.0 ms, 40.0 more than the line through 8 and 16",
    ]


def test_what_is_no_multiple_is_told_a_sample():
    """It was `1.80 ms more than 1.05263 times batch 19`."""
    curve = curve_of({19: 19.0, 20: 22.0, 40: 46.0})
    pairs = [excess(19, 20), excess(20, 40)]
    said = [deviation(pair, curve.evaluate(pair).value, curve, Axis()) for pair in pairs]
    assert said == [
        "batch 20 costs 10 % more a sample than 19",
        "batch 40 costs 2.00 ms (4% of the step) more than 2 times batch 20",
    ]


def test_the_line_of_a_curve_and_what_is_off_it():
    curve = curve_of({1: 110.0, 2: 120.0, 4: 140.0, 8: 188.0})
    line = cost_line(curve_of({1: 110.0, 2: 120.0, 4: 140.0}))
    assert (line.fixed_ms, line.each_ms) == pytest.approx((100.0, 10.0))
    assert line.fixed_share(1) == pytest.approx(100 / 110)
    assert off_by(curve, 4).value == pytest.approx(140 - (120 + 68 / 3))
    assert off_by(curve, 1) is None
    assert off_by(curve, 8).value == pytest.approx(188 - (140 + 4 * 10))
    assert off_by(curve, 4, apart=(8,)).value == pytest.approx(0)
    assert cost_line(curve_of({1: 110.0, 2: 120.0})) is None


def test_where_the_time_goes_names_the_size_that_was_profiled():
    """The curve went on to 128, and no step of it was profiled."""
    diagnosis = diagnosis_of(cores=0.05)
    diagnosis.curve.conditions, diagnosis.axis = [8, 128], Axis()
    assert largest_sentence(diagnosis, {}).startswith("Batch 8: 90% of the profiled step is idle")


@pytest.mark.slow
def test_a_cause_is_said_with_its_own_anomaly(example_diagnosis):
    """It followed the amount of another one, and read as a part of that."""
    first, second, *_ = finding_sentence(example_diagnosis).split(". ")
    assert "slow library call" not in first
    assert second.startswith("Batch 8 takes 257.9 ms, 5.64 more than the line between 4 and 16: ")
    assert second.endswith("slow library call in fc6 (Linear) forward and 1 more makes 98 % of it, "
                           "confirmed by experiment")  # fmt: skip


@pytest.fixture(scope="module")
def example_diagnosis():
    from curvescope.analysis.diagnosis.explain import explain
    from curvescope.profiling.recording.store import open_recording

    from ...shared import EXAMPLE

    return explain(open_recording(EXAMPLE))


def test_an_interval_that_spans_everything_says_nothing():
    known = SavedAt(8, Estimate(0.2, -0.05, 0.4, 0.1), proven=False)
    unknown = SavedAt(8, Estimate(0.2, -5.07, 0.93, 0.5), proven=False)
    assert (known.text, unknown.text) == ("-5 to 40 %", "unknown")
