"""What the page of a report is drawn from: the types of its JSON, whose names its script reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ...profiling.hardware.limits import Roof
from ..compare import ComparedLine
from ..likely_bounds import LikelyPoint
from ..roofline import RoofPoint
from .energy import EnergyDocument
from .explained import ExplainDocument
from .first_screen import FirstScreen
from .report_experiments import RowsTable, TestedTerm
from .report_timeline import Timeline


class ReportDocument(TypedDict):
    """A report of some recordings, the main one first; unknown values are None."""

    version: str
    confirmed_above: float
    refuted_below: float
    runs: list[ReportRun]
    comparison: ReportComparison | None
    history: ReportHistory | None  # the step that six recordings or more have, the first of several


class ReportRun(TypedDict):
    """One recording of a report."""

    name: str
    step: str | None  # what a step runs
    device: str | None
    facts: list[list[str]]  # name and value
    lost: list[str]
    caveats: list[str]
    axis: dict[str, str]  # the words of the axis
    explain: ExplainDocument
    first: FirstScreen | None  # None without a curve: the headline says where the time goes
    lead: str
    source: dict[str, str]  # the text of named lines of the program, by `file:line`
    tested: dict[str, dict[str, TestedTerm]]  # by anomaly and term
    how_to_test: str | None
    energy: EnergyDocument | None
    timelines: list[Timeline]
    roofline: ReportRoofline | None
    kernels: KernelTable
    steps: RowsTable | None
    runs_of_experiments: RowsTable | None


class MeasuredShares(TypedDict, total=False):
    """Measured shares of a kernel, where some have them: means over its time, by batch size."""

    occupancy: list[float | None]
    tensor: list[float | None]


class KernelRow(MeasuredShares):
    """A kernel of one layer, phase and operator; lists are by batch size, per step."""

    name: str | None
    short: str
    family: str
    layer: str | None
    path: str | None
    op: str | None
    phase: str | None
    ms: list[float | None]
    calls: list[float | None]
    gflops: list[float | None]
    gbs: list[float | None]
    exceeded: list[Sequence[str] | None]  # roofs that its rates exceed


class KernelTable(TypedDict):
    """Kernels; the times of `rows`, `more_ms` and `idle_ms` add up to the mean profiled step."""

    batches: list[int | None]
    rows: list[KernelRow]
    more: int  # number of rows that are left out
    more_ms: list[float]
    idle_ms: list[float]
    calls: int


class ReportRoofline(TypedDict):
    """A roofline with its longest points."""

    batch: int | None
    by: str
    points: list[RoofPoint]
    roofs: Sequence[Roof]
    time_without_work_s: float
    n_steps: int | None
    without_work: Sequence[LikelyPoint]
    more: int  # number of points that are left out


class ReportChange(TypedDict):
    """A place in a history from which on the times are others."""

    place: int  # number of the first recording behind the change, from 0
    said: str


class ReportHistory(TypedDict):
    """The times of a step over recordings, oldest first."""

    axis: str  # the name of the axis
    sizes: Sequence[int]
    recordings: list[str]  # the day and commit of each
    shares: list[list[float]]  # times in % of the first recording, shape (recordings, sizes)
    changes: list[ReportChange]


class ReportComparison(TypedDict):
    """Every recording compared with the first."""

    names: list[str]
    verdicts: Sequence[str]
    differences: Mapping[str, Sequence[str]]
    by: str
    batch: int | None
    steps: Sequence[ComparedLine]
    rows: Sequence[ComparedLine]
