"""The documents of `--json` that commands make themselves; those of analyses are in `analysis.render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from .analysis.step_table import Cell
from .commands.bench.against import LayerCost
from .gpu_checks import Check
from .kernels.conditions import Note
from .kernels.method import Method
from .kernels.runner import Result
from .profiling.hardware.ceilings import Ceiling
from .profiling.hardware.devices import Device
from .profiling.workload.networks.facts import Facts


@dataclass(frozen=True)
class TableDocument:
    """Step times of several recordings: `table`, `sweep`, and `diagnose` over two axes.

    Attributes:
        times: one per recording and batch size.
    """

    times: Sequence[Cell]


@dataclass(frozen=True, kw_only=True)
class ListedRecording:
    """One recording of a folder.

    Attributes:
        path: folder or URL.
        status: complete, or why not.
        created_utc: when it was made.
        network: name of the network or step.
        device: name of the device.
        batches: its batch sizes.
        experiments: number of experiments on its causes.
    """

    path: str
    status: str
    created_utc: str | None
    network: str | None
    device: str | None
    batches: Sequence[int] | None
    experiments: int


@dataclass(frozen=True)
class RunsDocument:
    """The recordings of a folder or store: `runs`.

    Attributes:
        recordings: oldest first.
    """

    recordings: Sequence[ListedRecording]


@dataclass(frozen=True, kw_only=True)
class ListedNetwork(Facts):
    """A network known by name; work is per sample.

    Attributes:
        name: its name.
        paper: where it was published.
        input_shape: shape of a sample.
    """

    name: str
    paper: str
    input_shape: Sequence[int]


@dataclass(frozen=True)
class NetworksDocument:
    """The networks known by name: `networks`.

    Attributes:
        networks: one per network.
    """

    networks: Sequence[ListedNetwork]


@dataclass(frozen=True, kw_only=True)
class ListedDevice(Device):
    """A GPU of the table of devices.

    Attributes:
        peak_flops_per_s_base: fp32 peak at the base clock.
        peak_flops_per_s_boost: fp32 peak at the boost clock.
    """

    peak_flops_per_s_base: float | None
    peak_flops_per_s_boost: float | None


@dataclass(frozen=True)
class DevicesDocument:
    """The table of devices: `devices`.

    Attributes:
        devices: one per GPU.
    """

    devices: Sequence[ListedDevice]


@dataclass(frozen=True)
class DoctorDocument:
    """What this machine has: `doctor`.

    Attributes:
        checks: one per item.
    """

    checks: Sequence[Check]


@dataclass(frozen=True, kw_only=True)
class ImportDocument:
    """A finished import: `import`.

    Attributes:
        path: folder of the recording.
        format: name of the file's format.
        rows: rows by table.
        lost: count, severity and sentence by name.
        missing: data that the profiler did not record, by name, with a sentence.
        steps_from: source of the steps; null for formats without steps.
        device_time_in_steps: share of the device time that lies in steps; null without times or steps.
        batch_from: source of the batch sizes; null if unknown.
    """

    path: str
    format: str
    rows: Mapping[str, int]
    lost: Mapping[str, Any]
    missing: Mapping[str, str]
    steps_from: str | None
    device_time_in_steps: float | None
    batch_from: str | None


@dataclass(frozen=True)
class ExportDocument:
    """A finished export: `export`.

    Attributes:
        path: file or folder.
        format: perfetto, csv or parquet.
        rows_without_time: rows without a start time, which viewers do not show.
    """

    path: str
    format: str
    rows_without_time: int


@dataclass(frozen=True, kw_only=True)
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
    results: Sequence[Result]


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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class CeilingsDocument:
    """Measured ceilings of this device: `bench ceilings`; roofs that could not be measured are missing.

    Attributes:
        kept: file that stores them.
        compute: by precision, FLOP/s.
        bandwidth: by memory level, B/s.
        clock_hz: lowest and highest clock while measuring.
        versions: versions of the libraries.
        units: by precision, FLOP/s of multiply-adds of constants on a GPU, which no data reaches.
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
    units: Mapping[str, Ceiling]
    measured_utc: str
    flops_per_s: float | msgspec.UnsetType = msgspec.UNSET
    dram_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET
    l2_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET
    l1_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET
    l3_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, kw_only=True)
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
    block_sizes_with_more: Mapping[int, float] | None
    registers_for_more: int | None
    instructions: Mapping[str, int] | None
    instruction_mix: Mapping[str, int] | None
    instructions_missing: str | None


@dataclass(frozen=True, kw_only=True)
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
