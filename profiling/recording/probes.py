"""The entry `probes` of `recording.json`: what a sweep found between its sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .axis import Axis

_NAMED = 8  # sizes in a sentence


def jumps_of(meta: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The last size on the line and the first off it, of every jump that the sweep looked for in further rounds."""
    return tuple((int(before), int(after)) for before, after in (meta.get("probes") or {}).get("found", ()))


def probes_sentence(meta: Mapping[str, Any], axis: Axis, jumps: Collection[tuple[int, int]]) -> str | None:
    """What was probed, and where the cost jumps: at those of `jumps_of` in `jumps`; None if nothing was probed."""
    entry = meta.get("probes") or {}
    if not (sizes := sorted({visit["batch"] for visit in entry.get("visits", ())})):
        return None
    named = ", ".join(map(str, sizes[:_NAMED])) + (", …" if len(sizes) > _NAMED else "")
    found = [f"from {before} to {after}" for before, after in sorted(jumps)]
    what = [f"the cost jumps {' and '.join(found)}"] if found else []
    doubted = [f"{before} and {after}" for before, after in jumps_of(meta) if (before, after) not in jumps]
    what += [f"further rounds show no jump between {' and between '.join(doubted)}"] if doubted else []
    what = what or [f"none leaves the line by {100 * entry['least']:.0f} %"]
    return f"Probed between the {axis.values}: {named} ({entry['seconds']:.0f} s): {'; '.join(what)}."
