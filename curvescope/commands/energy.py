"""Measure a network, or a step of your own, over batch sizes and test its energy, in joules per
step and per sample.

A device that reports its energy is needed: a GPU, or a CPU with RAPL. Visits are as long as the
counter needs. `curvescope explain RUN --of energy` prints the result again, and
`curvescope explain RUN` explains the times.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from .. import options
from ..diagnosing import record_curve
from ..profiling.measure.protocol import Protocol

_COUNTER_UPDATES = 5  # in a visit, at least
_STEPS = 100_000  # in a visit, at most: its duration ends it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_curve(parser)


def run(args: argparse.Namespace) -> int:
    from ..analysis.render.energy import show_energy
    from ..profiling.hardware.energy import find_meter

    protocol = options.protocol_of(args)

    def long_visits(device: str) -> Protocol:
        visit_s = max(protocol.visit_s, _COUNTER_UPDATES * find_meter(device).source.least_s)
        return replace(
            protocol, visit_s=visit_s, steps_per_visit=(protocol.steps_per_visit[0], _STEPS)
        )

    show_energy(record_curve("energy", args, long_visits), **options.shown(args))
    return 0
