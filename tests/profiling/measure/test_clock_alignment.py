"""Clocks of two nodes, held against each other over a slow and uneven network."""

from hypothesis import given
from hypothesis import strategies as st

from curvescope.profiling.measure.clock_alignment import (
    ClockAlignment,
    Reading,
    alignment_of,
    number_nodes,
    read_clock,
)

HOUR_NS = 3600 * 10**9


class Network:
    """Two clocks, and messages between them that take what they are told to."""

    def __init__(self, offset_ns, drift=0.0, delays=()):
        self.now, self.offset_ns, self.drift, self.delays = 10**12, offset_ns, drift, iter(delays)

    def reference_ns(self):
        return self.now

    def theirs_ns(self):
        return self.now - self.offset_ns + round(self.drift * (self.now - 10**12))

    def ask(self):
        there, back = next(self.delays)
        self.now += there
        read = self.theirs_ns()
        self.now += back
        return read


ways = st.tuples(st.integers(1, 10**7), st.integers(1, 10**7))


@given(st.integers(-HOUR_NS, HOUR_NS), st.lists(ways, min_size=1, max_size=8))
def test_true_offset_lies_within_the_stated_error(offset_ns, delays):
    network = Network(offset_ns, delays=delays)
    reading = read_clock(network.ask, network.reference_ns, len(delays))
    clock = ClockAlignment((reading,))
    assert reading.round_trip_ns == min(there + back for there, back in delays)
    assert abs(clock.offset_ns(reading.at_ns) - offset_ns) <= clock.error_ns(reading.at_ns)


@given(st.floats(-1e-4, 1e-4), st.lists(ways, min_size=4, max_size=4), st.floats(0, 1))
def test_drift_between_two_readings_is_followed_and_in_the_error(drift, delays, when):
    network = Network(5 * 10**9, drift, delays)
    first = read_clock(network.ask, network.reference_ns, 2)
    network.now += 60 * 10**9
    last = read_clock(network.ask, network.reference_ns, 2)
    clock = ClockAlignment((first, last))
    network.now = 10**12 + round((network.now - 10**12) * when)
    theirs = network.theirs_ns()
    assert abs(theirs + clock.offset_ns(theirs) - network.now) <= clock.error_ns(theirs)


def test_error_of_one_exchange_by_hand():
    """Asked at 1000, answered at 1400; theirs says 50 in between: 1200 ± 200 is 50, so 1150 is
    added.
    """
    clock = iter([1000, 1400])
    reading = read_clock(lambda: 50, lambda: next(clock), 1)
    assert reading == Reading(at_ns=50, offset_ns=1150, round_trip_ns=400)
    assert ClockAlignment((reading,)).error_ns(50) == 201


def test_a_shared_clock_needs_nothing():
    shared = alignment_of(None)
    assert (shared.offset_ns(123), shared.error_ns(123)) == (0, 0)


def test_alignment_comes_back_from_a_recording():
    clock = ClockAlignment((Reading(1, 2, 3), Reading(5, 4, 3)))
    assert alignment_of(clock.entry()) == clock


def test_nodes_are_numbered_by_their_first_rank():
    assert number_nodes(["b", "b", "a", "b", "c"]) == [0, 0, 1, 0, 2]
