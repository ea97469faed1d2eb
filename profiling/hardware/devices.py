"""GPUs by name, from `devices.toml`: every number has a source, every peak the clock it assumes."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from .. import plugins
from ..errors import CurvescopeError
from .occupancy import SOURCE, SmLimits, find_limits
from .precisions import PRECISIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = Path(__file__).with_name("devices.toml")
CLOCKS = ("base", "boost")
_FLOPS_PER_FMA = 2


@dataclass(frozen=True)
class Fact:
    """A published number with its source, and whether the source was checked."""

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
        board: geforce or tesla; geforce boards raise their clock above the boost clock as power and heat permit.
        compute_capability: compute capability, e.g. 6.1.
        architecture: kepler, maxwell, pascal, volta or hopper.
        running_clock: base or boost, the clock of long kernels in a default installation.
        facts: sm_count, fp32_lanes_per_sm, registers_per_sm, base_clock_hz, boost_clock_hz, memory_bytes_per_s,
            l2_bytes, memory_bytes; with tensor cores fp16_tensor_fmas_per_sm, tf32_tensor_fmas_per_sm, and
            tensor_clock_hz if they run slower. Unpublished facts are missing.
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
        """Limits of one SM.

        Raises:
            CurvescopeError: the limits of the compute capability are unknown.
        """
        limits = find_limits(self.compute_capability)
        if limits is None:
            raise CurvescopeError(f"The SM limits of compute capability {self.compute_capability} are unknown.")
        return replace(limits, registers=int(self.facts["registers_per_sm"].value))

    @property
    def clock_hz(self) -> float:
        """Running clock, Hz."""
        return self.facts[f"{self.running_clock}_clock_hz"].value

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
        """The same GPU with changed facts, for what-if questions.

        Args:
            changed: values by the names of `facts`.

        Raises:
            CurvescopeError: a fact does not exist.
        """
        facts = dict(self.facts)
        for name, value in changed.items():
            if name not in facts:
                raise CurvescopeError(f"{self.name} has no fact {name!r}: choose from {', '.join(facts)}.")
            facts[name] = Fact(value, "what if", verified=False)
        return replace(self, facts=facts)

    def peak_flops_per_s(self, clock: str | None = None) -> float | None:
        """fp32 peak at the base or the boost clock; None if that clock is unknown.

        Args:
            clock: base or boost; default: the running clock.
        """
        fact = self.facts.get(f"{clock or self.running_clock}_clock_hz")
        return None if fact is None else _FLOPS_PER_FMA * self.sm_count * self.fp32_lanes_per_sm * fact.value

    def peak_products_per_s(self, precision: str) -> float | None:
        """Peak FLOP/s of dense products with operands of this precision and fp32 sums; None if unknown.

        Without tensor cores for the precision (fp16 before 7.0, TF32 and bf16 before 8.0) the products run in fp32.

        Args:
            precision: fp32, tf32, fp16 or bf16.
        """
        kind = PRECISIONS.get(precision)
        if kind is None or kind.tensor_fact is None or kind.tensor_cores_since is None:
            return self.peak_flops_per_s() if precision == "fp32" else None
        major, minor = self.compute_capability.split(".")
        if (int(major), int(minor)) < kind.tensor_cores_since:
            return self.peak_flops_per_s()
        fmas = self.facts.get(kind.tensor_fact)
        clock = self.facts.get("tensor_clock_hz", self.facts.get(f"{self.running_clock}_clock_hz"))
        return None if fmas is None or clock is None else _FLOPS_PER_FMA * self.sm_count * fmas.value * clock.value


def devices() -> tuple[Device, ...]:
    """Every GPU of the table, oldest architecture first."""
    return tuple(_load().values())


def get_device(name: str) -> Device:
    """Find a GPU by key or alias, in any case, with `-` or spaces for `_`.

    Raises:
        CurvescopeError: the GPU is unknown; the message lists similar names, or all.
    """
    known = _load()
    keys = {alias: device for device in known.values() for alias in (device.key, *device.aliases)}
    wanted = name.strip().lower().replace("-", "_").replace(" ", "_")
    if wanted not in keys:
        close = difflib.get_close_matches(wanted, keys, n=2)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise CurvescopeError(f"Unknown GPU {name!r}: {hint}Choose from {', '.join(known)}.")
    return keys[wanted]


@cache
def _load() -> dict[str, Device]:
    ours = tomllib.loads(FACTS.read_text())
    loaded = _parse(ours, ours)
    for plugin in plugins.plugins(plugins.DEVICES):
        try:
            more = _parse(tomllib.loads(Path(plugin.module.DEVICES).read_text()), ours)
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            plugins.report_broken(plugin.name, plugin.package, f"its DEVICES cannot be read ({error!r})")
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
        facts = {
            name: Fact(float(entry["value"]), sources[entry["source"]], entry.get("verified", True))
            for name, entry in (_numbers(capability) | _numbers(row)).items()
        }
        limits = find_limits(row["compute_capability"])
        if limits:
            facts.setdefault("registers_per_sm", Fact(limits.registers, SOURCE))
        loaded[key] = Device(
            key,
            row["name"],
            tuple(row["aliases"]),
            row["chip"],
            row["board"],
            row["compute_capability"],
            capability["architecture"],
            row["running_clock"],
            facts,
        )
    return loaded


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in row.items() if isinstance(entry, dict)}
