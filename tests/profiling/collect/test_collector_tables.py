"""Arithmetic between the collector's chunks and the tables: clocks, columns as they were stored."""

import numpy as np

from curvescope.profiling.collect.chunks import Piece, ProcessChunks, TablePart
from curvescope.profiling.collect.cupti import Clock

from ...tables import ask_each


def process_with(table, **columns):
    pieces = {
        name: Piece(len(v), np.int64(0), np.array(v, np.uint64)) for name, v in columns.items()
    }
    return ProcessChunks(tables={table: [pieces]})


def test_times_move_by_the_offset_between_the_samples_and_keep_their_nanoseconds():
    epoch = 1_760_000_000_123_456_789  # where floating point holds no nanoseconds
    clock = Clock.of(
        # The second sample is 100 ns later on the host than on CUPTI's clock: CUPTI's runs slow.
        process_with(
            "clock", host_ns=[1000, 2100], cupti_ns=[epoch, epoch + 1000], error_ns=[30, 20]
        )
    )
    times = np.array([epoch, epoch + 500, epoch + 1000, epoch + 5001, 0])
    assert clock.to_host(times).tolist() == [1000, 1550, 2100, 6101, 0]
    assert clock.error_ns == 30 + 100


def test_without_a_sample_times_stay_and_no_error_is_said():
    clock = Clock.of(ProcessChunks())
    assert clock.to_host(np.array([5, 0])).tolist() == [5, 0]
    assert clock.error_ns is None


@ask_each("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_columns_widen_over_chunks_of_different_width(dtype):
    narrow = Piece(3, np.int64(-5), np.array([0, 1, np.iinfo(np.uint8).max], dtype))
    constant = Piece(2, np.int64(1 << 40), None)
    part = TablePart([{"x": narrow}, {"x": constant}])
    assert part.rows == 5
    assert part["x"].tolist() == [-5, -4, 250, 1 << 40, 1 << 40]


def test_parts_hold_whole_chunks_and_no_more_rows_than_asked_for():
    process = ProcessChunks(
        tables={"t": [{"x": Piece(n, np.int64(n), None)} for n in (3, 3, 3, 10, 1)]}
    )
    assert [part.rows for part in process.parts("t", 7)] == [6, 3, 10, 1]
    assert list(process.parts("absent", 7)) == []
    assert process.table("absent").rows == 0
