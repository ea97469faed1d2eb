"""Columns of API calls and of the device work that they launch, as joins need them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .nesting import Bools, Codes, Ints


@dataclass
class Launches:
    """API calls, arrays of shape (calls,).

    Attributes:
        start_ns: starts.
        process: number of the process.
        correlation: CUDA's correlation id, which the launched work carries, too.
        range_: index of the innermost range around each, or `NONE`.
        step: number of the marked step around each, or `NONE`.
    """

    start_ns: Ints
    process: Codes
    correlation: Ints
    range_: Codes
    step: Codes


@dataclass
class DeviceWork:
    """Kernels, memcpys and memsets in the order of the written rows, arrays of shape (rows,).

    Rows without time have start and end 0 and `timed` False. Codes have 32 bits, to save memory for ten million rows.

    Attributes:
        start_ns: starts.
        end_ns: ends.
        timed: whether each has both.
        range_: index of the innermost range around each row's launch, or `NONE`.
        step: number of each row's step, or `NONE`; without marks all `NONE` until `Timeline.find_steps`.
        kernel_name: code of a kernel's name; `NONE` for memcpys and memsets.
        stream: number of the stream, distinct over devices.
        launch: index of the API call that launched each row, or `NONE`; needed only to find steps without marks.
        on_host: whether the host itself did the work.
        captured: whether a CUDA graph replayed it whose capture is known: its range is that of the capture.
    """

    start_ns: Ints
    end_ns: Ints
    timed: Bools
    range_: Codes
    step: Codes
    kernel_name: Codes
    stream: Codes
    launch: Codes
    on_host: Bools
    captured: Bools


@dataclass
class Captures:
    """Where device work of CUDA graphs was captured; arrays of shape (rows,).

    Attributes:
        of_graph: whether a CUDA graph replayed the row.
        time_ns: time of the capture, `NONE` if unknown or outside graphs.
        thread: thread that captured it.
    """

    of_graph: Bools
    time_ns: Ints
    thread: Ints


@dataclass
class Placed:
    """Ranges and steps of some device work, by its launches; arrays of shape (rows,).

    Attributes:
        range_: index of the innermost range around each row's launch, or `NONE`.
        step: number of the marked step around it, or `NONE`.
        launch: index of each row's launch, or `NONE`.
        before_launch: number and largest lead, see `Timeline`, for these rows.
        lost: named counts, for these rows.
    """

    range_: Codes
    step: Codes
    launch: Codes
    before_launch: tuple[int, int]
    lost: Counter[str]
