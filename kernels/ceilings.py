"""The problems that measure a device's ceilings, and how their results become ceilings.

A ceiling is the best rate of a device, so only the fastest visit counts. Other work makes visits
slower, never faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ..profiling.hardware.ceilings import Ceiling, Ceilings
from ..profiling.hardware.host import describe_versions
from ..profiling.hardware.precisions import PRECISIONS
from .attention import ALGORITHMS, Attention
from .attention import DIRECTIONS as ATTENTION_DIRECTIONS
from .backends import Backend
from .conv import DIRECTIONS, Conv
from .experts import ALGORITHMS as EXPERT_ALGORITHMS
from .experts import Experts
from .gemm import Gemm
from .latency import Latency
from .launch import KINDS as LAUNCHES
from .launch import Launch
from .levels import memory_levels
from .memory import KINDS, Memory
from .mix import Mix
from .peak import PeakRounds
from .row_operators import KINDS as ROW_KINDS
from .row_operators import RowOperator
from .runner import Result
from .sweeps import Sweep, single
from .transfer import HOSTS, Transfer
from .transfer import KINDS as TRANSFERS

# Large enough for a library to reach its best rate.
GEMM_EXTENTS = {"cpu": 1024, "cuda": 4096}
_UNITS = "units "
MEMORY_KINDS = ("copy", "triad", "read", "write")


def ceiling_problems(streams: Backend, library: Backend) -> list[tuple[Backend, str, Sweep]]:
    """Problems to measure: backend, what the result stands for, and sweep.

    That is a precision, whose products (of `library`) have random operands, a memory level, or the
    units of one, e.g. `units fp32`, where a GPU's kernel (of `streams`) multiplies constants. A
    kernel that is a lower bound is left out: the library's products pass it.
    """
    problems: list[tuple[Backend, str, Sweep]] = []
    extent = GEMM_EXTENTS[library.describe()["kind"]]
    for precision in PRECISIONS:
        # fp8 has one layout; in the others the layout hardly matters at this size.
        gemm = Gemm(extent, extent, extent, "TN" if precision == "fp8" else "NN", precision)
        problems.append((library, precision, single(gemm)))
    for peak in map(streams.peak, streams.peak_precisions):
        if isinstance(peak, PeakRounds) and peak.beyond:
            continue
        prefix = _UNITS if isinstance(peak, PeakRounds) else ""
        problems.append((streams, prefix + peak.precision, single(peak)))
    for level in memory_levels(streams.describe()):
        for kind in MEMORY_KINDS:
            problems.append((streams, level.name, single(Memory(kind, level.size_bytes))))
    return problems


def every_problem(streams: Backend, library: Backend) -> list[tuple[Backend, Sweep]]:
    """One problem of each benchmark with a suitable backend; arguments like `ceiling_problems`."""
    problems: list[tuple[Backend, Any]] = [(library, Gemm(2048, 2048, 2048))]
    conv = Conv(8, 128, 56, 56, 256, 3, 3, padding=(1, 1))
    problems += [(library, replace(conv, direction=direction)) for direction in DIRECTIONS]
    for algorithm, direction in product(ALGORITHMS, ATTENTION_DIRECTIONS):
        attention = Attention(4, 8, 512, 64, algorithm, direction=direction)
        problems.append((library, attention))
    problems += [
        (library, Experts(8, 1024, 1024, 1024, algorithm)) for algorithm in EXPERT_ALGORITHMS
    ]
    problems += [(library, RowOperator(4096, 1024, kind)) for kind in ROW_KINDS]
    device = streams.describe()
    for level in memory_levels(device):
        problems += [(streams, Memory(kind, level.size_bytes)) for kind in KINDS]
    problems.append((streams, Mix(16, memory_levels(device)[-1].size_bytes)))
    levels_of_thread = memory_levels(device, processors=1)
    problems += [(streams, Latency(level.size_bytes)) for level in levels_of_thread]
    problems += [(library, Launch(kind)) for kind in LAUNCHES]
    if library.describe()["kind"] == "cuda":
        problems += [(library, Transfer(*pair)) for pair in product(TRANSFERS, HOSTS)]
    problems += [(streams, streams.peak(precision)) for precision in streams.peak_precisions]
    return [(backend, single(problem)) for backend, problem in problems]


def find_ceilings(device: dict[str, Any], measured: Sequence[tuple[str, str, Result]]) -> Ceilings:
    """The best result of each precision, its units and each memory level.

    Results come with the name of their backend, and with their place in `ceiling_problems`.
    """
    compute: dict[str, Ceiling] = {}
    bandwidth: dict[str, Ceiling] = {}
    units: dict[str, Ceiling] = {}
    clocks_hz: list[int] = []
    for backend, place, result in measured:
        clocks_hz += result.clock_hz or ()
        name = place.removeprefix(_UNITS)
        if name in PRECISIONS:
            amount, best = result.flops, compute if name == place else units
        else:
            amount, best = result.bytes_compulsory, bandwidth
        if not result.fastest_visit_ns or not amount:
            continue
        per_s = amount / result.fastest_visit_ns * 1e9
        if name not in best or per_s > best[name].per_s:
            source = f"{result.problem}, {backend}"
            best[name] = Ceiling(per_s, source, result.uncertainty)
    clock_hz = (min(clocks_hz), max(clocks_hz)) if clocks_hz else None
    return Ceilings(device, compute, bandwidth, clock_hz, describe_versions(), units=units)
