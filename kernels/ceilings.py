"""The problems that measure a device's ceilings, and how their results become ceilings.

A ceiling is the best rate of a device, so only the fastest visit counts: other work makes visits
slower, never faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..profiling.hardware.ceilings import Ceiling, Ceilings
from ..profiling.hardware.host import describe_versions
from ..profiling.hardware.precisions import PRECISIONS
from .attention import ALGORITHMS, Attention
from .attention import DIRECTIONS as ATTENTION_DIRECTIONS
from .backends import Backend
from .conv import DIRECTIONS, Conv
from .gemm import Gemm
from .latency import Latency
from .launch import KINDS as LAUNCHES
from .launch import Launch
from .levels import memory_levels
from .memory import KINDS, Memory
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
    units of one, e.g. `units fp32`, where a GPU's kernel (of `streams`) multiplies constants.
    """
    problems: list[tuple[Backend, str, Sweep]] = []
    extent = GEMM_EXTENTS[library.describe()["kind"]]
    for precision in PRECISIONS:
        # fp8 has one layout; in the others the layout hardly matters at this size.
        gemm = Gemm(extent, extent, extent, "TN" if precision == "fp8" else "NN", precision)
        problems.append((library, precision, single(gemm)))
    for peak in map(streams.peak, streams.peak_precisions):
        of = _UNITS if isinstance(peak, PeakRounds) else ""
        problems.append((streams, of + peak.precision, single(peak)))
    for level in memory_levels(streams.describe()):
        for kind in MEMORY_KINDS:
            problems.append((streams, level.name, single(Memory(kind, level.size_bytes))))
    return problems


def every_problem(streams: Backend, library: Backend) -> list[tuple[Backend, Sweep]]:
    """One problem of each benchmark with a suitable backend; arguments like `ceiling_problems`."""
    gemm = Gemm(2048, 2048, 2048)
    conv = [
        Conv(8, 128, 56, 56, 256, 3, 3, padding=(1, 1), direction=direction)
        for direction in DIRECTIONS
    ]
    attention = [
        Attention(4, 8, 512, 64, algorithm, precision="bf16", direction=direction)
        for algorithm in ALGORITHMS
        for direction in ATTENTION_DIRECTIONS
    ]
    rows = [RowOperator(4096, 1024, kind) for kind in ROW_KINDS]
    jobs = [(library, single(problem)) for problem in (gemm, *conv, *attention, *rows)]
    for level in memory_levels(streams.describe()):
        jobs += [(streams, single(Memory(kind, level.size_bytes))) for kind in KINDS]
    jobs += [
        (streams, single(Latency(level.size_bytes)))
        for level in memory_levels(streams.describe(), processors=1)
    ]
    jobs += [(library, single(Launch(kind))) for kind in LAUNCHES]
    if library.describe()["kind"] == "cuda":
        jobs += [(library, single(Transfer(kind, host))) for kind in TRANSFERS for host in HOSTS]
    return jobs + [
        (streams, single(streams.peak(precision))) for precision in streams.peak_precisions
    ]


def find_ceilings(device: dict[str, Any], measured: Sequence[tuple[str, str, Result]]) -> Ceilings:
    """The best result of each precision, its units and each memory level: of (backend, what it
    stands for, result).
    """
    compute: dict[str, Ceiling] = {}
    bandwidth: dict[str, Ceiling] = {}
    units: dict[str, Ceiling] = {}
    for backend, of, result in measured:
        name = of.removeprefix(_UNITS)
        amount = result.flops if name in PRECISIONS else result.bytes_compulsory
        if not result.fastest_visit_ns or not amount:
            continue
        best = units if of != name else compute if name in PRECISIONS else bandwidth
        ceiling = Ceiling(
            amount / result.fastest_visit_ns * 1e9,
            f"{result.problem}, {backend}",
            result.uncertainty,
        )
        if name not in best or ceiling.per_s > best[name].per_s:
            best[name] = ceiling
    clocks_hz = [hz for _, _, result in measured for hz in result.clock_hz or ()]
    clock_hz = (min(clocks_hz), max(clocks_hz)) if clocks_hz else None
    return Ceilings(device, compute, bandwidth, clock_hz, describe_versions(), units=units)
