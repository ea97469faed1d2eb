"""Plugins from other packages: readers, causes and devices, found by entry points.

A plugin that cannot be loaded, lacks required attributes, or fails gets a warning. The command
continues without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

READERS = "curvescope.readers"
CAUSES = "curvescope.causes"
DEVICES = "curvescope.devices"

# group -> required attributes of its plugins; documented in examples/README.md. A cause may also
# have INTERVENTION.
_NEEDED = {
    READERS: ("NAME", "recognises", "read"),
    CAUSES: ("CAUSE", "weigh"),
    DEVICES: ("DEVICES",),
}


@dataclass(frozen=True)
class Plugin:
    """One plugin: the name of its entry point, its package, and its module."""

    name: str
    package: str
    module: Any


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """All working plugins of a group, sorted by name; broken ones are reported once on standard
    error.
    """
    return tuple(_load(group))


def _load(group: str) -> Iterator[Plugin]:
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = point.dist.name if point.dist else "an unknown package"
        try:
            module = point.load()
        except Exception as error:  # third-party code may raise anything; the command continues
            report_broken(
                point.name, package, f"it cannot be imported ({type(error).__name__}: {error})"
            )
            continue
        missing = [name for name in _NEEDED[group] if not hasattr(module, name)]
        if missing:
            report_broken(point.name, package, f"{point.value} has no {' and no '.join(missing)}")
            continue
        yield Plugin(point.name, package, module)


@cache
def report_broken(name: str, package: str, why: str) -> None:
    """Report once that a plugin is skipped, why, and how to remove it."""
    print(
        f"curvescope: plugin {name} of {package} is skipped: {why}. Repair it, or "
        f"`pip uninstall {package}`.",
        file=sys.stderr,
    )
