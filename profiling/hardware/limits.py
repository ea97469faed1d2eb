"""Limits of a recording's device for causes and the roofline, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .ceilings import BANDWIDTH_KEYS
from .devices import Device, devices
from .occupancy import MOST_THREADS_PER_BLOCK, SmLimits, find_limits, occupancy_of

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


@dataclass(frozen=True)
class Hardware:
    """Limits of a device; None if neither the recording nor the table of GPUs has them.

    Attributes:
        name: name in the recording.
        kind: cpu or cuda; None if unknown.
        compute_capability: capability, e.g. 6.1.
        sm_count: number of streaming multiprocessors.
        sm: limits of one SM.
        cache_bytes: size of the L2 of a GPU, or of the last level cache of a CPU.
        memory_bytes: size of the DRAM.
        roofs: measured ceilings and peaks; the compute roof is for the recording's precision.
    """

    name: str | None
    kind: str | None
    compute_capability: str | None = None
    sm_count: int | None = None
    sm: SmLimits | None = None
    cache_bytes: int | None = None
    memory_bytes: int | None = None
    roofs: tuple[Roof, ...] = field(default=())

    def roof(self, level: str) -> Roof | None:
        """The limit of one level: measured if possible, else the peak."""
        found = [roof for roof in self.roofs if roof.level == level]
        return next((roof for roof in found if roof.kind == CEILING), found[0] if found else None)

    def exceeded(self, flops_per_s: float | None, bytes_per_s: float | None) -> tuple[str, ...]:
        """The roofs (`compute`, `DRAM`) that these rates exceed."""
        rates = {"compute": flops_per_s, "DRAM": bytes_per_s}
        found = ((level, rate, self.roof(level)) for level, rate in rates.items())
        return tuple(
            level for level, rate, roof in found if roof is not None and rate is not None and rate > roof.per_s
        )

    def blocks_per_sm(self, threads: int, registers_per_thread: int, shared_memory_bytes: int) -> int | None:
        """Resident blocks of a kernel per SM; None if no block fits or the SM is unknown."""
        if self.sm is None or not 1 <= threads <= MOST_THREADS_PER_BLOCK:
            return None
        return occupancy_of(self.sm, threads, registers_per_thread, shared_memory_bytes).blocks or None


def hardware_of(meta: Mapping[str, Any]) -> Hardware:
    """The limits of a recording's device.

    Args:
        meta: contents of `recording.json`. `device` has the name, and changed facts of a modelled device (`what_if`);
            `ceilings`, if measured, has `flops_per_s` of fp32, `compute` by precision, `dram_bytes_per_s`,
            `l2_bytes_per_s` and `l1_bytes_per_s`; `precision` defaults to fp32.
    """
    facts, host = meta.get("device") or {}, meta.get("host") or {}
    name, kind = facts.get("name"), facts.get("kind")
    precision = meta.get("precision") or "fp32"
    roofs = _measured(meta.get("ceilings") or {}, precision)
    if kind == "cpu":
        return Hardware(name, kind, cache_bytes=host.get("last_level_cache_bytes"), roofs=roofs)
    known = match_device(name, facts.get("compute_capability"))
    if known is not None and facts.get("what_if"):
        known = known.with_facts(facts["what_if"])
    roofs += _of_driver(facts, precision)
    if known is None:
        return Hardware(
            name,
            kind,
            facts.get("compute_capability"),
            sm_count=facts.get("sm_count"),
            sm=find_limits(facts.get("compute_capability")),
            cache_bytes=facts.get("l2_bytes") or facts.get("l2_cache_bytes"),
            memory_bytes=facts.get("memory_bytes"),
            roofs=roofs,
        )
    peak = known.peak_products_per_s(precision)
    dram = known.facts.get("memory_bytes_per_s")
    levels = {roof.level for roof in roofs if roof.kind == PEAK}
    if peak is not None and "compute" not in levels:
        roofs += (Roof("compute", peak, PEAK, _peak_source(known, precision, peak), precision),)
    if dram is not None and "DRAM" not in levels:
        roofs += (Roof("DRAM", dram.value, PEAK, dram.source),)
    return Hardware(
        name,
        kind or "cuda",
        known.compute_capability,
        sm_count=facts.get("sm_count") or known.sm_count,
        sm=known.sm if find_limits(known.compute_capability) else None,
        cache_bytes=facts.get("l2_bytes") or facts.get("l2_cache_bytes") or _integer_fact(known, "l2_bytes"),
        memory_bytes=facts.get("memory_bytes") or _integer_fact(known, "memory_bytes"),
        roofs=roofs,
    )


def _peak_source(device: Device, precision: str, peak: float) -> str:
    if peak == device.peak_flops_per_s():
        clock = f"{device.running_clock} clock {device.clock_hz / 1e6:.0f} MHz"
        instead = "" if precision == "fp32" else f": it has no {precision} tensor cores"
        return f"fp32, lanes and SMs of {device.name} at its {clock}{instead}"
    hertz = device.facts["tensor_clock_hz"].value if "tensor_clock_hz" in device.facts else device.clock_hz
    return f"{precision}, dense, tensor cores of {device.name} at {hertz / 1e6:.0f} MHz"


def _of_driver(facts: Mapping[str, Any], precision: str) -> tuple[Roof, ...]:
    """Peaks from the driver's facts in the profile: clock, SMs, memory rate."""
    # The collector of version 0.1 called two facts otherwise.
    roofs, clock_hz = [], facts.get("clock_hz") or facts.get("sm_clock_hz")
    memory_bytes_per_s = facts.get("memory_bytes_per_s") or facts.get("memory_bandwidth_bytes_per_s")
    capability = facts.get("compute_capability")
    alike = next((d for d in devices() if d.compute_capability == capability), None)
    if alike is not None and clock_hz and facts.get("sm_count") and precision == "fp32":
        lanes = facts["sm_count"] * alike.fp32_lanes_per_sm
        source = f"fp32, SMs and clock {clock_hz / 1e6:.0f} MHz of the profile, lanes of capability {capability}"
        roofs.append(Roof("compute", 2.0 * lanes * clock_hz, PEAK, source, precision))
    if memory_bytes_per_s:
        roofs.append(Roof("DRAM", float(memory_bytes_per_s), PEAK, "memory clock and bus of the profile"))
    return tuple(roofs)


