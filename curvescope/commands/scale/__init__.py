"""Scaling over many devices: measure it on this machine or in a launch, or read the recordings of a
job's ranks.

`curvescope scale WHAT --help` lists the options of each.
"""

from __future__ import annotations

import argparse

from ...parsers import Command, add_parts, run_part

PARTS = {
    "measure": Command(
        "scale measure", "steps on 1, 2, 4, … devices, and where the lost time goes"
    ),
    "read": Command("scale read", "stragglers, balance and waiting over recordings of many ranks"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_parts(parser, PARTS, "parts")


def run(args: argparse.Namespace) -> int:
    return run_part(PARTS, args)
