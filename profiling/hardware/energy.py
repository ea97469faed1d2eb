"""Energy of a device since some moment: NVML's counter or the integral of its power for a GPU, RAPL
for a CPU.

A source updates rarely, NVML's counter about ten times a second: steps share a visit's energy by
their durations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ...base.counted import counted
from ...base.errors import BackendMissingError
from .host import read_text
from .nvml import NvmlDevice, find_device, from_milli

POWERCAP = Path("/sys/class/powercap")
# NVML averages the power of one second on GPUs after GA100 (nvml.h, nvmlDeviceGetPowerUsage).
_LAST_INSTANT_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class EnergySource:
    """Where energies come from."""

    name: str  # what is read
    scope: str  # what consumes the energy
    least_s: float  # shortest interval whose energy is meaningful: several updates of the source
    # power is an average over a second: short intervals hold power of their past
    averaged: bool = False


class EnergyMeter(Protocol):
    """Reads one source; if it integrates over the readings, they must come after every step."""

    source: EnergySource
    integrates: bool

    def read(self) -> float | None:
        """Joules since some fixed moment; None if the source fails."""


class CounterMeter:
    """NVML's counter of the energy since the driver was loaded; Volta and later have it."""

    integrates = False

    def __init__(self, gpu: NvmlDevice) -> None:
        self._gpu = gpu
        self.source = EnergySource("NVML's total energy counter", "the GPU's board", 0.2)

    def read(self) -> float | None:
        joules: float | None = self._gpu.read(
            "nvmlDeviceGetTotalEnergyConsumption", into=from_milli
        )
        return joules


class PowerMeter:
    """The integral of a GPU's power over the readings, by trapezoids: so it is read between steps,
    too.
    """

    integrates = True

    def __init__(self, gpu: NvmlDevice, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._gpu = gpu
        self._clock_ns = clock_ns
        self._joules = 0.0
        self._last: tuple[int, float] | None = None  # time and watts of the last reading
        self._instant = _instant_power_w(gpu) is not None
        capability = gpu.read("nvmlDeviceGetCudaComputeCapability") or (0, 0)
        averaged = not self._instant and tuple(capability) > _LAST_INSTANT_CAPABILITY
        kind = "average of one second" if averaged else "instantaneous power"
        name = f"integral of NVML's power ({kind})"
        least_s = 3.0 if averaged else 0.2
        self.source = EnergySource(name, "the GPU's board", least_s, averaged)

    def read(self) -> float | None:
        gpu = self._gpu
        if self._instant:
            power_w = _instant_power_w(gpu)
        else:
            power_w = gpu.read("nvmlDeviceGetPowerUsage", into=from_milli)
        if power_w is None:
            self._last = None
            return None
        now_ns = self._clock_ns()
        if self._last is not None:
            then_ns, then_w = self._last
            self._joules += (now_ns - then_ns) / 1e9 * (power_w + then_w) / 2
        self._last = (now_ns, power_w)
        return self._joules


class RaplMeter:
    """RAPL's counters of the CPU's packages, which wrap around; other processes' work is in them,
    too.
    """

    integrates = False

    def __init__(self, packages: list[Path]) -> None:
        self._packages = packages
        self._ranges = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        self._last = self._counts()
        self._microjoules = 0
        scope = f"{counted(len(packages), 'CPU package')}, with the work of other processes"
        self.source = EnergySource("RAPL", scope, 0.02)

    def read(self) -> float | None:
        try:
            counts = self._counts()
        except (OSError, ValueError):
            return None
        for now, last, whole in zip(counts, self._last, self._ranges, strict=True):
            self._microjoules += now - last if now >= last else now - last + whole
        self._last = counts
        return self._microjoules / 1e6

    def _counts(self) -> list[int]:
        return [int((package / "energy_uj").read_text()) for package in self._packages]


def _instant_power_w(gpu: NvmlDevice) -> float | None:
    """Instantaneous power, a field of newer drivers; None where they do not have it."""
    field = getattr(gpu.library, "NVML_FI_DEV_POWER_INSTANT", None)
    fields = None if field is None else gpu.read("nvmlDeviceGetFieldValues", [field])
    if not fields or fields[0].nvmlReturn != 0:
        return None
    return from_milli(fields[0].value.uiVal)


def find_meter(device: str) -> EnergyMeter:
    """The best source of the energy of `cpu` or `cuda:N`; an error if there is none, or this user
    may not read it.
    """
    if device == "cpu":
        return _find_rapl()
    gpu = find_device(device)
    for kind in (CounterMeter, PowerMeter):
        meter: EnergyMeter = kind(gpu)
        if meter.read() is not None:
            return meter
    raise BackendMissingError("NVML reports neither energy nor power of this GPU")


@cache
def meter_of(device: str) -> EnergyMeter | None:
    """The meter of a device in this process; None if there is none."""
    try:
        return find_meter(device)
    except BackendMissingError:
        return None


def describe_energy(device: str) -> dict[str, Any]:
    """The entry `energy` of `recording.json`: the source, or under `missing` why there is none."""
    try:
        return asdict(find_meter(device).source)
    except BackendMissingError as error:
        return {"missing": str(error)}


def _find_rapl() -> EnergyMeter:
    """RAPL's packages; AMD's processors have them under Intel's name."""
    packages = [
        zone
        for zone in sorted(POWERCAP.glob("intel-rapl:*"))
        if (read_text(zone / "name") or "").startswith("package")
    ]
    if not packages:
        raise BackendMissingError(
            f"the kernel reports no energy of the CPU ({POWERCAP} has no RAPL package)"
        )
    try:
        return RaplMeter(packages)
    except PermissionError as error:
        raise BackendMissingError(
            "only root may read the CPU's energy: allow it with "
            f"`chmod a+r {POWERCAP}/intel-rapl:*/energy_uj`, as root"
        ) from error
    except (OSError, ValueError) as error:
        raise BackendMissingError(f"the CPU's energy cannot be read ({error})") from error
