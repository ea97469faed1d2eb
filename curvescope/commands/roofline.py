"""Arithmetic intensity and achieved rates against the device's roofs, by kernel, layer or phase.

Bytes are measured if the recording has them (from a profile of Nsight Compute or nvprof metrics),
else compulsory; each point is labelled with which. --json has the fields of a RooflineDocument.
--csv has a line `row=roof` for each roof, then a line `row=point` for each point and memory level,
with the same fields; empty is null.
"""

from __future__ import annotations

import argparse

from .. import options
from ..analysis.render import terminal
from ..base.csv_cells import csv_text
from ..base.escaping import escape_controls
from ..base.grouping import ROOFLINE_BY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", help=options.RECORDING_OR_PROFILE)
    parser.add_argument(
        "--by",
        choices=ROOFLINE_BY,
        default="kernel",
        help="what each point stands for (default: kernel)",
    )
    options.add(parser, "--at")
    options.add(parser, "--all", help="show every point, not only the 25 longest")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print points and roofs as CSV")
    form.add_argument("--json", action="store_true", help="print one JSON document")
    options.add(parser, "--svg")


def run(args: argparse.Namespace) -> int:
    from ..analysis import roofline
    from ..analysis.server_log import refuse_log
    from ..profile_files import open_any
    from ..profiling.hardware.limits import hardware_of

    with open_any(args.recording) as recording:
        refuse_log(recording, args.recording, "roofline")
        meta, hardware = recording.meta, hardware_of(recording.meta)
        drawn = roofline.read_roofline(recording, args.by, args.at)
    if args.svg is not None:
        from ..analysis.render.svg import roofline_svg

        batch = "" if drawn.batch is None else f", batch {drawn.batch}"
        name = meta.get("network") or args.recording
        title = f"{name}{batch}, {hardware.name or 'unknown device'}"
        options.write_picture(args.svg, roofline_svg(drawn, title))
        return 0
    if args.json:
        from ..analysis.render.documents import print_document
        from ..analysis.render.roofline import RooflineDocument

        print_document(RooflineDocument(**vars(drawn), device=hardware.name))
        return 0
    if args.csv:
        print(escape_controls(csv_text(roofline.CSV_COLUMNS, roofline.csv_rows(drawn))), end="")
        return 0

    from ..analysis.render.roofline import render_roofline

    console = terminal.console()
    batch = "" if drawn.batch is None else f", batch {drawn.batch}"
    console.print(
        f"{meta.get('network') or args.recording}, {hardware.name or 'unknown device'}{batch}",
        style="bold",
    )
    console.print(render_roofline(drawn, None if args.all else 25))
    return 0
