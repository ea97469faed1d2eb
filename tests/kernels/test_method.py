"""The method: intervals by hand, outcomes, when it stops, what it discards and what it notices."""

import numpy as np

from curvescope.kernels.backends import UnsupportedError
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import (
    SAMPLE_RESOLUTIONS,
    BenchMeasurement,
    BenchOutcome,
    Method,
    median_interval,
)

from ..tables import ask_each
from .fakes import FakeBackend, exact

PROBLEM = Gemm(8, 8, 8)


def measure(backend, method=None, problem=PROBLEM):
    measurement = BenchMeasurement(problem)
    while not measurement.done(method or Method()):
        measurement.take(backend, method or Method())
    return measurement


def test_the_interval_of_the_median_is_that_of_the_tables():
    # Ranks of 95 % intervals: Conover, Practical Nonparametric Statistics, table A3; 6: 1 - 2·0.5^6
    # = 96.9 %.
    assert median_interval([5, 3, 1, 4, 2]) is None
    assert median_interval(range(1, 7)) == (1, 6)
    assert median_interval(range(1, 9)) == (1, 8)
    assert median_interval(range(1, 10)) == (2, 9 - 1)
    assert median_interval(range(1, 21)) == (6, 15)


def test_a_right_kernel_is_ok_and_stops_after_the_least_visits():
    backend = FakeBackend(exact)
    measurement = measure(backend)
    assert measurement.verification.outcome == BenchOutcome.OK
    assert len(measurement.visits) == 6
    assert measurement.interval_ns() == (1_000_000, 1_000_000)
    assert measurement.discarded == {"verified": 1, "warm-up": 6}
    assert measurement.notes(backend, Method()) == []


def test_a_planted_wrong_kernel_is_incorrect_and_not_timed():
    def wrong(problem, operands):
        result = exact(problem, operands)
        result[-1, -1] += 1e-3
        return result

    backend = FakeBackend(wrong)
    measurement = measure(backend)
    assert measurement.verification.outcome == BenchOutcome.INCORRECT
    assert "off by 0.001" in measurement.verification.detail
    assert backend.timer.taken == []
    assert measurement.visits == []


@ask_each(
    ("raised", "verify", "outcome", "detail"),
    [
        (None, False, BenchOutcome.NOT_VERIFIED, "not requested"),
        (UnsupportedError("no such thing"), True, BenchOutcome.UNSUPPORTED, "no such thing"),
        (RuntimeError("launch failed"), True, BenchOutcome.FAILED, "RuntimeError: launch failed"),
    ],
)
def test_a_missing_check_and_what_a_library_raises_are_outcomes(raised, verify, outcome, detail):
    class Broken(FakeBackend):
        def prepare(self, problem, operands):
            if raised is not None:
                raise raised
            return super().prepare(problem, operands)

    measurement = measure(Broken(exact), Method(verify=verify))
    assert measurement.verification.outcome == outcome
    assert detail in measurement.verification.detail
    assert bool(measurement.durations_ns()) == (raised is None)


def test_an_uncertain_median_takes_visits_until_the_time_is_up():
    # one discarded, two kept
    drift = [(9 + visit % 3) * 1_000_000 for visit in range(1000) for _ in range(3)]
    backend = FakeBackend(exact, durations_ns=drift)
    method = Method(time_limit_s=0.5, visit_s=0.02)
    measurement = measure(backend, method)
    assert 6 < len(measurement.visits) < 60
    assert measurement.spent_s >= 0.5
    (note,) = measurement.notes(backend, method)
    assert note.kind == "precision"
    assert "--time-limit" in note.sentence


def test_cold_flushes_before_every_sample_and_hot_never_does():
    cold = FakeBackend(exact)
    samples = len(measure(cold, Method(cache="cold")).durations_ns())
    assert cold.flushes == samples + 6  # and before the discarded ones
    hot = FakeBackend(exact)
    measure(hot, Method(cache="hot"))
    assert hot.flushes == 0


def test_a_kernel_shorter_than_the_timer_resolves_is_timed_many_at_once():
    backend = FakeBackend(exact, durations_ns=[200], resolution_ns=40.0)
    measurement = measure(backend, Method(cache="hot"))
    assert measurement.calls * 200 >= SAMPLE_RESOLUTIONS * 40
    assert measurement.calls * 200 < 2 * SAMPLE_RESOLUTIONS * 40
    assert measurement.discarded["calibration"] >= 2
    assert measurement.notes(backend, Method(cache="hot")) == []
    cold = FakeBackend(exact, durations_ns=[200], resolution_ns=40.0)
    measurement = measure(cold)
    assert measurement.calls == 1
    (note,) = measurement.notes(cold, Method())
    assert note.kind == "resolution"
    assert note.sentence.startswith("the timer's resolution is 20.0%")
    cold.timer.empty_ns = 40.0
    (note,) = measurement.notes(cold, Method())
    assert note.sentence.startswith("an empty pair of events is 20.0%")


def test_throttled_visits_are_dropped_counted_and_said():
    backend = FakeBackend(exact, throttle_reasons=("sw_thermal_slowdown",))
    method = Method(time_limit_s=0.5)
    measurement = measure(backend, method)
    assert measurement.durations_ns() == []
    assert measurement.discarded["throttled: sw_thermal_slowdown"] > 0
    (note,) = measurement.notes(backend, method)
    assert "sw_thermal_slowdown" in note.sentence


def test_a_run_that_takes_longer_than_all_the_time_is_its_own_only_sample():
    backend = FakeBackend(exact, durations_ns=[5_000_000_000])
    method = Method(time_limit_s=1.0)
    measurement = measure(backend, method)
    assert backend.runs == 2  # the verified one may hold a compilation, so it is none
    assert measurement.durations_ns() == [5_000_000_000]
    assert [note.kind for note in measurement.notes(backend, method)] == ["visits"]


def test_released_operands_are_made_again_and_are_the_same():
    backend = FakeBackend(exact)
    measurement = BenchMeasurement(PROBLEM)
    measurement.take(backend, Method())
    first = measurement.prepare(backend, Method()).result()
    measurement.release()
    np.testing.assert_array_equal(measurement.prepare(backend, Method()).result(), first)
