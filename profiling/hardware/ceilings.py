"""Ceilings: measured compute and bandwidth limits of a device, stored and used for all later
utilisations.

Of files in the user's data folder, one per measurement, the newest for a device counts; a recording
has a copy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from ...base.user_folders import data_folder
from ..recording.atomic_files import atomic_file, storage_error

_FORMAT = "curvescope ceilings"
_VERSION = 1
# Keys of `device` entries that identify a device: a CPU with another number of threads has other
# ceilings.
_IDENTITY = ("kind", "name", "threads", "compute_capability", "sm_count", "memory_bytes")
# Names in a recording's `ceilings` entry; its compute ceiling is fp32.
BANDWIDTH_KEYS = {
    "DRAM": "dram_bytes_per_s",
    "L2": "l2_bytes_per_s",
    "L1": "l1_bytes_per_s",
    "L3": "l3_bytes_per_s",
}


@dataclass(frozen=True)
class Ceiling:
    """One measured limit.

    Attributes:
        per_s: FLOP/s, or B/s.
        how: problem and backend that reached it.
        uncertainty: half the interval of its median, as a fraction of it; None for too few visits.
    """

    per_s: float
    how: str
    uncertainty: float | None


@dataclass(frozen=True)
class Ceilings:
    """The measured limits of a device, by precision and by memory level, nearest first.

    Attributes:
        device: `device` entry of a recording.
        clock_hz: lowest and highest clock of the device during the measurement; None if unknown.
        units: by precision, the peak of a GPU's units: multiply-adds of constants in registers. No
            data reaches it: on an H200 products of bf16 run at 894 TFLOP/s on zeros and at 788 on
            random numbers, which draw more power.
    """

    device: dict[str, Any]
    compute: dict[str, Ceiling]
    bandwidth: dict[str, Ceiling]
    clock_hz: tuple[int, int] | None
    versions: dict[str, str | None]
    measured_utc: str = field(
        default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds")
    )
    units: dict[str, Ceiling] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        """The `ceilings` entry of a recording: `flops_per_s` of fp32, `dram_bytes_per_s` and so on,
        with details.
        """
        roofs = {
            BANDWIDTH_KEYS[level]: ceiling.per_s
            for level, ceiling in self.bandwidth.items()
            if level in BANDWIDTH_KEYS
        }
        if "fp32" in self.compute:
            roofs["flops_per_s"] = self.compute["fp32"].per_s
        return {
            **roofs,
            **{name: value for name, value in asdict(self).items() if name != "device"},
        }


def folder() -> Path:
    """Folder of stored ceilings."""
    return data_folder() / "ceilings"


def save(ceilings: Ceilings) -> Path:
    """Store the ceilings in a new file, which is returned."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(ceilings.device.get("name"))).strip("-").lower()
    stamp = re.sub(r"[^0-9]", "", ceilings.measured_utc)[:14]
    target = folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(target, error) from error
    path = target / f"{name}_{stamp}.json"
    count = 1
    while path.exists():
        count += 1
        path = target / f"{name}_{stamp}_{count}.json"
    with atomic_file(path) as file:
        file.write(
            json.dumps(
                {"format": _FORMAT, "version": _VERSION, **asdict(ceilings)}, indent=1
            ).encode()
        )
    return path


def load(device: Mapping[str, Any]) -> Ceilings | None:
    """The newest ceilings of a device, an entry of a recording; None if none were measured."""
    measured = []
    for path in folder().glob("*.json"):
        with suppress(
            OSError, ValueError, KeyError, TypeError
        ):  # skip files of other programs and truncated files
            document = json.loads(path.read_bytes())
            same = all(document["device"].get(name) == device.get(name) for name in _IDENTITY)
            if document["format"] == _FORMAT and document["version"] <= _VERSION and same:
                measured.append(msgspec.convert(document, Ceilings))
    return max(measured, key=lambda ceilings: ceilings.measured_utc, default=None)


def entry_for(device: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `ceilings` entry of a new recording on this device; None if none were measured."""
    ceilings = load(device)
    return None if ceilings is None else ceilings.entry()
