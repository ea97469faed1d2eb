"""GPUs by name, from `devices*.toml`: every number has a source, every peak the clock
it assumes.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...base import plugins
from ...base.errors import CurvescopeError
from .occupancy import SOURCE, SmLimits, find_limits
from .precisions import PRECISIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = Path(__file__).with_name("devices.toml")
_MORE = "devices_*.toml"  # the other cards, beside it
CLOCKS = ("base", "boost")
# Precisions of matrix products with a peak of their own.
PEAK_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
_FLOPS_PER_FMA = 2


@dataclass(frozen=True)
class Fact:
    """A published number.

    Attributes:
        value: the number, in the unit of its name.
        source: where it was published.
        verified: whether the source was checked.
    """

    value: float
    source: str
    verified: bool = True


@dataclass(frozen=True)
class Device:
    """One GPU.

    Attributes:
        key: name on the command line, e.g. `gtx1080`.
        name: the vendor's name.
        aliases: alternative keys.
        chip: name of the chip, e.g. GP104.
        board: geforce, workstation, tesla, instinct or radeon; geforce boards raise their clock
            above the boost clock as power and heat permit.
        compute_capability: compute capability, e.g. 6.1; of AMD the target, e.g. gfx942.
        architecture: kepler, maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell, or
            cdna2, cdna3, rdna2, rdna3 or rdna4 of AMD.
        running_clock: base or boost, the clock of long kernels in a default installation.
        facts: sm_count, registers_per_sm, base_clock_hz, boost_clock_hz, memory_bytes_per_s,
            l2_bytes, memory_bytes; fp32_lanes_per_sm and others: FMAs per SM and clock without
            tensor cores; fp16_tensor_fmas_per_sm and others: the same in tensor cores;
            tensor_clock_hz if these run slower; sustained_clock_hz if power permits less under
            load; published_fp32_flops_per_s and others: peaks as printed, for checks. Unpublished
            facts are missing.
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    chip: str
    board: str
    compute_capability: str
    architecture: str
    running_clock: str
    facts: Mapping[str, Fact]

    @property
    def sm_count(self) -> int:
        """Number of streaming multiprocessors."""
        return int(self.facts["sm_count"].value)

    @property
    def fp32_lanes_per_sm(self) -> int:
        """fp32 FMAs that one SM starts per clock."""
        return int(self.facts["fp32_lanes_per_sm"].value)

    @property
    def sm(self) -> SmLimits:
        """Limits of one SM; an error if the compute capability has none."""
        limits = find_limits(self.compute_capability)
        if limits is None:
            raise CurvescopeError(
                f"The SM limits of compute capability {self.compute_capability} are unknown."
            )
        return replace(limits, registers=int(self.facts["registers_per_sm"].value))

    @property
    def clock_hz(self) -> float:
        """Running clock, Hz."""
        return self.facts[f"{self.running_clock}_clock_hz"].value

    @property
    def sustained_clock_hz(self) -> float:
        """Clock of dense arithmetic that lasts, Hz: the running clock, unless the board's power
        does not permit it.
        """
        if "sustained_clock_hz" in self.facts:
            return self.facts["sustained_clock_hz"].value
        return self.clock_hz

    @property
    def tensor_clock_hz(self) -> float:
        """Clock of the tensor cores, Hz: the running clock unless they are known to run slower."""
        if "tensor_clock_hz" in self.facts:
            return self.facts["tensor_clock_hz"].value
        return self.clock_hz

    @property
    def memory_bytes_per_s(self) -> float:
        """Datasheet DRAM bandwidth."""
        return self.facts["memory_bytes_per_s"].value

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache."""
        return int(self.facts["l2_bytes"].value)

    @property
    def memory_bytes(self) -> int:
        """Size of the DRAM; as reported by the driver if such output is known."""
        return int(self.facts["memory_bytes"].value)

    def with_facts(self, changed: Mapping[str, float]) -> Device:
        """The same GPU with changed facts, by name, for what-if questions; an error if one does not
        exist.
        """
        facts = dict(self.facts)
        for name, value in changed.items():
            if name not in facts:
                raise CurvescopeError(
                    f"{self.name} has no fact {name!r}: choose from {', '.join(facts)}."
                )
            facts[name] = Fact(value, "what if", verified=False)
        return replace(self, facts=facts)

    def peak_flops_per_s(self, clock: str | None = None) -> float | None:
        """fp32 peak at the base, the boost or by default the running clock; None if that clock is
        unknown.
        """
        fact = self.facts.get(f"{clock or self.running_clock}_clock_hz")
        if fact is None:
            return None
        return _FLOPS_PER_FMA * self.sm_count * self.fp32_lanes_per_sm * fact.value

    def peak_products_per_s(self, precision: str) -> float | None:
        """Peak FLOP/s of dense products of one of `PEAK_PRECISIONS` with fp32 sums; None if
        unknown.

        fp64 and int8 are summed in fp64 and int32. Where the device has no tensor cores for fp16,
        bf16 or TF32, products run in fp32, or, of fp16, in fp16 if that is faster (GP100).
        """
        rates = [self.tensor_flops_per_s(precision), self.lane_flops_per_s(precision)]
        if precision in ("tf32", "fp16", "bf16") and not self._has_tensor_cores(precision):
            rates.append(self.peak_flops_per_s())
        return max((rate for rate in rates if rate is not None), default=None)

    def tensor_flops_per_s(self, precision: str) -> float | None:
        """Peak of the tensor cores (AMD's matrix cores) on dense operands; None if there are none,
        or it is unknown.
        """
        fmas = self.facts.get(f"{'fp16' if precision == 'bf16' else precision}_tensor_fmas_per_sm")
        # Tensor cores run fp64 at the clock of the SM (openxla/xla, cuda_core_info_table.cc).
        clock = self.facts.get(f"{self.running_clock}_clock_hz")
        if precision != "fp64":
            clock = self.facts.get("tensor_clock_hz", clock)
        if fmas is None or clock is None or not self._has_tensor_cores(precision):
            return None
        return _FLOPS_PER_FMA * self.sm_count * fmas.value * clock.value

    def lane_flops_per_s(self, precision: str) -> float | None:
        """Peak without tensor cores, in arithmetic of this precision; None if unknown."""
        fmas = self.facts.get(f"{precision}_lanes_per_sm")
        clock = self.facts.get(f"{self.running_clock}_clock_hz")
        if fmas is None or clock is None:
            return None
        return _FLOPS_PER_FMA * self.sm_count * fmas.value * clock.value

    def _has_tensor_cores(self, precision: str) -> bool:
        kind = PRECISIONS.get(precision)
        since = None if kind is None else kind.tensor_cores_since
        numbers = self.compute_capability.split(".")
        return (
            since is None or not numbers[0].isdecimal() or tuple(int(n) for n in numbers) >= since
        )


def devices() -> tuple[Device, ...]:
    """Every GPU of the table, oldest architecture first, AMD last."""
    return tuple(sorted(_load().values(), key=_age))


def get_device(name: str) -> Device:
    """Find a GPU by key or alias, in any case, with `-` or spaces for `_`; an error lists similar
    names, and all.
    """
    by_name = _load()
    keys = {
        _key(alias): device
        for device in by_name.values()
        for alias in (device.key, *device.aliases)
    }
    wanted = _key(name)
    if wanted not in keys:
        close = difflib.get_close_matches(wanted, keys, n=2)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise CurvescopeError(f"Unknown GPU {name!r}: {hint}Choose from {', '.join(by_name)}.")
    return keys[wanted]


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _age(device: Device) -> tuple[bool, float, str]:
    number = device.compute_capability
    return (True, 0.0, number) if number.startswith("gfx") else (False, float(number), "")


@cache
def _load() -> dict[str, Device]:
    ours = tomllib.loads(FACTS.read_text())
    loaded = _parse(ours, ours)
    for path in sorted(FACTS.parent.glob(_MORE)):
        loaded |= _parse(tomllib.loads(path.read_text()), ours)
    for plugin in plugins.plugins(plugins.DEVICES):
        try:
            more = _parse(tomllib.loads(Path(plugin.module.DEVICES).read_text()), ours)
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            plugins.report_broken(
                plugin.name, plugin.package, f"its DEVICES cannot be read ({error!r})"
            )
            continue
        for key, device in more.items():
            loaded.setdefault(key, device)  # plugins do not replace entries of devices.toml
    return loaded


def _parse(tables: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Device]:
    """Devices of a file; missing sources and compute capabilities are taken from `ours`."""
    sources = {**ours["sources"], **tables.get("sources", {})}
    capabilities = {**ours["capabilities"], **tables.get("capabilities", {})}
    loaded = {}
    for key, row in tables["devices"].items():
        capability = capabilities[row["compute_capability"]]
        published = (
            _facts(capability, sources)
            | _facts(capability.get(row["board"], {}), sources)
            | _facts(row, sources)
        )
        limits = find_limits(row["compute_capability"])
        if limits:
            published.setdefault("registers_per_sm", Fact(limits.registers, SOURCE))
        loaded[key] = Device(
            key,
            row["name"],
            tuple(row.get("aliases", ())),
            row["chip"],
            row["board"],
            row["compute_capability"],
            capability["architecture"],
            row.get("running_clock", "boost"),
            published,
        )
    return loaded


def _facts(row: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Fact]:
    """The numbers of a table: alone with the table's source, or with their own; then the published
    values, by source.
    """
    facts = {}
    for name, entry in row.items():
        if isinstance(entry, (int, float)):
            facts[name] = Fact(float(entry), sources[row["source"]])
        elif isinstance(entry, dict) and "value" in entry:
            facts[name] = Fact(
                float(entry["value"]), sources[entry["source"]], entry.get("verified", True)
            )
    for source, printed in row.get("published_tflops_per_s", {}).items():
        for kind, tflops_per_s in printed.items():
            facts[f"published_{kind}_flops_per_s"] = Fact(tflops_per_s * 1e12, sources[source])
    return facts
