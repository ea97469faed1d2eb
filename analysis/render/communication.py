"""The communication of a step as text: its collectives with their rates, and the kernels that they
slow down.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, quantity, signed
from ...profiling.recording.store import STEP
from ..decompose.communication import Collectives, Communication
from .tables import table
from .words import UNITS, share, shorten

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
    whole = UNITS[unit] + (f", summed over {gpus} GPUs" if gpus > 1 else "")
    rows = table("collective", "message", "calls", "ms", "beside", "GB/s", "bus", "fastest")
    for collective in communication.collectives[:limit]:
        rows.add_row(*_cells(collective))
    if rest := communication.collectives[len(communication.collectives[:limit]) :]:
        time_ms = number(sum(collective.time_ms for collective in rest))
        rows.add_row(
            f"{len(rest)} more",
            "",
            number(sum(collective.calls for collective in rest), 3),
            time_ms,
            *[""] * 4,
        )
    exposed = share(communication.exposed_ms, communication.time_ms)
    text = (
        f"Communication runs for {number(communication.time_ms)} ms of {whole}; for "
        f"{number(communication.exposed_ms)} ms ({exposed}) of it no other kernel runs."
    )
    parts: list[RenderableType] = [rows, Text(text)]
    if communication.beside_ms:
        parts.append(Text(_slow_down(communication, whole)))
    if communication.slowed:
        kernels = table(
            "beside communication", "calls", "ms alone", "ms beside", f"slow-down, ms of {whole}"
        )
        for kernel in communication.slowed[:limit]:
            times = (number(kernel.alone_ms), number(kernel.beside_ms), signed(kernel.excess_ms))
            kernels.add_row(shorten(kernel.name), number(kernel.calls, 3), *times)
        parts.append(kernels)
    return Group(*parts, Text(_RATES, "dim"))


def _cells(collectives: Collectives) -> list[str]:
    rates = (
        collectives.algorithm_gb_per_s,
        collectives.bus_gb_per_s,
        collectives.fastest_bus_gb_per_s,
    )
    ranks = None if collectives.ranks is None else counted(collectives.ranks, "rank")
    return [
        ", ".join(filter(None, (shorten(collectives.name, 30), ranks, collectives.algorithm))),
        "" if collectives.message_bytes is None else quantity(collectives.message_bytes, "B"),
        number(collectives.calls, 3),
        number(collectives.time_ms),
        share(collectives.overlapped, 1),
        *("" if rate is None else number(rate, 3) for rate in rates),
    ]


def _slow_down(communication: Communication, whole: str) -> str:
    text = f"Other kernels beside it take {number(communication.beside_ms)} ms of {whole}"
    if communication.excess_ms is None or communication.interval_ms is None:
        return f"{text}; none of them also runs alone, so their slow-down is unknown."
    low, high = communication.interval_ms
    compared = share(communication.compared_ms, communication.beside_ms)
    more = f"{signed(communication.excess_ms)} ms ({number(low, 3)} to {number(high, 3)})"
    return f"{text}; those that also run alone ({compared} of that) take {more} more than alone."
