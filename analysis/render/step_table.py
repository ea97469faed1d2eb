"""Recordings side by side: step times by batch size, and by network, framework and device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...base.counted import counted
from ...base.escaping import escape_controls
from ...base.numbers import number
from ...profiling.recording.axis import Axis
from .. import step_table
from ..conditions import conditions_of
from . import terminal
from .breakdown import mfu_text
from .documents import print_document
from .names import short_devices
from .tables import TextTable, table
from .words import number_cell

if TYPE_CHECKING:
    from ...profiling.recording.store import Recording
    from ..step_table import Cell, Grid

TEXT, CSV, MARKDOWN, JSON = FORMATS = ("text", "csv", "markdown", "json")


def show_step_times(
    recordings: Sequence[Recording], form: str, *, published: bool = False, batch: int | None = None
) -> None:
    """Print step times of recordings in one of `FORMATS`; `batch` None: compare at the largest that
    every row has.
    """
    cells: list[Cell] = []
    for recording in recordings:
        cells += step_table.cells_of(recording)
    if published:
        networks = sorted({cell.network for cell in cells})
        cells += step_table.read_published_cells(networks)
    compared = step_table.common_batch(cells) if batch is None else batch
    if form == JSON:
        print_document(step_table.TableDocument(cells))
    elif form == CSV:
        print(escape_controls(step_table.to_csv(cells)), end="")
    elif form == MARKDOWN:
        _print_markdown("Step ms by batch size", step_table.by_batch(cells))
        if compared is not None:
            print()
            grid = step_table.by_device(cells, compared)
            _print_markdown(f"Step ms at batch {compared} by device", grid)
    else:
        _print_text(cells, compared)
        for line in conditions_of(recordings):
            terminal.console().print(line, style="dim")


def _print_markdown(title: str, grid: Grid) -> None:
    lines = step_table.to_markdown(grid, _text)
    print(escape_controls(f"**{title}**\n\n{lines}"))


def _print_text(cells: Sequence[Cell], compared: int | None) -> None:
    console = terminal.console()
    machines = {(cell.device_and_origin, cell.framework) for cell in cells}
    if len(machines) == 1:
        ((device, framework),) = machines
        console.print(f"Step ms by {_axis(cells)}, {device}, {framework}", style="bold")
        console.print(_table_of_networks(step_table.by_batch(cells)))
    else:
        sections: dict[tuple[str, str], list[Cell]] = {}
        for cell in cells:
            section = sections.setdefault((cell.network, cell.mode), [])
            section.append(cell)
        for (network, mode), section in sections.items():
            console.print(f"{network}, {mode} step, ms by {_axis(section)}", style="bold")
            console.print(_table_of_batches(step_table.by_batch(section)))
            console.print(_legend(section), style="dim")
            console.print()
        if compared is not None:
            console.print(f"At batch {compared}", style="bold")
            section = [cell for cell in cells if cell.batch == compared]
            console.print(_table_of_devices(section))
    console.print()
    for note in _notes(cells):
        console.print(note, style="dim")


def _legend(cells: Sequence[Cell]) -> str:
    """The short names of devices with the full ones."""
    devices = [cell.device_and_origin for cell in cells]
    parts = []
    for device, short in short_devices(devices).items():
        if short != device:
            parts.append(f"{short}: {device}")
    names = "; ".join(parts)
    return f"{names}." if names else ""


def _axis(cells: Sequence[Cell]) -> str:
    """What the batch sizes of step times are: values of one axis, or of several."""
    return " and ".join(dict.fromkeys(Axis(cell.axis).value for cell in cells))


def _text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.time_ms is None:
        return cell.empty or ""
    return number(cell.time_ms)


def _table_of_networks(grid: Grid) -> TextTable:
    made = table("network", "step", *grid.columns, left=("step",))
    for (network, step, *_), cells in grid.rows:
        made.add_row(network, step, *map(_text, cells))
    return made


def _table_of_batches(grid: Grid) -> TextTable:
    short = short_devices([device for (_, _, device, _), _ in grid.rows])
    heads = []
    for (_, step, device, framework), _ in grid.rows:
        _, *settings = step.split(" ")
        named = (short[device], framework, *settings)
        heads.append(" ".join(named))
    made = table("batch", *heads, first="right")
    for index, batch in enumerate(grid.columns):
        times = [_text(cells[index]) for _, cells in grid.rows]
        made.add_row(batch, *times)
    return made


def _table_of_devices(cells: Sequence[Cell]) -> TextTable:
    heads = ("network", "step", "device", "framework", "ms", "samples/s", "MFU")
    made = table(*heads, words=("step", "device", "framework"), optional=("MFU",))
    fastest = sorted(cells, key=lambda cell: cell.time_ms or math.inf)
    for cell in sorted(fastest, key=lambda cell: (cell.network, cell.mode)):
        mfu = "" if cell.mfu is None else mfu_text(cell.mfu)
        made.add_row(
            cell.network,
            cell.configuration,
            cell.device_and_origin,
            cell.framework,
            _text(cell),
            number_cell(cell.samples_per_s),
            mfu,
        )
    return made


def _notes(cells: Sequence[Cell]) -> list[str]:
    notes = []
    protocols = "; ".join(sorted({cell.protocol for cell in cells if cell.protocol}))
    if protocols:
        notes.append(f"Protocol: {protocols}. Intervals, spread, n and memory: --format csv.")
    largest = {}
    for cell in sorted(cells, key=lambda cell: cell.batch):
        if cell.mfu is not None:
            largest[cell.network, cell.configuration, cell.device] = cell
    for cell in largest.values():
        step = f"{cell.network}, {cell.configuration}, at {cell.batch}"
        notes.append(f"MFU of {step}: {mfu_text(cell.mfu or 0)} of {cell.mfu_peak}.")
    unstable = sum(cell.spread is not None and cell.spread > 0.02 for cell in cells)
    if unstable:
        timed = sum(cell.origin == "measured" and cell.time_ms is not None for cell in cells)
        times = f"{unstable} of {counted(timed, 'measured time')}"
        notes.append(f"Unstable (spread over 2 %): {times}.")
    if any(cell.origin == "published" for cell in cells):
        notes.append(
            "Published times were measured by others on the named device, and have no spread."
        )
    return notes
