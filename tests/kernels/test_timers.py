"""Timers: what surrounds a sample, and CUDA events through their edge."""

from __future__ import annotations

from itertools import pairwise

import pytest

from curvescope.kernels.timers import CudaEvents, EventApi, PerfCounter, Sample


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


class Stream:
    """A device that runs what is put into it when it is waited for."""

    def __init__(self):
        self.queue, self.log, self.now_ms = [], [], 0.0

    def put(self, name, ms):
        self.queue.append((name, ms))
        self.log.append(name)

    def synchronize(self):
        self.log.append("synchronize")
        for name, ms in self.queue:
            if isinstance(name, Event):
                name.at_ms = self.now_ms
            self.now_ms += ms
        self.queue.clear()


class Event:
    at_ms = None

    def __repr__(self):
        return "event"


def test_events_stand_around_each_sample_and_the_host_waits_once():
    stream = Stream()
    api = EventApi(
        create=Event,
        record=lambda event: stream.put(event, 0.0),
        elapsed_ms=lambda start, end: end.at_ms - start.at_ms,
        synchronize=stream.synchronize,
    )
    samples = CudaEvents(api).take(lambda: stream.put("kernel", 0.5), 2, 3, lambda: stream.put("flush", 7.0))
    one = ["flush", "event", "kernel", "kernel", "event"]
    assert [str(entry) for entry in stream.log] == one * 3 + ["synchronize"]
    assert [sample.duration_ns for sample in samples] == [500_000] * 3
    starts = [sample.start_ns for sample in samples]
    assert [b - a for a, b in pairwise(starts)] == [8_000_000] * 2


@pytest.mark.parametrize(("host_us", "device_us", "waits"), [(5, 2, True), (5, 6, False), (5, 400, False)])
def test_samples_say_that_the_device_waited_for_the_host(host_us, device_us, waits):
    """The host needs 5 µs to queue a kernel; the device begins each when it is there and has done the last."""
    host_ns, ends_ns = 0, 0

    def run():
        nonlocal host_ns, ends_ns
        host_ns += host_us * 1000
        ends_ns = max(ends_ns, host_ns) + device_us * 1000

    def record(event):
        event.append(max(ends_ns, host_ns) / 1e6)

    api = EventApi(list, record, lambda start, end: end[0] - start[0], lambda: None)
    samples = CudaEvents(api, clock_ns=lambda: host_ns).take(run, 10, 20, None)
    assert [sample.waits_for_host for sample in samples] == [waits] * 20
