"""The entry `probes` of `recording.json`: what a sweep found between its sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .axis import Axis

_NAMED = 8  # sizes in a sentence


def jumps_of(meta: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The last size on the line and the first off it, of every jump that the sweep looked for in further rounds."""
    return tuple((int(before), int(after)) for before, after in (meta.get("probes") or {}).get("found", ()))


def probes_sentence(
    meta: Mapping[str, Any],
    axis: Axis,
    jumps: Collection[tuple[int, int]],
    falls: Collection[tuple[int, int]] = (),
) -> str | None:
    """What was probed, and where the cost jumps, or falls as the size grows; None if nothing was probed.

    It does so at those places of `jumps_of` that are in `jumps` or in `falls`.
    """
    entry = meta.get("probes") or {}
    if not (sizes := sorted({visit["batch"] for visit in entry.get("visits", ())})):
        return None
    named = ", ".join(map(str, sizes[:_NAMED])) + (", …" if len(sizes) > _NAMED else "")
    what = []
    for does, places in (("jumps", jumps), ("falls", falls)):
        found = [f"from {before} to {after}" for before, after in sorted(places)]
        what += [f"the cost {does} {' and '.join(found)}"] if found else []
    undoubted = {*jumps, *falls}
    doubted = [f"{place[0]} and {place[1]}" for place in jumps_of(meta) if place not in undoubted]
    what += [f"further rounds show no jump between {' and between '.join(doubted)}"] if doubted else []
    what = what or [f"none leaves the line by {100 * entry['least']:.0f} %"]
    return f"Probed between the {axis.values}: {named} ({entry['seconds']:.0f} s): {'; '.join(what)}."
