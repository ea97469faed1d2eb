"""Shares of peaks, as cells of a table and the note below it."""

from __future__ import annotations

from collections.abc import Iterable

from ...profiling.hardware.limits import CEILING, PEAK, OfPeak, is_at_roof

_LIMITED = {"compute": "FLOPs", "DRAM": "DRAM"}  # roofs, as a cell names them
_OF_KIND = {CEILING: "measured on the device", PEAK: "its datasheet has it"}


def show_of_peak(reached: OfPeak | None) -> str:
    """A share of a roof as a cell."""
    if reached is None:
        return ""
    return f"{show_share(reached.share, reached.kind)} {_LIMITED[reached.level]}"


def show_share(share: float, kind: str) -> str:
    """A share of a roof, which nothing passes by the error of the roof."""
    return "at roof" if is_at_roof(share, kind) else f"{share:.0%}"


def note_of_peaks(listed: Iterable[OfPeak | None]) -> str | None:
    """Which peaks the shares are of; None without one."""
    kinds = {_LIMITED[each.level]: _OF_KIND[each.kind] for each in listed if each is not None}
    if not kinds:
        return None
    named = [f"{name} as {kind}" for name, kind in kinds.items()]
    return f"Of peak: the roof that a row comes nearest to, {' or '.join(named)}."
