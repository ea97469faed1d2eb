"""The reference beside timed steps takes a twentieth of their time at most."""

import pytest

from curvescope.profiling.hardware.reference import SHARE, Reference, work


class Clock:
    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns

    def work(self):
        self.now_ns += 1_000


@pytest.fixture
def clock():
    return Clock()


def test_it_runs_once_to_know_what_it_takes(clock):
    assert Reference(clock, clock.work).cost_ns == 5_000


@pytest.mark.parametrize("steps_ns", [100_000, 200_000, 450_000, 10**9])
def test_it_takes_at_most_its_share_of_the_steps(clock, steps_ns):
    reference = Reference(clock, clock.work)
    assert reference.is_due(steps_ns)
    assert not reference.is_due(99_999)
    began_ns = clock()
    assert reference.read(steps_ns) == 1_000
    assert 0 < clock() - began_ns <= SHARE * steps_ns


def test_a_part_that_is_interrupted_does_not_count(clock):
    costs = iter([1_000] * 5 + [1_000, 1_000, 9_000_000, 1_000, 1_000])
    reference = Reference(clock, lambda: setattr(clock, "now_ns", clock.now_ns + next(costs)))
    assert reference.read(0.0) == 1_000


def test_it_fits_where_it_can_run_before_and_after(clock):
    reference = Reference(clock, clock.work)
    assert reference.fits(200_000)
    assert not reference.fits(199_999)
    assert not Reference(clock, lambda: None).fits(10**9)  # a clock that it does not advance


def test_its_work_is_real():
    work()
    assert Reference().cost_ns > 10_000
