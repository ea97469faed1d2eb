"""Documents of `bench`: operators alone, ceilings and compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..commands.bench.against import LayerCost
from ..kernels.conditions import Note
from ..kernels.method import Method
from ..kernels.runner import Result
from ..profiling.hardware.ceilings import Ceiling
from .json_schema import OPTIONAL


@dataclass(frozen=True, kw_only=True)
class RatedResult(Result):
    """The result of one problem, with its rates.

    Attributes:
        gflop_per_s: FLOPs of the direct algorithm over the median.
        gb_per_s: compulsory bytes over the median; GB is 10⁹ bytes.
    """

    gflop_per_s: float | None
    gb_per_s: float | None


@dataclass(frozen=True)
class BenchSweep:
    """One sweep of problems.

    Attributes:
        recording: its recording.
        backend: library or compiler that ran it.
        label: its problem, with the axis as a letter.
        axis: axis of the problems.
        layers: layers of a network that have this problem.
        phase: their phase.
        results: one per problem.
    """

    recording: str
    backend: str
    label: str
    axis: str
    layers: Sequence[str]
    phase: str | None
    results: Sequence[RatedResult]


@dataclass(frozen=True)
class BenchDocument:
    """Operators alone: `bench gemm`, `conv`, `attention`, `operators`, `memory`, `latency`, `launch`, `peak` and `all`.

    Attributes:
        method: how it was measured.
        sweeps: the sweeps.
        against: layers alone, against their cost in a step; empty without `--against`.
    """

    method: Method
    sweeps: Sequence[BenchSweep]
    against: Sequence[LayerCost]


@dataclass(frozen=True)
class ReplayedCall:
    """One recorded operator at one batch size, replayed alone.

    Attributes:
        op: name of the operator.
        layers: layers that call it.
        phase: forward, backward or optimizer.
        batch: the batch size.
        problem: its shapes in words.
        calls: calls per step.
        n: number of kept samples.
        alone_ns: median of one call alone.
        low_ns: lower end of its interval.
        high_ns: upper end.
        in_step_ns: time of one call in the step.
        ratio: time in the step over time alone.
        kernels: whether both run the same kernels: same, other or unknown.
        notes: disturbances.
    """

    op: str
    layers: Sequence[str]
    phase: str | None
    batch: int
    problem: str
    calls: float
    n: int
    alone_ns: float | None
    low_ns: float | None
    high_ns: float | None
    in_step_ns: float | None
    ratio: float | None
    kernels: str
    notes: Sequence[Note]


@dataclass(frozen=True)
class UnreplayedCall:
    """One recorded operator that was not replayed.

    Attributes:
        op: name of the operator.
        layers: layers that call it.
        phase: forward, backward or optimizer.
        batch: the batch size; null for all.
        reason: why it was not.
    """

    op: str
    layers: Sequence[str]
    phase: str | None
    batch: int | None
    reason: str


@dataclass(frozen=True)
class ReplayDocument:
    """Recorded operators alone: `bench replay`.

    Attributes:
        method: how it was measured.
        recording: the recording of the operators.
        calls: one per operator and batch size.
        left_out: those that could not be replayed.
        minor: number of operators that were left out because they take little time.
        minor_share: their share of the time.
    """

    method: Method
    recording: str
    calls: Sequence[ReplayedCall]
    left_out: Sequence[UnreplayedCall]
    minor: int
    minor_share: float


@dataclass(frozen=True)
class CeilingsDocument:
    """Measured ceilings of this device: `bench ceilings`; roofs that could not be measured are missing.

    Attributes:
        kept: file that stores them.
        compute: by precision, FLOP/s.
        bandwidth: by memory level, B/s.
        clock_hz: lowest and highest clock while measuring.
        versions: versions of the libraries.
        measured_utc: when they were measured.
        flops_per_s: the ceiling of fp32.
        dram_bytes_per_s: the ceiling of DRAM.
        l2_bytes_per_s: the ceiling of the L2 cache.
        l1_bytes_per_s: the ceiling of the L1 cache.
        l3_bytes_per_s: the ceiling of the L3 cache.
    """

    kept: str
    compute: Mapping[str, Ceiling]
    bandwidth: Mapping[str, Ceiling]
    clock_hz: tuple[int, int] | None
    versions: Mapping[str, str | None]
    measured_utc: str
    flops_per_s: float = field(metadata=OPTIONAL)
    dram_bytes_per_s: float = field(metadata=OPTIONAL)
    l2_bytes_per_s: float = field(metadata=OPTIONAL)
    l1_bytes_per_s: float = field(metadata=OPTIONAL)
    l3_bytes_per_s: float = field(metadata=OPTIONAL)


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel, compiled for one architecture.

    Attributes:
        source: its source.
        kernel: its name.
        architecture: e.g. sm_70.
        nvrtc: version of the compiler.
        registers_per_thread: allocated registers.
        shared_bytes: static shared memory per block.
        local_bytes: stack frame per thread.
        constant_bytes: bytes by bank.
        parameter_bytes: bytes of the arguments.
        code_bytes: bytes of instructions.
        max_threads: largest block by launch bounds.
        spill_store_bytes: bytes that spills write.
        spill_load_bytes: bytes that spills read.
        block_threads: threads per block.
        occupancy: share of the SM's warps.
        blocks_per_sm: blocks that fit an SM.
        limiters: resources that allow no further block.
        block_sizes_with_more: occupancy by block size, for those with a higher one.
        registers_for_more: most registers per thread that give a higher occupancy.
        instructions: number of each instruction.
        instruction_mix: number by class of instruction.
        instructions_missing: reason that `instructions` is null.
    """

    source: str
    kernel: str
    architecture: str
    nvrtc: str
    registers_per_thread: int
    shared_bytes: int
    local_bytes: int
    constant_bytes: Mapping[str, int]
    parameter_bytes: int
    code_bytes: int
    max_threads: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    block_threads: int
    occupancy: float | None
    blocks_per_sm: int | None
    limiters: Sequence[str] | None
    block_sizes_with_more: Mapping[str, float] | None
    registers_for_more: int | None
    instructions: Mapping[str, int] | None
    instruction_mix: Mapping[str, int] | None
    instructions_missing: str | None


@dataclass(frozen=True)
class CompileDocument:
    """Kernels compiled without a GPU: `bench compile`.

    Attributes:
        cache: folder of compiled kernels.
        cubins: number of compiled files.
        from_cache: number of them that were compiled before.
        kernels: one per kernel and architecture.
    """

    cache: str
    cubins: int
    from_cache: int
    kernels: Sequence[CompiledKernel]
