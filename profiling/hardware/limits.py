"""Limits of a recording's device for causes and the roofline, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.words import UNKNOWN
from .ceilings import BANDWIDTH_KEYS, entry_for
from .devices import PEAK_PRECISIONS, Device, devices
from .occupancy import (
    MOST_THREADS_PER_BLOCK,
    Occupancy,
    SmLimits,
    find_limits,
    occupancy_of,
)

PEAK = "peak"  # from a datasheet
CEILING = "ceiling"  # measured on the device


@dataclass(frozen=True)
class Roof:
    """One limit of the roofline: bytes per second of a memory level, or FLOP per second.

    Attributes:
        level: L1, L2, DRAM, or compute.
        per_s: limit in B/s or FLOP/s.
        kind: ceiling (measured) or peak (datasheet).
        source: source of the number.
        precision: precision of the products that it limits; None for memory.
    """

    level: str
    per_s: float
    kind: str
    source: str
    precision: str | None = None


# By how much a rate may pass a roof before it is above it: a measured one has an error.
_SPARE = {PEAK: 0.0, CEILING: 0.02}


def is_at_roof(share: float, kind: str) -> bool:
    """Whether a share of a roof is all of it: a measured roof is passed by its error alone."""
    return 1 < share <= 1 + _SPARE[kind]


@dataclass(frozen=True)
class OfPeak:
    """A rate as a share of a roof."""

    share: float  # 1 is all of it
    level: str  # compute, or DRAM
    kind: str  # ceiling if the roof was measured on the device, else peak, of its datasheet


@dataclass(frozen=True)
class Hardware:
    """Limits of a device; None if neither the recording nor the table of GPUs has them."""

    name: str | None
    kind: str | None  # cpu or cuda
    compute_capability: str | None = None
    sm_count: int | None = None
    sm: SmLimits | None = None  # limits of one SM
    cache_bytes: int | None = None  # L2 of a GPU, last-level cache of a CPU
    memory_bytes: int | None = None
    threads: int | None = None  # of PyTorch, on a CPU
    roofs: tuple[Roof, ...] = field(default=())  # compute is that of the recording's precision
    other_precisions: tuple[Roof, ...] = field(default=())  # for kernels whose names say their own
    precision: str | None = None  # precision of the products that the recording states

    def roof(self, level: str, precision: str | None = None) -> Roof | None:
        """The limit of one level: measured if possible, else the peak; None is the recording's
        precision.
        """
        named = [
            roof for roof in (*self.roofs, *self.other_precisions) if roof.precision == precision
        ]
        of_level = [roof for roof in (named if precision else self.roofs) if roof.level == level]
        return next(
            (roof for roof in of_level if roof.kind == CEILING), of_level[0] if of_level else None
        )

    def least_compute(
        self, flops: Mapping[str, float], time_s: float
    ) -> tuple[float | None, str | None]:
        """The least time in s that the roofs allow for FLOPs by precision, and the kind of roof;
        None without one.

        `UNKNOWN` is the precision of the recording; where it states none and the FLOPs took less
        time than in fp32, it is the precision of the highest roof of the device.
        """
        least_s, kind = self._least(flops)
        if self.precision is None and least_s is not None and least_s > time_s:
            every = [
                roof for roof in (*self.roofs, *self.other_precisions) if roof.level == "compute"
            ]
            highest = max(every, key=lambda roof: roof.per_s).precision or UNKNOWN
            moved = flops.get(UNKNOWN, 0.0)
            return self._least({**flops, UNKNOWN: 0.0, highest: flops.get(highest, 0.0) + moved})
        return least_s, kind

    def _least(self, flops: Mapping[str, float]) -> tuple[float | None, str | None]:
        least_s = 0.0
        kind = None
        for precision, amount in flops.items():
            if amount <= 0:
                continue
            roof = self.roof("compute", None if precision == UNKNOWN else precision)
            if roof is None:
                return None, None
            least_s += amount / roof.per_s
            kind = roof.kind
        return least_s, kind

    def shares_of_peaks(
        self, flops: Mapping[str, float], time_s: float, bytes_per_s: float | None
    ) -> list[OfPeak]:
        """What FLOPs by precision in a time, and a rate of bytes of DRAM, reach of their roofs."""
        shares = []
        least_s, kind = self.least_compute(flops, time_s)
        if least_s and kind:
            shares.append(OfPeak(least_s / time_s, "compute", kind))
        dram = self.roof("DRAM")
        if dram is not None and bytes_per_s is not None:
            shares.append(OfPeak(bytes_per_s / dram.per_s, "DRAM", dram.kind))
        return shares

    def exceeded(
        self, flops: Mapping[str, float], time_s: float, bytes_per_s: float | None
    ) -> tuple[str, ...]:
        """The roofs (`compute`, `DRAM`) that such rates are above."""
        shares = self.shares_of_peaks(flops, time_s, bytes_per_s)
        return tuple(
            reached.level for reached in shares if reached.share > 1 + _SPARE[reached.kind]
        )

    def of_peak(
        self, flops: Mapping[str, float], time_s: float, bytes_per_s: float | None
    ) -> OfPeak | None:
        """The share of the roof that such rates come nearest to; None without one."""
        shares = self.shares_of_peaks(flops, time_s, bytes_per_s)
        return max(shares, key=lambda reached: reached.share, default=None)

    def blocks_per_sm(
        self, threads: int, registers_per_thread: int, shared_memory_bytes: int
    ) -> int | None:
        """Resident blocks of a kernel per SM; None if no block fits or the SM is unknown."""
        fits = self.fit_on_sm(threads, registers_per_thread, shared_memory_bytes)
        return None if fits is None else fits.blocks

    def fit_on_sm(
        self, threads: int, registers_per_thread: int, shared_memory_bytes: int
    ) -> Occupancy | None:
        """Theoretical occupancy of a kernel; None if no block fits or the SM is unknown."""
        if self.sm is None or not 1 <= threads <= MOST_THREADS_PER_BLOCK:
            return None
        fits = occupancy_of(self.sm, threads, registers_per_thread, shared_memory_bytes)
        return fits if fits.blocks else None


def hardware_of(meta: Mapping[str, Any]) -> Hardware:
    """The limits of the device of a recording, by its `recording.json`.

    `device` has the name, and of a modelled device its key and changed facts (`what_if`).
    `ceilings`, if measured, has `flops_per_s` of fp32, `compute` by precision, `dram_bytes_per_s`,
    `l2_bytes_per_s` and `l1_bytes_per_s`. Without a `precision` it is fp32. A recording without
    ceilings has those that were measured on its device later and are stored on this machine.
    """
    facts = meta.get("device") or {}
    precision = meta.get("precision") or "fp32"
    name = facts.get("name")
    kind = facts.get("kind")
    device = None
    roofs = _list_measured_roofs(meta.get("ceilings") or _find_stored_ceilings(facts))
    if kind != "cpu":
        # A modelled recording names its device by key; its SMs may be those of a what-if.
        device = next(
            (listed for listed in devices() if listed.key == facts.get("key")), None
        ) or match_device(name, facts.get("compute_capability"), facts.get("sm_count"))
        if device is not None and facts.get("what_if"):
            device = device.with_facts(facts["what_if"])
        peaks = _of_driver(facts, device)
        said = {(roof.level, roof.precision) for roof in peaks}
        table = () if device is None else _of_table(device, precision)
        roofs += peaks + tuple(roof for roof in table if (roof.level, roof.precision) not in said)

    def size(*names: str) -> int | None:
        """Of the recording, else of the table."""
        recorded = next((facts[key] for key in names if facts.get(key)), None)
        listed = None if device is None else device.facts.get(names[0])
        return int(listed.value) if recorded is None and listed else recorded

    of_host = (meta.get("host") or {}).get("last_level_cache_bytes")
    capability = facts.get("compute_capability") if device is None else device.compute_capability
    sm = find_limits(capability)
    ours = tuple(roof for roof in roofs if roof.precision in (None, precision))
    return Hardware(
        name,
        kind if device is None else kind or "cuda",
        capability,
        sm_count=size("sm_count"),
        sm=sm if device is None or sm is None else device.sm,
        cache_bytes=of_host if kind == "cpu" else size("l2_bytes", "l2_cache_bytes"),
        memory_bytes=size("memory_bytes"),
        threads=facts.get("threads"),
        roofs=ours,
        other_precisions=tuple(roof for roof in roofs if roof not in ours),
        precision=meta.get("precision"),
    )


def _of_table(device: Device, precision: str) -> tuple[Roof, ...]:
    """Peaks of the table: of the recording's precision, and of those that the device has units for;
    then of memory.
    """
    roofs = []
    for name in PEAK_PRECISIONS:
        native = device.tensor_flops_per_s(name) or device.lane_flops_per_s(name)
        peak = device.peak_products_per_s(name)
        if peak is not None and (native or name == precision):
            roofs.append(Roof("compute", peak, PEAK, _peak_source(device, name, peak), name))
    if dram := device.facts.get("memory_bytes_per_s"):
        roofs.append(Roof("DRAM", dram.value, PEAK, dram.source))
    return tuple(roofs)


def _peak_source(device: Device, precision: str, peak: float) -> str:
    clock = f"{device.running_clock} clock {device.clock_hz / 1e6:.0f} MHz"
    if peak == device.tensor_flops_per_s(precision):
        hertz = device.clock_hz if precision == "fp64" else device.tensor_clock_hz
        return f"{precision}, dense, tensor cores of {device.name} at {hertz / 1e6:.0f} MHz"
    if peak == device.lane_flops_per_s(precision):
        return f"{precision}, lanes and SMs of {device.name} at its {clock}"
    return (
        f"fp32, lanes and SMs of {device.name} at its {clock}: it has no {precision} tensor cores"
    )


def _of_driver(facts: Mapping[str, Any], device: Device | None) -> tuple[Roof, ...]:
    """Peaks from the driver's facts in the profile: clock, SMs, memory rate."""
    roofs = []
    clock_hz = facts.get("clock_hz")
    memory_bytes_per_s = facts.get("memory_bytes_per_s")
    capability = facts.get("compute_capability")
    alike = device or next((d for d in devices() if d.compute_capability == capability), None)
    if alike is not None and clock_hz and facts.get("sm_count"):
        lanes = facts["sm_count"] * alike.fp32_lanes_per_sm
        source = (
            f"fp32, SMs and clock {clock_hz / 1e6:.0f} MHz of the profile, lanes of capability "
            f"{capability}"
        )
        roofs.append(Roof("compute", 2.0 * lanes * clock_hz, PEAK, source, "fp32"))
    if memory_bytes_per_s and memory_bytes_per_s >= _LEAST_MEMORY_BYTES_PER_S:
        roofs.append(
            Roof("DRAM", float(memory_bytes_per_s), PEAK, "memory clock and bus of the profile")
        )
    return tuple(roofs)


