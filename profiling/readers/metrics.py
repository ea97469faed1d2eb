"""Maps metrics of NVIDIA's profilers to columns of the schema, by a table with sources,
`metrics.toml`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import pyarrow as pa

from ..recording.schema import KERNELS

_FRACTIONS = frozenset(column.name for column in KERNELS.columns if column.dtype == pa.float64())
# Units as printed by the profilers, in B, ns, 1. Nsight Compute uses powers of 1000; nvprof uses
# KB, MB and GB for powers of 1024: it prints 16,777,216 bytes as 16.000000MB.
_TIMES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_SPELLED_TIMES = {f"{unit}econd": factor for unit, factor in _TIMES.items()}


def _add_prefixes(*units: str, base: float = 1000.0) -> dict[str, float]:
    factors = {}
    for unit in units:
        for power, prefix in enumerate(("", "K", "M", "G", "T")):
            factors[prefix + unit] = base**power
    return factors


NCU_UNITS = {
    **_add_prefixes("byte", "B", "byte/block", "byte/s", "hz"),
    **_TIMES,
    **_SPELLED_TIMES,
    **dict.fromkeys(("inst", "sector", "register/thread", "warp", "cycle", "inst/cycle", ""), 1.0),
    "%": 0.01,
}
for _unit, _factor in _SPELLED_TIMES.items():
    NCU_UNITS[f"byte/{_unit}"] = NCU_UNITS[f"cycle/{_unit}"] = 1e9 / _factor
NVPROF_UNITS = {**_add_prefixes("B", base=1024.0), **_TIMES, "%": 0.01, "": 1.0}
_LISTS = ("capabilities", "multiplied_by")


@dataclass(frozen=True)
class Metric:
    """One entry of the table, of a column of `kernels` and a tool (nvprof or ncu)."""

    column: str
    # precision of the counted FLOPs, for columns that are sums of several entries; empty for the
    # others
    part: str
    tool: str
    generation: str  # architectures with these metric names
    capabilities: tuple[str, ...]  # compute capabilities that the entry applies to; empty for all
    terms: Mapping[str, float]  # factor of each metric, by name
    # metrics that the sum is multiplied by, e.g. the duration of a rate
    multiplied_by: tuple[str, ...]
    source: str  # reference for the meaning
    recorded: bool  # whether a run is asked for it

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all metrics that it needs."""
        return (*self.terms, *self.multiplied_by)


@cache
def metrics() -> tuple[Metric, ...]:
    """The table, in order."""
    defaults = {"part": "", "capabilities": (), "multiplied_by": (), "recorded": True}
    table = []
    for entry in load_toml("metrics.toml")["metric"]:
        fields = {**defaults, **entry}
        fields |= {name: tuple(fields[name]) for name in _LISTS}
        table.append(Metric(**fields))
    return tuple(table)


def load_toml(name: str) -> dict[str, Any]:
    """The contents of a TOML file of this folder."""
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


@cache
def known_names(tool: str) -> frozenset[str]:
    """Names of the tool's metrics that are used in any column."""
    return frozenset(name for metric in metrics() if metric.tool == tool for name in metric.names)


def choose_metrics(tool: str, capability: str | None = None) -> list[str]:
    """The metrics to record for all columns: the first entry of each column and part that the
    device supports.

    Without its compute capability, e.g. `9.0`, only entries that any device supports.
    """
    columns = set()
    names: dict[str, None] = {}
    for metric in metrics():
        # Labels of report pages cannot be requested as metrics. Every device since Volta has
        # Volta's own metric.
        requestable = all(" " not in name and name != "Duration" for name in metric.names)
        fits = not metric.capabilities or (capability or "7.0") in metric.capabilities
        column = metric.column, metric.part
        wanted = metric.tool == tool and metric.recorded and column not in columns
        if wanted and requestable and fits:
            columns.add(column)
            names |= dict.fromkeys(metric.names)
    return list(names)


def to_columns(
    tool: str, values: Mapping[str, float], capability: str | None = None
) -> dict[str, float]:
    """Columns of `kernels` from the metrics of a kernel in B, ns and 1; counts are rounded, missing
    columns absent.
    """
    columns: dict[str, float] = {}
    for metric in _choose_entries(tool, frozenset(values), capability):
        amount = sum(factor * values[name] for name, factor in metric.terms.items())
        amount *= math.prod(values[name] for name in metric.multiplied_by)
        columns[metric.column] = columns.get(metric.column, 0.0) + amount
    for name in columns.keys() - _FRACTIONS:
        columns[name] = round(columns[name])
    return columns


def parts(tool: str, names: Collection[str], capability: str | None = None) -> list[str]:
    """The precisions in the measured FLOPs, from the recorded metrics; empty if none
    were recorded.
    """
    return [
        metric.part for metric in _choose_entries(tool, frozenset(names), capability) if metric.part
    ]


@cache
def _choose_entries(tool: str, names: frozenset[str], capability: str | None) -> tuple[Metric, ...]:
    """The first entry of each column and part that has all its metrics."""
    chosen: dict[tuple[str, str], Metric] = {}
    for metric in metrics():
        fits = metric.tool == tool and (
            not metric.capabilities or capability in metric.capabilities
        )
        if fits and names.issuperset(metric.names):
            chosen.setdefault((metric.column, metric.part), metric)
    return tuple(chosen.values())
