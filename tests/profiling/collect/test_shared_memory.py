"""The reader of a ring, which a process may have left, or may be, between any two of its stores."""

import mmap
import os

import numpy as np
import pytest

from curvescope.profiling.collect import shared_memory
from curvescope.profiling.collect.chunks import EVENT, POP, PUSH

CAPACITY = shared_memory._RING_CAPACITY
HEADER_BYTES = shared_memory._RING_HEADER.itemsize
BLOCK = shared_memory._Block(
    shared_memory._STEP, shared_memory._RING, HEADER_BYTES + CAPACITY * EVENT.itemsize
)
STORES = 3  # of an event: the event, the count, the head


class Producer:
    """A thread that pushes and pops in turn: `step` makes the next of its stores, as `append` of
    event_ring.h does.
    """

    def __init__(self):
        self.memory = bytearray(BLOCK.bytes)
        self.header = np.frombuffer(self.memory, shared_memory._RING_HEADER, 1)[0]
        self.events = np.frombuffer(self.memory, EVENT, CAPACITY, HEADER_BYTES)
        self.header["magic"], self.header["id"], self.header["thread"] = (
            shared_memory._BLOCK_MAGIC,
            1,
            7,
        )
        self.stores = 0

    def step(self):
        position, store = divmod(self.stores, STORES)
        if store == 0:
            self.events[position % CAPACITY]["kind"] = POP if position % 2 else PUSH
        elif store == 1:
            self.header["begun"][(position + 1) % 2] = begun(position + 1)
        else:
            self.header["head"] = position + 1
        self.stores += 1

    def killed(self):
        """The ring as a recording command reads it once the process is gone."""
        file = os.memfd_create("ring")
        try:
            os.pwrite(file, self.memory, BLOCK.at)
            return shared_memory._Ring.read(file, BLOCK)
        finally:
            os.close(file)


def begun(head):
    """Pushes among the first events."""
    return (head + 1) // 2


def test_killed_after_any_store_the_count_is_of_the_events_that_the_head_covers():
    producer = Producer()
    for stores in range(8 * STORES):
        ring = producer.killed()
        assert (ring.id, ring.thread, ring.first) == (1, 7, 0)
        assert list(ring.events["kind"]) == ([PUSH, POP] * 4)[: stores // STORES]
        assert ring.begun == begun(len(ring.events))
        producer.step()


def test_a_full_ring_that_began_again_is_read_in_order():
    producer = Producer()
    for _ in range(
        (CAPACITY + 3) * STORES + 2
    ):  # the event after the last is there, and its count too
        producer.step()
    producer.header["tail"] = 5
    producer.events["time_ns"] = np.arange(CAPACITY)
    ring = producer.killed()
    assert (ring.first, ring.begun) == (5, begun(CAPACITY + 3))
    assert list(ring.events["time_ns"]) == [*range(5, CAPACITY), 0, 1, 2]


@pytest.fixture
def running(monkeypatch):
    """A producer that goes on by so many stores between any two reads of its memory."""
    producer = Producer()

    class Memory:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __getitem__(self, part):
            read = bytes(producer.memory[part])
            producer.between()
            return read

    monkeypatch.setattr(mmap, "mmap", Memory)
    return producer


@pytest.mark.parametrize("meanwhile", range(1, 4 * STORES))
def test_of_a_running_process_nothing_is_counted_that_is_not_read(running, meanwhile):
    running.between = lambda: [running.step() for _ in range(meanwhile)]
    for _ in range(20):
        ring = shared_memory._Ring.read(-1, BLOCK)
        assert list(ring.events["kind"]) == [
            POP if position % 2 else PUSH for position in range(len(ring.events))
        ]
        assert ring.begun <= begun(len(ring.events))


def test_of_a_ring_that_its_process_frees_meanwhile_no_event_is_made_up(running):
    running.between = lambda: None
    for _ in range(4 * STORES):
        running.step()
    assert len(shared_memory._Ring.read(-1, BLOCK).events) == 4
    reads = iter(
        [lambda: None, lambda: running.memory.__setitem__(slice(None), bytes(BLOCK.bytes))]
    )
    running.between = lambda: next(reads, lambda: None)()
    assert len(shared_memory._Ring.read(-1, BLOCK).events) == 0
