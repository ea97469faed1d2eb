"""Timers: what surrounds a sample, and CUDA events through their edge."""

import itertools
from dataclasses import replace

import pytest

from curvescope.kernels.timers import PerfCounter, Sample, without_waiting

from ..tables import ask_each
from .fakes import VirtualStream


def test_the_performance_counter_times_calls_not_what_comes_before():
    now = 0

    def clock():
        return now

    def run():
        nonlocal now
        now += 100

    def before():
        nonlocal now
        now += 10_000

    timer = PerfCounter(clock)
    assert timer.take(run, 1, 2, before) == [Sample(10_000, 100), Sample(20_100, 100)]
    assert timer.take(run, 4, 1, None) == [Sample(20_200, 100)]
    assert timer.resolution_ns >= 1


def test_samples_start_where_the_device_began_them():
    """The clocks of the events and of the host agree at the beginning: 5 µs for a call, 20 µs and
    more of hold.
    """
    stream = VirtualStream(call_ns=5_000, cycles_per_ns=3)
    first, second = stream.timer().take(
        lambda: stream.launch(500_000), 2, 2, lambda: stream.launch(7_000_000)
    )
    assert first.start_ns == 5_000 + 5_000 + 7_000_000 + 20_000
    assert 1_000_000 + 7_000_000 + 20_000 <= second.start_ns - first.start_ns < 8_100_000


@ask_each(("stalled_us", "waits"), [(0, False), (40, False), (1_000, True)])
def test_a_sample_that_waited_for_the_host_says_so(stalled_us, waits):
    """In one of six runs the host stalls between the first event and a kernel of 60 µs; a hold
    covers 40 µs.
    """
    stream, runs = VirtualStream(), itertools.count()

    def run():
        if next(runs) == 4:
            stream.work_on_host(1000 * stalled_us)
        stream.launch(60_000)

    timer = stream.timer()
    (first,) = timer.take(run, 1, 1, None)
    assert not first.waits_for_host
    samples = [sample for _ in range(5) for sample in timer.take(run, 1, 1, None)]
    assert [sample.waits_for_host for sample in samples] == [False] * 3 + [waits] + [False]
    assert {round(sample.duration_ns) for sample in without_waiting(samples)} == {60_000}


@ask_each(("kernel_us", "waits"), [(2, True), (60, True), (900, True), (1200, False)])
def test_without_a_hold_only_long_kernels_do_not_wait(kernel_us, waits):
    """The host needs 21 µs for a kernel between two events: that is 2 % of 1050 µs."""
    stream = VirtualStream()
    timer = stream.timer()
    timer.api = replace(timer.api, hold=None)
    (sample,) = timer.take(lambda: stream.launch(1000 * kernel_us), 1, 1, None)
    assert sample.waits_for_host is waits


def test_if_each_sample_waits_the_work_itself_does():
    waiting = [Sample(0, 5.0, True), Sample(9, 6.0, True)]
    assert without_waiting(waiting) == waiting
    assert without_waiting([*waiting, Sample(20, 4.0)]) == [Sample(20, 4.0)]


def test_a_hold_is_short_for_work_that_fills_the_queue():
    """Of 3,000 launches the host waits for the device; the next hold is limited all the same."""
    stream = VirtualStream()
    timer = stream.timer()

    def run():
        for _ in range(3000):
            stream.launch(9_000)

    for _ in range(5):
        began_ns = stream.host_ns
        (sample,) = timer.take(run, 1, 1, None)
        assert sample.duration_ns == pytest.approx(27e6)
    assert stream.host_ns - began_ns < 27e6 + 20e6 * 3 / 1.98 + 1e6


@ask_each(("pair_ns", "resolution_ns"), [(1_300, 1_300), (200, 500)])
def test_a_pair_of_events_around_nothing_is_the_error_of_a_sample(pair_ns, resolution_ns):
    """It is measured once a process: the host needs 7 µs for a call, and the pair reads less."""
    stream = VirtualStream(pair_ns=pair_ns)
    timer = stream.timer()
    assert timer.empty_ns == pytest.approx(pair_ns)
    assert timer.resolution_ns == pytest.approx(resolution_ns)
    before = stream.host_ns
    assert timer.empty_ns == pytest.approx(pair_ns)
    assert stream.host_ns == before


def test_the_clock_of_the_host_reads_nothing_around_nothing():
    assert PerfCounter().empty_ns is None