# The driver of a Tegra tells 0.2 GB/s, as it knows no clock of the memory it shares with the CPU; a
# GPU of 2009 has 6.
_LEAST_MEMORY_BYTES_PER_S = 5e9
# Drivers' names whose words are those of another GPU.
_DRIVER_NAMES = {"geforce gtx titan x": "titanx_maxwell"}
# Words that do not distinguish GPUs. Form factors (e.g. SXM2) do: their clocks differ.
_ORDINARY = {"nvidia", "tesla", "geforce", "gtx", "gpu", "corporation", "amd", "radeon", "instinct"}


def match_device(
    name: str | None, compute_capability: str | None = None, sm_count: int | None = None
) -> Device | None:
    """The GPU with a driver's name (CUDA, nsys, Kineto), e.g. `Tesla V100-SXM2-16GB`; None if none
    or several match.

    All words of a name count, in any order, so that a `SUPER`, a `Laptop GPU` or a slice of a GPU
    is none of its namesakes. Capability and number of SMs count if they are known.
    """
    if not name:
        return None
    plain = name.lower().removeprefix("nvidia ")
    if key := _DRIVER_NAMES.get(plain):
        return next(device for device in devices() if device.key == key)
    words = _words(name)
    matches = [d for d in devices() if words in map(_words, (d.name, d.key, *d.aliases))]
    matches = [device for device in matches if _fits(device, compute_capability, sm_count)]
    return matches[0] if len(matches) == 1 else None


