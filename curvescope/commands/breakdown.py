"""Print the time of a step by layer, kernel, phase or operator; the rows add up to the measured
step.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render import terminal
from ..base.grouping import BREAKDOWN_BY

if TYPE_CHECKING:
    from ..analysis.decompose.breakdown import Breakdown
    from ..analysis.decompose.communication import Communication
    from ..analysis.decompose.idle import IdleTime
    from ..analysis.decompose.mfu import Mfu
    from ..profiling.hardware.limits import Hardware
    from ..profiling.recording.axis import Axis


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", help=options.RECORDING_OR_PROFILE)
    parser.add_argument(
        "--by", choices=BREAKDOWN_BY, default="layer", help="what to group by (default: layer)"
    )
    options.add(parser, "--at", "--gpu", "--by-instance")
    options.add(parser, "--all", help=options.EVERY_ROW)
    options.add(parser, "--json")


@dataclass(frozen=True)
class Contents:
    """The breakdown of a recording, as JSON or as text."""

    breakdown: Breakdown
    communication: Communication | None
    idle: tuple[IdleTime, ...]
    mfu: Mfu | None
    hardware: Hardware
    axis: Axis
    modelled: bool


def run(args: argparse.Namespace) -> int:
    contents = read(args)
    if args.json:
        _print_document(contents, args.by)
    else:
        _print_text(contents, args.by, every_row=args.all)
    return 0


def read(args: argparse.Namespace) -> Contents:
    """The breakdown that the arguments ask for, with what stands beside it."""
    from ..analysis.decompose.breakdown import break_down_recording
    from ..analysis.decompose.communication import communication
    from ..analysis.decompose.idle import explain_idle
    from ..analysis.decompose.kernel_times import device_work
    from ..analysis.decompose.mfu import step_mfu
    from ..analysis.server_log import refuse_log
    from ..profile_files import open_any
    from ..profiling.hardware.limits import hardware_of
    from ..profiling.recording.axis import axis_of
    from ..profiling.recording.store import is_modelled

    with open_any(args.recording) as recording:
        refuse_log(recording, args.recording, "breakdown")
        work = device_work(recording, copied_bytes=True, device=args.gpu)
        breakdown = break_down_recording(
            recording, args.by, args.at, by_instance=args.by_instance, device=args.gpu
        )
        steps = recording.frame("steps")
        used = steps[steps["step"].isin(breakdown.used)] if len(steps) else steps
        hardware = hardware_of(recording.meta)
        return Contents(
            breakdown=breakdown,
            communication=communication(work, used, breakdown.batch),
            idle=explain_idle(recording, work, breakdown),
            mfu=step_mfu(recording, breakdown, hardware),
            hardware=hardware,
            axis=axis_of(recording.meta),
            modelled=is_modelled(recording.meta),
        )


def _print_document(contents: Contents, by: str) -> None:
    from ..analysis.decompose.breakdown import above_roofs
    from ..analysis.render.breakdown import BreakdownDocument, RatedRow
    from ..analysis.render.documents import print_document

    rows = [
        RatedRow(**vars(row), exceeded_roofs=above_roofs(row, contents.hardware))
        for row in contents.breakdown.rows
    ]
    facts = {**vars(contents.breakdown), "by": by, "modelled": contents.modelled, "rows": rows}
    print_document(
        BreakdownDocument(
            **facts,
            communication=contents.communication,
            idle=contents.idle,
            mfu=contents.mfu,
        )
    )


def _print_text(contents: Contents, by: str, *, every_row: bool) -> None:
    from ..analysis.render.breakdown import render_breakdown, render_idle
    from ..analysis.render.communication import render_communication

    breakdown = contents.breakdown
    console = terminal.console()
    if contents.modelled:
        console.print("Modelled, not measured.", style="yellow")
    most_rows = None if every_row else 25
    console.print(
        render_breakdown(
            breakdown,
            by,
            most_rows,
            contents.hardware,
            contents.axis,
            contents.mfu,
            contents.idle,
        )
    )
    if contents.idle:
        console.print()
        most_reasons = None if every_row else 5
        console.print(render_idle(contents.idle, breakdown.time_ms, most_reasons))
    if contents.communication is not None:
        console.print()
        most_collectives = None if every_row else 8
        console.print(
            render_communication(
                contents.communication,
                most_collectives,
                breakdown.unit,
                len(breakdown.busy_ms),
            )
        )
