"""Measures the energy or the peak memory of a curve, and shows either of a recording."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from . import options
from .base.torch_runtime import pick_device
from .diagnosing import measure
from .parsers import PROGRAM, refuse_given
from .profiling.measure.protocol import ONE_STEP, Protocol

if TYPE_CHECKING:
    from .profiling.recording.store import Recording

TIME, ENERGY, MEMORY = QUANTITIES = ("time", "energy", "memory")
_EXPLAINING = ("--probe", "--experiments")
_TIMING = ("--protocol", "--until", "--time-limit", "--lock-clocks")
_COUNTER_UPDATES = 5  # of the energy, in a visit, at least
_STEPS = 100_000  # in a visit, at most: its duration ends it


def measure_quantity(args: argparse.Namespace) -> Recording:
    """Measure and record the energy or the memory that `--of` names; no experiments run.

    Raises:
        CurvescopeError: an option says nothing of it, or see `measure`.
    """
    from .profiling.measure.sites.choice import site_of
    from .profiling.recording.store import new_recording_path, open_recording

    of_memory = args.of == MEMORY
    useless = (*_EXPLAINING, *_TIMING) if of_memory else _EXPLAINING
    refuse_given(args, f"--of {args.of} measures the {args.of} alone", *useless, PROGRAM)
    axes, device = options.axes_of(args), pick_device(args.device)
    configuration = options.configuration_of(args, axes, device)
    protocol = ONE_STEP if of_memory else _long_visits(options.protocol_of(args), device)
    path = args.output or new_recording_path(configuration.network)
    with options.clocks(args, device):
        measure(
            site_of(configuration, find_device=args.device is None),
            axes.values,
            protocol,
            path,
            lambda _: 0.0,
            options.precise_enough(protocol),
            complete=True,
        )
    return open_recording(path)


def show_quantity(recording: Recording, args: argparse.Namespace, axis: str = "log2") -> None:
    """Print the energy or the memory of a recording; `axis` is for curvatures."""
    from .analysis.render.energy import show_energy
    from .analysis.render.memory import show_memory

    shown = {**options.shown(args), "axis": axis}
    if args.of == ENERGY:
        show_energy(recording, **shown)
        return
    limit_bytes = options.memory_limit_of(args) if "memory_limit" in args else None
    by_instance = getattr(args, "by_instance", False)
    show_memory(recording, by_instance=by_instance, limit_bytes=limit_bytes, **shown)


def _long_visits(protocol: Protocol, device: str) -> Protocol:
    """The protocol with visits that are as long as the counter of energy needs."""
    from .profiling.hardware.energy import find_meter

    visit_s = max(protocol.visit_s, _COUNTER_UPDATES * find_meter(device).source.least_s)
    return replace(protocol, visit_s=visit_s, steps_per_visit=(protocol.steps_per_visit[0], _STEPS))
