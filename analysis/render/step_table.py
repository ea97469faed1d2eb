"""Recordings side by side: step times by batch size, and by network, framework and device."""

from __future__ import annotations

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
    cells = [cell for recording in recordings for cell in step_table.cells_of(recording)]
    if published:
        cells += step_table.read_published_cells(sorted({cell.network for cell in cells}))
    compared = step_table.common_batch(cells) if batch is None else batch
    if form == JSON:
        print_document(step_table.TableDocument(cells))
    elif form == CSV:
        print(escape_controls(step_table.to_csv(cells)), end="")
    elif form == MARKDOWN:
        text = step_table.to_markdown(step_table.by_batch(cells), _text)
        print(escape_controls(f"**Step ms by batch size**\n\n{text}"))
        if compared is not None:
            grid = step_table.by_device(cells, compared)
            text = step_table.to_markdown(grid, _text)
            print(escape_controls(f"\n**Step ms at batch {compared} by device**\n\n{text}"))
    else:
        _print_text(cells, compared)
        for line in conditions_of(recordings):
            terminal.console().print(line, style="dim")


def _print_text(cells: Sequence[Cell], compared: int | None) -> None:
    console = terminal.console()
    machines = {(c.device_and_origin, c.framework) for c in cells}
    if len(machines) == 1:
        ((device, framework),) = machines
        console.print(f"Step ms by {_axis(cells)}, {device}, {framework}", style="bold")
        console.print(_table_of_networks(step_table.by_batch(cells)))
    else:
        for network, mode in dict.fromkeys((c.network, c.mode) for c in cells):
            section = [c for c in cells if (c.network, c.mode) == (network, mode)]
            console.print(f"{network}, {mode} step, ms by {_axis(section)}", style="bold")
            console.print(_table_of_batches(step_table.by_batch(section)))
            devices = short_devices([c.device_and_origin for c in section])
            legend = "; ".join(
                f"{short}: {device}" for device, short in devices.items() if short != device
            )
            console.print(f"{legend}." if legend else "", style="dim")
            console.print()
        if compared is not None:
            console.print(f"At batch {compared}", style="bold")
            console.print(_table_of_devices([c for c in cells if c.batch == compared]))
    console.print()
    for note in _notes(cells):
        console.print(note, style="dim")


def _axis(cells: Sequence[Cell]) -> str:
    """What the batch sizes of step times are: values of one axis, or of several."""
    return " and ".join(dict.fromkeys(Axis(cell.axis).value for cell in cells))


def _text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return cell.empty or "" if cell.time_ms is None else number(cell.time_ms)


def _table_of_networks(grid: Grid) -> TextTable:

    made = table("network", "step", *grid.columns, left=("step",))
    for (network, step, *_), cells in grid.rows:
        made.add_row(network, step, *map(_text, cells))
    return made


def _table_of_batches(grid: Grid) -> TextTable:
    short = short_devices([device for (_, _, device, _), _ in grid.rows])
    heads = [
        " ".join([short[device], framework, *step.split(" ")[1:]])
        for (_, step, device, framework), _ in grid.rows
    ]
    made = table("batch", *heads, first="right")
    for index, batch in enumerate(grid.columns):
        made.add_row(batch, *(_text(cells[index]) for _, cells in grid.rows))
    return made


def _table_of_devices(cells: Sequence[Cell]) -> TextTable:
    made = table(
        "network",
        "step",
        "device",
        "framework",
        "ms",
        "samples/s",
        "MFU",
        words=("step", "device", "framework"),
        optional=("MFU",),
    )
    for c in sorted(cells, key=lambda c: (c.network, c.mode, c.time_ms or float("inf"))):
        rate = "" if c.samples_per_s is None else number(c.samples_per_s)
        mfu = "" if c.mfu is None else mfu_text(c.mfu)
        made.add_row(
            c.network, c.configuration, c.device_and_origin, c.framework, _text(c), rate, mfu
        )
    return made


def _notes(cells: Sequence[Cell]) -> list[str]:
    protocols = sorted({cell.protocol for cell in cells if cell.protocol})
    notes = (
        [f"Protocol: {'; '.join(protocols)}. Intervals, spread, n and memory: --format csv."]
        if protocols
        else []
    )
    largest = {
        (c.network, c.configuration, c.device): c
        for c in sorted(cells, key=lambda c: c.batch)
        if c.mfu is not None
    }
    notes += [
        f"MFU of {c.network}, {c.configuration}, at {c.batch}: {mfu_text(c.mfu or 0)} of "
        f"{c.mfu_peak}."
        for c in largest.values()
    ]
    unstable = [c for c in cells if c.spread is not None and c.spread > 0.02]
    if unstable:
        timed = sum(c.origin == "measured" and c.time_ms is not None for c in cells)
        notes.append(
            f"Unstable (spread over 2 %): {len(unstable)} of {counted(timed, 'measured time')}."
        )
    if any(cell.origin == "published" for cell in cells):
        notes.append(
            "Published times were measured by others on the named device, and have no spread."
        )
    return notes
