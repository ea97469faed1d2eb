"""Samples clocks, power, temperature and throttling: through NVML for CUDA devices, /proc for a
CPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from ...base.errors import BackendMissingError
from .host import cpu_frequency_hz
from .nvml import NvmlDevice, find_device, from_mhz, from_milli

# Names of NVML's throttle reasons (nvml.h, nvmlClocksEventReasons), by bit. CUPTI
# (cupti_activity.h, CUpti_EnvironmentClocksThrottleReason) shares four of them and has a different
# last one.
_THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
    0x8000_0000: "unspecified",
}
# Reasons of a clock that nothing holds down.
_NO_LIMIT = frozenset({"idle", "application_clocks", "display_clocks"})
_LEAST_NS = 50_000_000  # between two samples of `sample_sometimes`


class ClockSampler:
    """Samples a device, `cpu` or `cuda:N`, at start and end of each block, and at every call of
    `sample`.
    """

    def __init__(self, device: str, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._device = device
        self._clock_ns = clock_ns
        self._rows: list[dict[str, Any]] = []
        self._last_ns: int | None = None

    @property
    def missing(self) -> str | None:
        """Reason why clocks are not sampled; None if they are."""
        return self._sensor if isinstance(self._sensor, str) else None

    def sample(self) -> None:
        """Take one sample now."""
        self._last_ns = self._clock_ns()
        row: dict[str, Any] = {"start_ns": self._last_ns}
        if self._device == "cpu":
            self._rows.append(
                {**row, "sm_clock_hz": cpu_frequency_hz(), "load": os.getloadavg()[0]}
            )
        elif isinstance(self._sensor, NvmlDevice):
            self._rows.append(
                {
                    **row,
                    "device": int(self._device.partition(":")[2] or 0),
                    **self._read(self._sensor),
                }
            )

    def sample_sometimes(self) -> None:
        """Sample if the last is 50 ms old, between timed steps: a thread would take time inside
        them.
        """
        if self._last_ns is None or self._clock_ns() - self._last_ns >= _LEAST_NS:
            self.sample()

    def take(self) -> list[dict[str, Any]]:
        """Return the samples since the last call as rows of the `clocks` table."""
        rows = self._rows
        self._rows = []
        return rows

    def __enter__(self) -> ClockSampler:
        self.sample()
        return self

    def __exit__(self, *_: object) -> None:
        self.sample()

    @cached_property
    def _sensor(self) -> NvmlDevice | str | None:
        """The GPU, or why there is none; found at the first use, because its index is CUDA's once
        CUDA runs.
        """
        if self._device == "cpu":
            return None
        try:
            return find_device(self._device)
        except BackendMissingError as error:
            return f"clocks are not sampled: {error}"

    @staticmethod
    def _read(gpu: NvmlDevice) -> dict[str, Any]:
        return {
            "sm_clock_hz": gpu.read("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM", into=from_mhz),
            "memory_clock_hz": gpu.read("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM", into=from_mhz),
            "power_w": gpu.read("nvmlDeviceGetPowerUsage", into=from_milli),
            "temperature_c": gpu.read(
                "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU", into=float
            ),
            "throttle_reasons": gpu.read(
                "nvmlDeviceGetCurrentClocksThrottleReasons", into=throttle_names
            ),
            "load": gpu.read("nvmlDeviceGetUtilizationRates", into=lambda rates: rates.gpu / 100),
        }


def reasons_of_visit(
    samples: Iterable[Mapping[str, Any]], start_ns: int, end_ns: int
) -> dict[str, Any]:
    """The column `throttle_reasons` of steps from rows of the `clocks` table in a visit, or at once
    after it.

    Between steps a GPU is idle, so the samples do not show the clock of the steps. Empty on a CPU.
    """
    inside = [
        row
        for row in samples
        if row.get("device") is not None and start_ns <= row["start_ns"] <= end_ns + _LEAST_NS
    ]
    texts = [row["throttle_reasons"] for row in inside if row["throttle_reasons"] is not None]
    return {"throttle_reasons": "|".join(sorted(reasons_in(texts)))} if texts else {}


def reasons_in(texts: Iterable[str]) -> frozenset[str]:
    """The reasons that samples give, except of a GPU that does nothing or obeys its settings."""
    return frozenset(reason for text in texts for reason in text.split("|") if reason) - _NO_LIMIT


def throttle_names(bits: int) -> str:
    """Names of the set bits, joined by `|`; unknown bits as hexadecimal."""
    names = [name for bit, name in _THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~sum(_THROTTLE_REASONS)
    return "|".join([*names, *([hex(unknown)] if unknown else [])])
