"""Plugins of other packages: recorders, readers, causes and devices, found by their entry points.

A plugin that cannot be loaded, is not what its group asks for, or fails while it works is named in a warning and left
out; the command goes on without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

RECORDERS = "curvescope.recorders"
READERS = "curvescope.readers"
CAUSES = "curvescope.causes"
DEVICES = "curvescope.devices"

# group -> what each of its plugins must have; the words of docs/plugins.md.
_NEEDED = {
    RECORDERS: ("NAME", "record"),
    READERS: ("NAME", "recognises", "read"),
    CAUSES: ("CAUSE", "weigh"),
    DEVICES: ("DEVICES",),
}


@dataclass(frozen=True)
class Plugin:
    """One plugin: the name of its entry point, the package it is from, and the module itself."""

    name: str
    package: str
    module: Any


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """Every working plugin of a group, by name; each one that does not load is named on standard error, once."""
    return tuple(_load(group))


def _load(group: str) -> Iterator[Plugin]:
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = point.dist.name if point.dist else "an unknown package"
        try:
            module = point.load()
        except Exception as error:  # whatever a stranger's import raises, the command goes on
            report_broken(point.name, package, f"it cannot be imported ({type(error).__name__}: {error})")
            continue
        missing = [name for name in _NEEDED[group] if not hasattr(module, name)]
        if missing:
            report_broken(point.name, package, f"{point.value} has no {' and no '.join(missing)}")
            continue
        yield Plugin(point.name, package, module)


@cache
def report_broken(name: str, package: str, why: str) -> None:
    """Say once which plugin is left out, why, and how to be rid of it."""
    print(
        f"curvescope: plugin {name} of {package} is left out: {why}. Repair it, or `pip uninstall {package}`.",
        file=sys.stderr,
    )
