"""Step times of several recordings side by side: by network, framework and device, and by batch
size.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path

import pandas as pd

from ..base.csv_cells import csv_text
from ..base.markdown import write_markdown
from ..profiling.hardware.limits import hardware_of
from ..profiling.recording.axis import BATCH, axis_of
from ..profiling.recording.store import Recording
from .decompose.breakdown import break_down_recording
from .decompose.curve import Point, cost_curve
from .decompose.mfu import Mfu, step_mfu
from .ran_by import framework_of

_PUBLISHED = Path(__file__).parent / "published" / "network_steps.csv"


@dataclass(frozen=True)
class Cell:
    """One step time, or the reason for its absence."""

    origin: str  # `measured` by Curvescope, `modelled` by its cost model, or `published` by others
    network: str  # name of the network
    mode: str  # mode of the step
    precision: str | None  # fp32, tf32, fp16 or bf16; None if a publication omits it
    compiled: bool | None  # whether torch.compile generated the kernels; None if not applicable
    framework: str  # framework with its version
    device: str  # name of the device
    protocol: str | None  # protocol of the measurement; None for published times
    batch: int  # number of samples in a step
    time_ms: float | None = None  # T(b); None if missing
    low_ms: float | None = None  # lower end of its 95 % interval; None if unknown
    high_ms: float | None = None  # upper end; None if unknown
    spread: float | None = None  # interquartile range divided by T(b)
    n: int | None = None  # number of timed steps; None if a publication omits it
    samples_per_s: float | None = None  # batch divided by T(b)
    peak_memory_bytes: int | None = None  # largest peak of the visits
    # model FLOPs utilisation, 0 to 1; None if no peak or no FLOPs are known, or nothing was
    # profiled
    mfu: float | None = None
    mfu_peak: str | None = None  # the peak that it is of, FLOP/s and source; None without it
    empty: str | None = None  # reason for a missing time; None if there is one
    axis: str = BATCH  # name of what `batch` counts
    fixed: str | None = None  # values of other axes, e.g. `tokens=128 width=64`; None for none.
    source: str = field(kw_only=True)  # the recording, or the publication

    @property
    def configuration(self) -> str:
        """Mode, precision and values of other axes as text."""
        compiled = "compiled" if self.compiled else None
        parts = (self.mode, self.precision, compiled, self.fixed)
        return " ".join(filter(None, parts))

    @property
    def device_and_origin(self) -> str:
        """The device, marked if the time was not measured by Curvescope."""
        # like names of modelled devices
        said = self.origin == "measured" or f"({self.origin}" in self.device
        if said:
            return self.device
        return f"{self.device} ({self.origin})"


@dataclass(frozen=True)
class TableDocument:
    """Step times of several recordings: `compare --steps` and `sweep`."""

    times: Sequence[Cell]  # one per recording and batch size


def cells_of(recording: Recording) -> list[Cell]:
    """Step times for every batch size of a sweep in increasing order, including missing ones."""
    meta, steps = recording.meta, recording.frame("steps")
    make = _cell_maker(recording)
    cells = []
    is_profiled = steps["profiled"].astype(bool)
    measured = steps[~is_profiled]
    profiled = set(steps.loc[is_profiled, "batch"].dropna())
    hardware = hardware_of(meta)
    has_roof = hardware.roof("compute") is not None
    for point in cost_curve(steps, recording.statistic).points if len(measured) else ():
        mfu = None
        if has_roof and point.condition in profiled:
            breakdown = break_down_recording(recording, "phase", point.condition)
            mfu = step_mfu(recording, breakdown, hardware)
        of_size = measured["batch"] == point.condition
        peak = measured.loc[of_size, "peak_memory_bytes"].max()
        cell = _with_time(make(batch=point.condition), point, mfu)
        if not pd.isna(peak):
            cell = replace(cell, peak_memory_bytes=int(peak))
        if meta.get("same_shapes"):
            cell = replace(cell, samples_per_s=None)
        cells.append(cell)
    done = {cell.batch for cell in cells}
    for failed in meta.get("unmeasured", ()):
        if failed["batch"] not in done:
            cells.append(make(batch=failed["batch"], empty=failed["why"]))
    recorded = set(steps["batch"].dropna())
    for batch in set(meta.get("batches") or ()) - {cell.batch for cell in cells}:
        why = "only profiled" if batch in recorded else "not measured yet"
        cells.append(make(batch=batch, empty=why))
    return sorted(cells, key=lambda cell: cell.batch)


def _cell_maker(recording: Recording) -> Callable[..., Cell]:
    """A function that makes the cell of a `batch`; `empty` is the reason for a missing time."""
    meta = recording.meta
    is_imported = "imported_from" in meta
    fixed = []
    for name, value in (meta.get("fixed") or {}).items():
        fixed.append(f"{name}={value}")
    origin = "modelled" if meta.get("recorder") == "model" else "measured"
    network = meta.get("network") or recording.path.name
    device = meta.get("device") or {}
    protocol = meta.get("protocol") or {}
    return partial(
        Cell,
        origin=origin,
        network=str(network),
        mode=str(meta.get("mode") or ""),
        precision=meta.get("precision", None if is_imported else "fp32"),
        compiled=bool(meta.get("compiled", False)),
        framework=framework_of(recording),
        device=str(device.get("name")),
        protocol=protocol.get("name"),
        axis=axis_of(meta).name,
        fixed=" ".join(fixed) or None,
        source=str(recording.path),
    )


def _with_time(cell: Cell, point: Point, mfu: Mfu | None) -> Cell:
    """A cell with its time and its rates."""
    time = point.time_ms
    samples_per_s = point.condition / time.value * 1e3
    cell = replace(
        cell, time_ms=time.value, spread=point.spread, n=point.n, samples_per_s=samples_per_s
    )
    if time.low > float("-inf"):
        cell = replace(cell, low_ms=time.low, high_ms=time.high)
    if mfu is None:
        return cell
    peak = f"{mfu.peak_flops_per_s / 1e12:.4g} TFLOP/s, {mfu.peak_source}"
    return replace(cell, mfu=mfu.share, mfu_peak=peak)


def read_published_cells(networks: Sequence[str]) -> list[Cell]:
    """Published step times of these networks, from `analysis/published`."""
    cells = []
    with _PUBLISHED.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["network"] in networks:
                cells.append(_make_published_cell(row))
    return cells


def _make_published_cell(row: Mapping[str, str]) -> Cell:
    batch = int(row["batch"])
    time_ms = float(row["time_ms"])
    return Cell(
        origin="published",
        network=row["network"],
        mode=row["mode"],
        precision=row["precision"] or None,
        compiled=None,
        framework=row["framework"],
        device=row["device"],
        protocol=None,
        batch=batch,
        time_ms=time_ms,
        samples_per_s=batch / time_ms * 1e3,
        source=row["source"],
    )


@dataclass(frozen=True)
class Grid:
    """Step times in rows and columns."""

    keys: tuple[str, ...]  # names of the fields that identify a row
    columns: tuple[str, ...]  # headings of the columns
    # values of the keys, then one cell per column; None if there is none
    rows: tuple[tuple[tuple[str, ...], tuple[Cell | None, ...]], ...]


def by_batch(cells: Sequence[Cell]) -> Grid:
    """A row per network, step, device and framework; a column per batch size."""

    def row(cell: Cell) -> tuple[str, ...]:
        return cell.network, cell.configuration, cell.device_and_origin, cell.framework

    keys = ("network", "step", "device", "framework")
    return _grid(cells, keys, row, lambda cell: str(cell.batch))


def by_device(cells: Sequence[Cell], batch: int) -> Grid:
    """At one batch size: a row per network, step and framework; a column per device."""

    def row(cell: Cell) -> tuple[str, ...]:
        return cell.network, cell.configuration, cell.framework

    of_batch = [cell for cell in cells if cell.batch == batch]
    keys = ("network", "step", "framework")
    return _grid(of_batch, keys, row, lambda cell: cell.device_and_origin)


def common_batch(cells: Sequence[Cell]) -> int | None:
    """The batch size for which most rows have a time (the largest of several), of those measured
    here, if any are.
    """
    timed = [cell for cell in cells if cell.time_ms is not None]
    measured = {cell.batch for cell in timed if cell.origin == "measured"}
    rows: dict[int, set[tuple[str, ...]]] = {}
    for cell in timed:
        if not measured or cell.batch in measured:
            row = (cell.network, cell.configuration, cell.framework, cell.device)
            rows.setdefault(cell.batch, set()).add(row)
    return max(rows, key=lambda batch: (len(rows[batch]), batch), default=None)


def _grid(
    cells: Sequence[Cell],
    keys: tuple[str, ...],
    row_of: Callable[[Cell], tuple[str, ...]],
    column_of: Callable[[Cell], str],
) -> Grid:
    columns = list(dict.fromkeys(map(column_of, cells)))
    if all(column.isdigit() for column in columns):
        columns.sort(key=int)
    by_row: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells:
        of_row = by_row.setdefault(row_of(cell), {})
        of_row[column_of(cell)] = cell  # the later recording replaces the earlier
    rows = []
    for row, of_row in by_row.items():
        rows.append((row, tuple(map(of_row.get, columns))))
    return Grid(keys, tuple(columns), tuple(rows))


def to_csv(cells: Sequence[Cell]) -> str:
    """A line per step time with every attribute; unknown values are empty."""
    names = [field.name for field in fields(Cell)]
    return csv_text(names, map(asdict, cells))


def to_markdown(grid: Grid, text_of: Callable[[Cell | None], str]) -> str:
    """The grid as a Markdown table."""
    rows = [[*keys, *map(text_of, cells)] for keys, cells in grid.rows]
    return write_markdown([*grid.keys, *grid.columns], rows, words=len(grid.keys))
