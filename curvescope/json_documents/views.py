"""Documents of views of recordings, of lists and of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.decompose.breakdown import Breakdown, Row
from ..analysis.decompose.communication import Communication
from ..analysis.decompose.idle import IdleTime
from ..analysis.ranks.difference import Difference
from ..analysis.ranks.stragglers import Ranks
from ..analysis.roofline import Roofline
from ..analysis.step_table import Cell
from ..gpu_checks import Check
from ..profiling.hardware.devices import Device
from ..profiling.workload.networks.facts import Facts


@dataclass(frozen=True)
class TableDocument:
    """Step times of several recordings: `table`, `sweep`, and `diagnose` over two axes.

    Attributes:
        times: one per recording and batch size.
    """

    times: Sequence[Cell]


@dataclass(frozen=True, kw_only=True)
class RatedRow(Row):
    """One group of a breakdown.

    Attributes:
        exceeded_roofs: roofs of the device that the rates are above, so that they cannot be right.
    """

    exceeded_roofs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class BreakdownDocument(Breakdown):
    """The time of a step by layer, kernel, phase or operator: `breakdown`.

    Attributes:
        by: layer, kernel, phase or op.
        modelled: whether the cost model predicted the times.
        communication: collectives of the step, and kernels beside them; null without communication.
        idle: idle time by what the host did meanwhile, the longest first; empty if less than 5 % of the step is idle.
    """

    by: str
    modelled: bool
    rows: tuple[RatedRow, ...]
    communication: Communication | None
    idle: Sequence[IdleTime]


@dataclass(frozen=True)
class ComparedRecording:
    """One recording of a comparison.

    Attributes:
        name: folder or URL.
        device: name of its device; null if unknown.
        profiled_steps_only: whether all its steps were profiled, so that times include the profiler's cost.
    """

    name: str
    device: str | None
    profiled_steps_only: bool


@dataclass(frozen=True)
class JudgedChange:
    """A time compared with that of the first recording.

    Attributes:
        speedup: time of the first over this time; above 1 is faster.
        low: lower end of its 95 % interval; null if unknown.
        high: upper end; null if unknown.
        p_adjusted: p of no change, adjusted over the family; 1 if unknown.
        real: whether the change is significant.
    """

    speedup: float
    low: float | None
    high: float | None
    p_adjusted: float
    real: bool


@dataclass(frozen=True)
class ComparedLine:
    """One batch size, or one row at a batch size, over all recordings.

    Attributes:
        label: name of the row.
        times_ms: one per recording; null if missing.
        changes: one per recording after the first; null if either time is missing.
        families: kernel family with the most time, one per recording.
        remarks: one per recording after the first: algorithm or hardware, or empty.
    """

    label: str
    times_ms: Sequence[float | None]
    changes: Sequence[JudgedChange | None]
    families: Sequence[str | None]
    remarks: Sequence[str]


@dataclass(frozen=True)
class RoofRatio:
    """A roof over that of the first recording.

    Attributes:
        ratio: the ratio.
        kind: ceiling if both were measured, else peak.
    """

    ratio: float
    kind: str


@dataclass(frozen=True)
class CompareDocument:
    """Recordings compared with the first: `compare` and `diagnose --against`.

    Attributes:
        recordings: the recordings.
        without_device_work: names of recordings with profiled steps, but without device work.
        differences: settings that differ, one value per recording.
        steps: one line per common batch size.
        batch: batch size of the rows; null if the profiles name none.
        by: layer, operator, family or kernel.
        rows: largest time first; idle last.
        roof_ratios: one per recording after the first, by memory level or precision.
        fail_over: growth that fails the check; null if none was asked for.
        failed: whether a step time grew by more and significantly.
    """

    recordings: Sequence[ComparedRecording]
    without_device_work: Sequence[str]
    differences: Mapping[str, Sequence[str]]
    steps: Sequence[ComparedLine]
    batch: int | None
    by: str
    rows: Sequence[ComparedLine]
    roof_ratios: Sequence[Mapping[str, RoofRatio]]
    fail_over: float | None
    failed: bool


@dataclass(frozen=True, kw_only=True)
class RooflineDocument(Roofline):
    """Points under the roofs of the device: `roofline`. The older pair `format` and `version` stays.

    Attributes:
        format: `curvescope roofline`.
        version: version of this document before all documents had one.
        device: name of the device; null if unknown.
    """

    format: str
    version: int
    device: str | None


@dataclass(frozen=True, kw_only=True)
class RanksDocument(Ranks):
    """Many ranks of one job: `ranks`.

    Attributes:
        interrupted: whether it covers only some of the ranks.
        asked: number of recordings that were found.
        differences: the largest stragglers explained, or the groups asked for.
    """

    interrupted: bool
    asked: int
    differences: Sequence[Difference]


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
