"""Columns of API calls and of the device work that they launch, as joins need them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .nesting import Bools, Codes, Ints


@dataclass
class Launches:
    """API calls, arrays of shape (calls,)."""

    start_ns: Ints
    process: Codes
    correlation: Ints  # CUDA's correlation id, which the launched work carries, too
    range_: Codes  # index of the innermost range around each, or `NONE`
    step: Codes  # number of the marked step around each, or `NONE`


@dataclass
class DeviceWork:
    """Kernels, memcpys and memsets in the order of the written rows, arrays of shape (rows,).

    Rows without time have start and end 0 and `timed` False. Codes have 32 bits, to save memory for
    ten million rows.
    """

    start_ns: Ints
    end_ns: Ints
    timed: Bools  # whether each has both
    range_: Codes  # index of the innermost range around each row's launch, or `NONE`
    # number of each row's step, or `NONE`; without marks all `NONE` until `Timeline.find_steps`
    step: Codes
    kernel_name: Codes  # code of a kernel's name; `NONE` for memcpys and memsets
    stream: Codes  # number of the stream, distinct over devices
    # index of the API call that launched each row, or `NONE`; needed only to find steps without
    # marks
    launch: Codes
    on_host: Bools  # whether the host itself did the work
    # whether a CUDA graph replayed it whose capture is known: its range is that of the capture
    captured: Bools


@dataclass
class Captures:
    """Where device work of CUDA graphs was captured; arrays of shape (rows,)."""

    of_graph: Bools  # whether a CUDA graph replayed the row
    time_ns: Ints  # time of the capture, `NONE` if unknown or outside graphs
    thread: Ints  # thread that captured it


@dataclass
class Placed:
    """Ranges and steps of some device work, by its launches; arrays of shape (rows,)."""

    range_: Codes  # index of the innermost range around each row's launch, or `NONE`
    step: Codes  # number of the marked step around it, or `NONE`
    launch: Codes  # index of each row's launch, or `NONE`
    before_launch: tuple[int, int]  # number and largest lead, see `Timeline`, for these rows
    lost: Counter[str]  # named counts, for these rows
