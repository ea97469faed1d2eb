"""Print the time of a step by layer, kernel, phase or operator; the rows add up to the measured
step.
"""

from __future__ import annotations

import argparse

from .. import options
from ..analysis.render import terminal

BY = ("layer", "kernel", "phase", "op", "line")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", help=options.RECORDING_OR_PROFILE)
    parser.add_argument(
        "--by", choices=BY, default="layer", help="what to group by (default: layer)"
    )
    parser.add_argument("--batch", type=int, help="batch size (default: the largest measured)")
    parser.add_argument(
        "--device",
        type=int,
        metavar="N",
        help="show the work of GPU N alone (default: of all recorded)",
    )
    options.add(parser, "--by-instance")
    options.add(parser, "--all", help=options.EVERY_ROW)
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ..analysis.decompose.breakdown import above_roofs, recorded_breakdown
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
        work = device_work(recording, copied_bytes=True, device=args.device)
        breakdown = recorded_breakdown(
            recording, args.by, args.batch, by_instance=args.by_instance, device=args.device
        )
        steps = recording.frame("steps")
        used = steps[steps["step"].isin(breakdown.used)] if len(steps) else steps
        shared = communication(work, used, breakdown.batch)
        idle = explain_idle(recording, work, breakdown)
        modelled = is_modelled(recording.meta)
        hardware = hardware_of(recording.meta)
        mfu = step_mfu(recording, breakdown, hardware)
    if args.json:
        from ..analysis.render.breakdown import BreakdownDocument, RatedRow
        from ..analysis.render.documents import print_document

        rows = [
            RatedRow(**vars(row), exceeded_roofs=above_roofs(row, hardware))
            for row in breakdown.rows
        ]
        facts = {**vars(breakdown), "by": args.by, "modelled": modelled, "rows": rows}
        print_document(BreakdownDocument(**facts, communication=shared, idle=idle, mfu=mfu))
        return 0

    from ..analysis.render.breakdown import render_breakdown, render_idle
    from ..analysis.render.communication import render_communication

    console = terminal.console()
    if modelled:
        console.print("Modelled, not measured.", style="yellow")
    console.print(
        render_breakdown(
            breakdown,
            args.by,
            None if args.all else 25,
            hardware,
            axis_of(recording.meta),
            mfu,
            idle,
        )
    )
    if idle:
        console.print()
        console.print(render_idle(idle, breakdown.time_ms, None if args.all else 5))
    if shared is not None:
        console.print()
        console.print(
            render_communication(
                shared, None if args.all else 8, breakdown.unit, len(breakdown.busy_ms)
            )
        )
    return 0
