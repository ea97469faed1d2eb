"""The communication of a step as text: its collectives with their rates, and the kernels that they
slow down.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, quantity, with_sign
from ...profiling.recording.store import STEP
from ..decompose.communication import Collectives, Communication
from .tables import table
from .words import UNITS, join_texts, number_cell, share, shorten, show_ms

_MOST_ROWS = 8
_RATES = (
    "Beside: share of the time in which another kernel runs. GB/s as nccl-tests counts them, over "
    "the time of the kernels, which also wait for other ranks: lower bounds; fastest is the bus "
    "rate of the fastest call."
)


def render_communication(
    communication: Communication, limit: int | None = _MOST_ROWS, unit: str = STEP, gpus: int = 1
) -> RenderableType:
    """The collectives, the longest first, how much of them is exposed, and the kernels that they
    slow down.
    """
    whole = UNITS[unit]
    if gpus > 1:
        whole += f", summed over {gpus} GPUs"
    shown = communication.collectives[:limit]
    rest = communication.collectives[len(shown) :]
    rows = table("collective", "message", "calls", "ms", "beside", "GB/s", "bus", "fastest")
    for collective in shown:
        rows.add_row(*_cells(collective))
    if rest:
        calls = number(sum(collective.calls for collective in rest), 3)
        time_ms = number(sum(collective.time_ms for collective in rest))
        rows.add_row(f"{len(rest)} more", "", calls, time_ms, *[""] * 4)
    share_exposed = share(communication.exposed_ms, communication.time_ms)
    exposed = f"for {show_ms(communication.exposed_ms)} ({share_exposed}) of it"
    runs = f"Communication runs for {show_ms(communication.time_ms)} of {whole}"
    parts: list[RenderableType] = [rows, Text(f"{runs}; {exposed} no other kernel runs.")]
    if communication.beside_ms:
        parts.append(Text(_slow_down(communication, whole)))
    if communication.slowed:
        heads = ("calls", "ms alone", "ms beside", f"slow-down, ms of {whole}")
        kernels = table("beside communication", *heads)
        for kernel in communication.slowed[:limit]:
            kernels.add_row(
                shorten(kernel.name),
                number(kernel.calls, 3),
                number(kernel.alone_ms),
                number(kernel.beside_ms),
                with_sign(kernel.excess_ms),
            )
        parts.append(kernels)
    return Group(*parts, Text(_RATES, "dim"))


def _cells(collectives: Collectives) -> list[str]:
    ranks, message = "", ""
    if collectives.ranks is not None:
        ranks = counted(collectives.ranks, "rank")
    if collectives.message_bytes is not None:
        message = quantity(collectives.message_bytes, "B")
    name = shorten(collectives.name, 30)
    cells = [
        join_texts([name, ranks, collectives.algorithm]),
        message,
        number(collectives.calls, 3),
        number(collectives.time_ms),
        share(collectives.overlapped, 1),
    ]
    for rate in (
        collectives.algorithm_gb_per_s,
        collectives.bus_gb_per_s,
        collectives.fastest_bus_gb_per_s,
    ):
        cells.append(number_cell(rate, 3))
    return cells


def _slow_down(communication: Communication, whole: str) -> str:
    text = f"Other kernels beside it take {show_ms(communication.beside_ms)} of {whole}"
    if communication.excess_ms is None or communication.interval_ms is None:
        return f"{text}; none of them also runs alone, so their slow-down is unknown."
    low, high = communication.interval_ms
    compared = share(communication.compared_ms, communication.beside_ms)
    excess = with_sign(communication.excess_ms)
    more = f"{excess} ms ({number(low, 3)} to {number(high, 3)})"
    return f"{text}; those that also run alone ({compared} of that) take {more} more than alone."