def _integer_fact(device: Device, fact: str) -> int | None:
    return int(device.facts[fact].value) if fact in device.facts else None


# Drivers' names whose words match two GPUs.
_DRIVER_NAMES = {"geforce gtx titan x": "titanx_maxwell"}
# Words that do not distinguish GPUs. Form factors (e.g. SXM2) do: their clocks differ.
_ORDINARY = {"nvidia", "tesla", "geforce", "gtx", "gpu", "corporation", "hbm2", "hbm3"}


def match_device(name: str | None, compute_capability: str | None = None) -> Device | None:
    """The GPU with a driver's name, e.g. `Tesla V100-SXM2-16GB`; None if none or several match."""
    if not name:
        return None
    words, exact = _words(name), _DRIVER_NAMES.get(name.lower())
    ranked = []
    for device in devices():
        if compute_capability is None or device.compute_capability == compute_capability:
            names = [_words(n) for n in (device.name, device.key, *device.aliases)]
            fits = max((len(n) for n in names if n and n <= words), default=0)
            ranked.append((100 if device.key == exact else fits, device))
    ranked.sort(key=lambda pair: -pair[0])
    if not ranked or not ranked[0][0] or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        return None
    return ranked[0][1]


def _words(name: str) -> set[str]:
    plain = re.sub(r"\(one of.*?\)", " ", name.lower())
    return {w for w in re.split(r"[^a-z0-9]+", plain) if w not in _ORDINARY and not re.fullmatch(r"(\d+gb)?", w)}


def _measured(ceilings: Mapping[str, Any], precision: str) -> tuple[Roof, ...]:
    """Measured ceilings of memory, and of products in this precision only."""
    named = (ceilings.get("compute") or {}).get(precision) or {}
    products = named.get("per_s") or (ceilings.get("flops_per_s") if precision == "fp32" else None)
    compute = (Roof("compute", float(products), CEILING, _how(named, ceilings), precision),) if products else ()
    return compute + tuple(
        Roof(level, float(ceilings[key]), CEILING, _how((ceilings.get("bandwidth") or {}).get(level), ceilings))
        for level, key in BANDWIDTH_KEYS.items()
        if ceilings.get(key)
    )


def _how(measured: Mapping[str, Any] | None, ceilings: Mapping[str, Any]) -> str:
    """Source of a ceiling: the problem that reached it and the time, if the microbenchmarks stored them."""
    details = [(measured or {}).get("how"), ceilings.get("measured_utc")]
    return "microbenchmark on this device" + "".join(f", {fact}" for fact in details if fact)
