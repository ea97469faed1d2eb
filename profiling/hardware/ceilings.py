"""Ceilings: what was measured of this device's compute peaks and memory bandwidths, kept for every later utilisation.

They lie in the user's data folder, a file for each measurement, none ever overwritten; the newest of a device counts.
A recording takes a copy along, so that it says what its utilisations are against wherever it is read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..recording.atomic_files import atomic_file, storage_error

FOLDER_VARIABLE = "CURVESCOPE_DATA"
_FORMAT = "curvescope ceilings"
_VERSION = 1
# What makes two devices the same one, of `device` entries: a CPU with other threads has other ceilings.
_IDENTITY = ("kind", "name", "threads", "compute_capability", "sm_count", "memory_bytes")
# The names that readers of a recording look for; of compute it is fp32.
_ROOFS = {"L1": "l1_bytes_per_s", "L2": "l2_bytes_per_s", "L3": "l3_bytes_per_s", "DRAM": "dram_bytes_per_s"}


@dataclass(frozen=True)
class Ceiling:
    """One measured limit.

    Attributes:
        per_s: FLOP/s, or B/s.
        how: the problem that reached it and what ran it.
        uncertainty: half the interval of its median, as a share of it; null for too few visits.
    """

    per_s: float
    how: str
    uncertainty: float | None


@dataclass(frozen=True)
class Ceilings:
    """What a device reached.

    Attributes:
        device: as in a recording's `device` entry.
        compute: by precision.
        bandwidth: by memory level, nearest first.
        clock_hz: of the device while they were measured, least and most; null where it does not tell.
        versions: of the libraries.
        measured_utc: when.
    """

    device: dict[str, Any]
    compute: dict[str, Ceiling]
    bandwidth: dict[str, Ceiling]
    clock_hz: tuple[int, int] | None
    versions: dict[str, str | None]
    measured_utc: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def entry(self) -> dict[str, Any]:
        """As `ceilings` in a recording: `flops_per_s` of fp32, `dram_bytes_per_s` and so on, and the rest beside."""
        roofs = {_ROOFS[level]: ceiling.per_s for level, ceiling in self.bandwidth.items() if level in _ROOFS}
        if "fp32" in self.compute:
            roofs["flops_per_s"] = self.compute["fp32"].per_s
        return {**roofs, **{name: value for name, value in asdict(self).items() if name != "device"}}


def folder() -> Path:
    """Where they are kept: $CURVESCOPE_DATA, else the data folder of the XDG specification."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen) / "ceilings"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(base) / "curvescope" / "ceilings"


def save(ceilings: Ceilings) -> Path:
    """Keep them; returns the file.

    Raises:
        CurvescopeError: the folder cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(ceilings.device.get("name"))).strip("-").lower()
    stamp = re.sub(r"[^0-9]", "", ceilings.measured_utc)[:14]
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(place, error) from error
    path = place / f"{name}_{stamp}.json"
    count = 1
    while path.exists():
        count += 1
        path = place / f"{name}_{stamp}_{count}.json"
    with atomic_file(path) as file:
        file.write(json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(ceilings)}, indent=1).encode())
    return path


def load(device: Mapping[str, Any]) -> Ceilings | None:
    """The newest ones of a device; null where none were measured.

    Args:
        device: as in a recording's `device` entry.
    """
    found = []
    for path in folder().glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # another program's, or cut off: not ours to read
            document = json.loads(path.read_bytes())
            if document["format"] == _FORMAT and document["version"] <= _VERSION and _same(document["device"], device):
                found.append(_parse(document))
    return max(found, key=lambda ceilings: ceilings.measured_utc, default=None)


def entry_for(device: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a recording on this device says under `ceilings`; null where none were measured."""
    ceilings = load(device)
    return None if ceilings is None else ceilings.entry()


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in _IDENTITY)


def _parse(document: Mapping[str, Any]) -> Ceilings:
    clock_hz = document["clock_hz"]
    return Ceilings(
        dict(document["device"]),
        {name: Ceiling(**ceiling) for name, ceiling in document["compute"].items()},
        {name: Ceiling(**ceiling) for name, ceiling in document["bandwidth"].items()},
        None if clock_hz is None else (int(clock_hz[0]), int(clock_hz[1])),
        dict(document["versions"]),
        str(document["measured_utc"]),
    )
