"""Step times of several recordings side by side: by network, framework and device, and by batch
size.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import pandas as pd

from ..base.csv_cells import csv_text
from ..base.markdown import write_markdown
from ..profiling.hardware.limits import hardware_of
from ..profiling.recording.axis import BATCH, axis_of
from ..profiling.recording.store import Recording
from .decompose.breakdown import break_down_recording
from .decompose.curve import cost_curve
from .decompose.mfu import step_mfu
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
        return " ".join(
            filter(
                None, (self.mode, self.precision, "compiled" if self.compiled else None, self.fixed)
            )
        )

    @property
    def device_and_origin(self) -> str:
        """The device, marked if the time was not measured by Curvescope."""
        # like names of modelled devices
        said = self.origin == "measured" or f"({self.origin}" in self.device
        return self.device if said else f"{self.device} ({self.origin})"


@dataclass(frozen=True)
class TableDocument:
    """Step times of several recordings: `compare --steps` and `sweep`."""

    times: Sequence[Cell]  # one per recording and batch size


def cells_of(recording: Recording) -> list[Cell]:
    """Step times for every batch size of a sweep in increasing order, including missing ones."""
    meta, steps = recording.meta, recording.frame("steps")
    imported = "imported_from" in meta
    precision, compiled = (
        meta.get("precision", None if imported else "fp32"),
        bool(meta.get("compiled", False)),
    )
    framework = framework_of(recording)
    device = str((meta.get("device") or {}).get("name"))
    network, mode = str(meta.get("network") or recording.path.name), str(meta.get("mode") or "")
    origin = "modelled" if meta.get("recorder") == "model" else "measured"
    protocol = (meta.get("protocol") or {}).get("name")
    fixed = " ".join(f"{name}={value}" for name, value in (meta.get("fixed") or {}).items()) or None

    def cell(batch: int, empty: str | None = None) -> Cell:
        shared = (origin, network, mode, precision, compiled, framework, device, protocol)
        return Cell(
            *shared,
            batch,
            empty=empty,
            axis=axis_of(meta).name,
            fixed=fixed,
            source=str(recording.path),
        )

    cells, hardware = [], hardware_of(meta)
    measured = steps[~steps["profiled"].astype(bool)]
    profiled = set(steps.loc[steps["profiled"].astype(bool), "batch"].dropna())
    for point in cost_curve(steps, recording.statistic).points if len(measured) else ():
        peak = measured[measured["batch"] == point.condition]["peak_memory_bytes"].max()
        time = point.time_ms
        has_interval = time.low > float("-inf")
        mfu = None
        if point.condition in profiled and hardware.roof("compute") is not None:
            mfu = step_mfu(
                recording, break_down_recording(recording, "phase", point.condition), hardware
            )
        cells.append(
            replace(
                cell(point.condition),
                time_ms=time.value,
                low_ms=time.low if has_interval else None,
                high_ms=time.high if has_interval else None,
                spread=point.spread,
                n=point.n,
                samples_per_s=None
                if meta.get("same_shapes")
                else point.condition / time.value * 1e3,
                peak_memory_bytes=None if pd.isna(peak) else int(peak),
                mfu=None if mfu is None else mfu.share,
                mfu_peak=None
                if mfu is None
                else f"{mfu.peak_flops_per_s / 1e12:.4g} TFLOP/s, {mfu.peak_source}",
            )
        )
    done = {c.batch for c in cells}
    cells += [
        cell(e["batch"], e["why"]) for e in meta.get("unmeasured", ()) if e["batch"] not in done
    ]
    missing = set(meta.get("batches") or ()) - {c.batch for c in cells}
    profiled = set(steps["batch"].dropna())
    cells += [
        cell(batch, "only profiled" if batch in profiled else "not measured yet")
        for batch in missing
    ]
    return sorted(cells, key=lambda c: c.batch)


def read_published_cells(networks: Sequence[str]) -> list[Cell]:
    """Published step times of these networks, from `analysis/published`."""
    with _PUBLISHED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["network"] in networks]
    return [
        Cell(
            origin="published",
            network=row["network"],
            mode=row["mode"],
            precision=row["precision"] or None,
            compiled=None,
            framework=row["framework"],
            device=row["device"],
            protocol=None,
            batch=int(row["batch"]),
            time_ms=float(row["time_ms"]),
            samples_per_s=int(row["batch"]) / float(row["time_ms"]) * 1e3,
            source=row["source"],
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Grid:
    """Step times in rows and columns."""

    keys: tuple[str, ...]  # names of the fields that identify a row
    columns: tuple[str, ...]  # headings of the columns
    # values of the keys, then one cell per column; None if there is none
    rows: tuple[tuple[tuple[str, ...], tuple[Cell | None, ...]], ...]


def by_batch(cells: Sequence[Cell]) -> Grid:
    """A row per network, step, device and framework; a column per batch size."""
    return _grid(
        cells,
        ("network", "step", "device", "framework"),
        lambda c: (c.network, c.configuration, c.device_and_origin, c.framework),
        lambda c: str(c.batch),
    )


def by_device(cells: Sequence[Cell], batch: int) -> Grid:
    """At one batch size: a row per network, step and framework; a column per device."""
    return _grid(
        [c for c in cells if c.batch == batch],
        ("network", "step", "framework"),
        lambda c: (c.network, c.configuration, c.framework),
        lambda c: c.device_and_origin,
    )


def common_batch(cells: Sequence[Cell]) -> int | None:
    """The batch size for which most rows have a time (the largest of several), of those measured
    here, if any are.
    """
    timed = [c for c in cells if c.time_ms is not None]
    measured = {c.batch for c in timed if c.origin == "measured"}
    rows: dict[int, set[tuple[str, ...]]] = {}
    for cell in timed:
        if not measured or cell.batch in measured:
            rows.setdefault(cell.batch, set()).add(
                (cell.network, cell.configuration, cell.framework, cell.device)
            )
    return max(rows, key=lambda batch: (len(rows[batch]), batch), default=None)


def _grid(
    cells: Sequence[Cell],
    keys: tuple[str, ...],
    row_of: Callable[[Cell], tuple[str, ...]],
    column_of: Callable[[Cell], str],
) -> Grid:
    columns = tuple(dict.fromkeys(column_of(c) for c in cells))
    if all(column.isdigit() for column in columns):
        columns = tuple(sorted(columns, key=int))
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells:
        # the later recording replaces the earlier
        rows.setdefault(row_of(cell), {})[column_of(cell)] = cell
    return Grid(
        keys,
        columns,
        tuple((row, tuple(of_row.get(c) for c in columns)) for row, of_row in rows.items()),
    )


def to_csv(cells: Sequence[Cell]) -> str:
    """A line per step time with every attribute; unknown values are empty."""
    return csv_text([field.name for field in fields(Cell)], (asdict(cell) for cell in cells))


def to_markdown(grid: Grid, text_of: Callable[[Cell | None], str]) -> str:
    """The grid as a Markdown table."""
    rows = [[*keys, *map(text_of, cells)] for keys, cells in grid.rows]
    return write_markdown([*grid.keys, *grid.columns], rows, words=len(grid.keys))