def _fits(device: Device, compute_capability: str | None, sm_count: int | None) -> bool:
    # ROCm reports capabilities that NVIDIA's GPUs have, too: 9.0 for gfx90a.
    amd = not device.compute_capability[0].isdecimal()
    return (amd or compute_capability in (None, device.compute_capability)) and sm_count in (
        None,
        device.sm_count,
    )


def _words(name: str) -> frozenset[str]:
    plain = re.sub(r"\(one of.*?\)", " ", name.lower())
    return frozenset(
        word for word in re.split(r"[^a-z0-9]+", plain) if word and word not in _ORDINARY
    )


def _find_stored_ceilings(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stored ceilings of the device; a modelled device was never measured."""
    if not facts.get("name") or facts.get("key"):
        return {}
    return entry_for(facts) or {}


def _list_measured_roofs(ceilings: Mapping[str, Any]) -> tuple[Roof, ...]:
    """Measured ceilings of products, by precision, and of memory."""
    named = dict(ceilings.get("compute") or {})
    if ceilings.get("flops_per_s"):
        named["fp32"] = {"per_s": ceilings["flops_per_s"], **named.get("fp32", {})}
    compute = tuple(
        Roof("compute", float(ceiling["per_s"]), CEILING, _how(ceiling, ceilings), precision)
        for precision, ceiling in named.items()
        if ceiling.get("per_s")
    )
    return compute + tuple(
        Roof(
            level,
            float(ceilings[key]),
            CEILING,
            _how((ceilings.get("bandwidth") or {}).get(level), ceilings),
        )
        for level, key in BANDWIDTH_KEYS.items()
        if ceilings.get(key)
    )


def _how(measured: Mapping[str, Any] | None, ceilings: Mapping[str, Any]) -> str:
    """Source of a ceiling: the problem that reached it and the time, if the microbenchmarks stored
    them.
    """
    details = [(measured or {}).get("how"), ceilings.get("measured_utc")]
    return "microbenchmark on this device" + "".join(f", {fact}" for fact in details if fact)
