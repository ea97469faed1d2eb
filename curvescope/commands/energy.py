"""Measure a network, or a step of your own, over batch sizes and test its energy, in joules per step and per sample.

A device that reports its energy is needed: a GPU, or a CPU with RAPL. Visits are as long as the counter needs.
`curvescope explain RUN --of energy` prints the result again, and `curvescope explain RUN` explains the times.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from .. import options
from ..diagnosing import measure

_COUNTER_UPDATES = 5  # in a visit, at least
_STEPS = 100_000  # in a visit, at most: its duration ends it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_curve_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..analysis.render.energy import show_energy
    from ..base.errors import CurvescopeError
    from ..base.torch_runtime import pick_device
    from ..profiling.hardware.energy import find_meter
    from ..profiling.recording.store import new_recording_path, open_recording

    axes, protocol, device = options.axes_of(args), options.protocol_of(args), pick_device(args.device)
    configuration, *others = options.configurations_of(args, axes, device)
    if others:
        raise CurvescopeError(f"energy measures one curve: give {axes.family} one value.")
    visit_s = max(protocol.visit_s, _COUNTER_UPDATES * find_meter(device).source.least_s)
    protocol = replace(protocol, visit_s=visit_s, steps_per_visit=(protocol.steps_per_visit[0], _STEPS))
    path = args.output or new_recording_path(configuration.network)
    with options.clocks(args, device):
        workload = configuration.build(find_device=args.device is None)
        measure(workload, axes.values, protocol, path, lambda _: 0.0, options.precise_enough(protocol))
    show_energy(open_recording(path), axis=args.curvature, everything=args.all, as_json=args.json)
    return 0
