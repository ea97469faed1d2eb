"""The documents of `bench --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ...analysis.candidates import CandidatesSweep
from ...kernels.conditions import Note
from ...kernels.method import Method
from ...kernels.runner import Result
from ...profiling.hardware.ceilings import Ceiling


@dataclass(frozen=True, kw_only=True)
class BenchSweep:
    """One sweep of problems."""

    recording: str  # its recording
    backend: str  # library or compiler that ran it
    label: str  # its problem, with the axis as a letter
    axis: str  # axis of the problems
    layers: Sequence[str]  # layers of a network that have this problem
    phase: str | None  # their phase
    results: Sequence[Result]  # one per problem
    cache: str  # state of the caches: cold or hot


@dataclass(frozen=True)
class BenchDocument:
    """Operators alone: `bench gemm`, `conv`, `attention`, `experts`, `operators`, `memory`,
    `roof`, `latency`, `launch`, `peak`, `all`.
    """

    method: Method  # how it was measured
    sweeps: Sequence[BenchSweep]  # the sweeps


@dataclass(frozen=True)
class CandidatesDocument:
    """What else the library offers for products: `bench gemm --candidates`."""

    sweeps: Sequence[CandidatesSweep]  # the sweeps


@dataclass(frozen=True, kw_only=True)
class ReplayedCall:
    """One recorded operator at one batch size, replayed alone."""

    op: str  # name of the operator
    layers: Sequence[str]  # layers that call it
    phase: str | None  # forward, backward or optimizer
    batch: int  # the batch size
    problem: str  # its shapes in words
    calls: float  # calls per step
    n: int  # number of kept samples
    alone_ns: float | None  # median of one call alone
    low_ns: float | None  # lower end of its interval
    high_ns: float | None  # upper end
    in_step_ns: float | None  # time of one call in the step
    ratio: float | None  # time in the step over time alone
    kernels: str  # whether both run the same kernels: same, other or unknown
    notes: Sequence[Note]  # disturbances


@dataclass(frozen=True, kw_only=True)
class UnreplayedCall:
    """One recorded operator that was not replayed."""

    op: str  # name of the operator
    layers: Sequence[str]  # layers that call it
    phase: str | None  # forward, backward or optimizer
    batch: int | None  # the batch size; null for all
    reason: str  # why it was not


@dataclass(frozen=True, kw_only=True)
class ReplayDocument:
    """Recorded operators alone: `bench replay`."""

    method: Method  # how it was measured
    recording: str  # the recording of the operators
    calls: Sequence[ReplayedCall]  # one per operator and batch size
    left_out: Sequence[UnreplayedCall]  # those that could not be replayed
    minor: int  # number of operators that were left out because they take little time
    minor_share: float  # their share of the time


@dataclass(frozen=True, kw_only=True)
class CeilingsDocument:
    """Measured ceilings of this device: `bench ceilings`; roofs that could not be measured are
    missing.
    """

    kept: str  # file that stores them
    compute: Mapping[str, Ceiling]  # by precision, FLOP/s
    bandwidth: Mapping[str, Ceiling]  # by memory level, B/s
    clock_hz: tuple[int, int] | None  # lowest and highest clock while measuring
    versions: Mapping[str, str | None]  # versions of the libraries
    # by precision, FLOP/s of multiply-adds of constants on a GPU, which no data reaches
    units: Mapping[str, Ceiling]
    measured_utc: str  # when they were measured
    flops_per_s: float | msgspec.UnsetType = msgspec.UNSET  # the ceiling of fp32
    dram_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET  # the ceiling of DRAM
    l2_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET  # the ceiling of the L2 cache
    l1_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET  # the ceiling of the L1 cache
    l3_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET  # the ceiling of the L3 cache
