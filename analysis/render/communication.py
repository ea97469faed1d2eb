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
from .words import UNITS, share, shortened

_MOST_ROWS = 8
_RATES = (
    "Beside: share of the time in which another kernel runs. GB/s as nccl-tests counts them, over "
    "the time of the kernels, which also wait for other ranks: lower bounds; fastest is the bus "
    "rate of the fastest call."
)


def render_communication(
    found: Communication, limit: int | None = _MOST_ROWS, unit: str = STEP, gpus: int = 1
) -> RenderableType:
    """The collectives, the longest first, how much of them is exposed, and the kernels that they
    slow down.
    """
    whole = UNITS[unit] + (f", summed over {gpus} GPUs" if gpus > 1 else "")
    rows = table("collective", "message", "calls", "ms", "beside", "GB/s", "bus", "fastest")
    for collective in found.collectives[:limit]:
        rows.add_row(*_cells(collective))
    if rest := found.collectives[len(found.collectives[:limit]) :]:
        time_ms = number(sum(one.time_ms for one in rest))
        rows.add_row(
            f"{len(rest)} more", "", number(sum(one.calls for one in rest), 3), time_ms, *[""] * 4
        )
    exposed = share(found.exposed_ms, found.time_ms)
    text = (
        f"Communication runs for {number(found.time_ms)} ms of {whole}; for "
        f"{number(found.exposed_ms)} ms ({exposed}) of it no other kernel runs."
    )
    parts: list[RenderableType] = [rows, Text(text)]
    if found.beside_ms:
        parts.append(Text(_slow_down(found, whole)))
    if found.slowed:
        kernels = table(
            "beside communication", "calls", "ms alone", "ms beside", f"slow-down, ms of {whole}"
        )
        for kernel in found.slowed[:limit]:
            times = (number(kernel.alone_ms), number(kernel.beside_ms), signed(kernel.excess_ms))
            kernels.add_row(shortened(kernel.name), number(kernel.calls, 3), *times)
        parts.append(kernels)
    return Group(*parts, Text(_RATES, "dim"))


def _cells(one: Collectives) -> list[str]:
    rates = (one.algorithm_gb_per_s, one.bus_gb_per_s, one.fastest_bus_gb_per_s)
    ranks = None if one.ranks is None else counted(one.ranks, "rank")
    return [
        ", ".join(filter(None, (shortened(one.name, 30), ranks, one.algorithm))),
        "" if one.message_bytes is None else quantity(one.message_bytes, "B"),
        number(one.calls, 3),
        number(one.time_ms),
        share(one.overlapped, 1),
        *("" if rate is None else number(rate, 3) for rate in rates),
    ]


def _slow_down(found: Communication, whole: str) -> str:
    text = f"Other kernels beside it take {number(found.beside_ms)} ms of {whole}"
    if found.excess_ms is None or found.interval_ms is None:
        return f"{text}; none of them also runs alone, so their slow-down is unknown."
    low, high = found.interval_ms
    return (
        f"{text}; those that also run alone ({share(found.compared_ms, found.beside_ms)} of that) "
        f"take {signed(found.excess_ms)} ms ({number(low, 3)} to {number(high, 3)}) more than "
        "alone."
    )
