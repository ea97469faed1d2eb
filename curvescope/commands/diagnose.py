"""Measure a network, or a step of your own, over batch sizes on this machine and explain its cost
curve.

What is measured is a network by name, a step of your own (--step), or a program as it is:
`-- python train.py --batch-size {batch}` runs that command for each visit and ends it once it has
enough steps. If no step is found in it, or the wrong one, --step-range NAME names the range that is
a step, --step-function NAME the function of JAX or TensorFlow, or --step-line 'step {n}: {ms} ms'
the line that it prints after one; --workdir DIR runs it in folders of its own.

Without --batch, sizes double from 1 to 32, or to the last one that is fast enough for the time.

Runs on CUDA if there is a device, else on the CPU. Measures until every verdict is decided, or
cannot be in the time (--time-limit), then tests the causes by experiment (--experiments). After
Ctrl-C, SIGTERM or SIGHUP it answers from what is measured and ends. `curvescope confirm` makes the
missing experiments later, also after a kill.

`curvescope energy` tests the energy of steps instead, and `curvescope model` predicts them on a GPU
that is not here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render import terminal
from ..base.arguments import (
    CUDA_EXPERIMENTS_S,
    FAST_STEP_NS,
    FAST_TOTAL_S,
    PROGRAM_FACTOR,
    QUICK_EXPERIMENTS_S,
    TOTAL_S,
    default_experiments_s,
)
from ..base.endings import answered_if_interrupted
from ..base.errors import CurvescopeError
from ..base.standard_output import prints_to_stderr
from ..base.torch_runtime import pick_device
from ..diagnosing import measure

if TYPE_CHECKING:
    from ..profiling.measure.axes import Axes
    from ..profiling.measure.configuration import Configuration
    from ..profiling.measure.protocol import Protocol
    from ..profiling.measure.sites.site import Site
    from ..profiling.recording.remote_store import AnyPath
    from ..profiling.workload.any_workload import AnyWorkload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = (
        f"; 0 for none (default: what measuring leaves of {TOTAL_S:g}s, of {FAST_TOTAL_S:g}s where "
        f"steps take under {FAST_STEP_NS / 1e6:g} ms, in proportion to --time-limit; on a GPU "
        f"{CUDA_EXPERIMENTS_S:g}s, with --quick {QUICK_EXPERIMENTS_S:g}s)"
    )
    options.add_curve(parser)
    options.add_program(parser)
    options.add(parser, "--probe")
    options.add(parser, "--experiments", help=options.EXPERIMENTS + default)


def run(args: argparse.Namespace) -> int:
    from ..analysis.render.show import show_diagnosis
    from ..experiments.factors import facts_for
    from ..profiling.measure.affordable import sizes_by_speed
    from ..profiling.measure.sites.choice import site_of
    from ..profiling.measure.sites.here import Here
    from ..profiling.recording.store import new_recording_path, open_recording

    axes, protocol = options.axes_of(args), options.protocol_of(args)
    if args.program and args.time_limit is None and protocol.time_limit_s is not None:
        protocol = replace(protocol, time_limit_s=PROGRAM_FACTOR * protocol.time_limit_s)
    options.experiments_s_of(args, 0.0)  # a wrong value is refused before anything is measured
    # each probe of a program is a start of it
    share = 0.0 if args.program else options.probe_share_of(args)
    device = "cpu" if args.program else pick_device(args.device)  # a program decides by itself
    configurations = options.configurations_of(args, axes, device)
    path = args.output or new_recording_path(configurations[0].network)

    def answer(path: AnyPath) -> None:
        recording = open_recording(path)
        show_diagnosis(recording, **options.shown(args), facts=facts_for(recording))

    def experiments_s(device: str) -> float | None:
        if args.experiments is None and protocol.name != "quick" and len(axes.curves) == 1:
            return None
        default_s = (
            QUICK_EXPERIMENTS_S if protocol.name == "quick" else default_experiments_s(device)
        )
        return options.experiments_s_of(args, default_s) / len(axes.curves)

    def choose_sizes(site: Site) -> tuple[int, ...]:
        """The sizes that the options ask for; without such an option, those that this machine is
        fast enough for.
        """
        is_asked = args.batch is not None or bool(args.axis)
        limit_s = protocol.time_limit_s
        if is_asked or limit_s is None or not isinstance(site, Here) or site.workload.compiled:
            return axes.values
        sizes = sizes_by_speed(axes.values, partial(_time_step, site.workload), limit_s)
        if left := axes.values[len(sizes) :]:
            terminal.console(stderr=True).print(
                f"A step of batch {left[0]} is too slow here for a curve in {limit_s:g} s. "
                f"--batch {axes.values[0]}..{axes.values[-1]} --time-limit {2 * limit_s:g}s "
                "measures it too."
            )
        return sizes

    def measure_curve(configuration: Configuration, path: AnyPath) -> None:
        with answered_if_interrupted(lambda: answer(path)), prints_to_stderr():
            site = site_of(configuration, find_device=args.device is None, in_rounds=True)
            measure(
                site,
                choose_sizes(site),
                protocol,
                path,
                experiments_s,
                options.precise_enough(protocol),
                share,
            )

    with options.clocks(args, device):
        if axes.family is not None:
            return _family(args.json, axes, configurations, protocol, path, measure_curve)
        measure_curve(configurations[0], path)
    answer(path)
    return 0


def _time_step(workload: AnyWorkload, size: int) -> float:
    """Seconds of the second step of a size; 0 where a step fails: the sweep reports the error."""
    try:
        workload.try_step(size)
        began_s = time.monotonic()
        workload.try_step(size)
    except CurvescopeError:
        return 0.0
    return time.monotonic() - began_s


def _family(
    as_json: bool,
    axes: Axes,
    configurations: Sequence[Configuration],
    protocol: Protocol,
    path: AnyPath,
    measure_curve: Callable[[Configuration, AnyPath], None],
) -> int:
    """Measure one curve per value of the second axis, in a folder like that of a sweep."""
    from ..profiling.measure.sweep_plan import PLAN_FILE, SweepPlan
    from ..profiling.recording.store import open_recording
    from .table import show_table

    PLAN_FILE.write(path, SweepPlan(tuple(configurations), axes.values, False, protocol))
    messages, recordings = terminal.console(stderr=True), []
    for configuration in configurations:
        try:
            measure_curve(configuration, path / configuration.label)
        except CurvescopeError as error:
            messages.print(f"{configuration.label}: {error}", style="yellow")
            continue
        recordings.append(open_recording(path / configuration.label))
    if not recordings:
        raise CurvescopeError(f"No {axes.curve} could be measured for any {axes.family}.")
    show_table(recordings, "json" if as_json else "text")
    messages.print(f"Recorded in {path}. Next:")
    terminal.print_commands(messages, f"curvescope explain {recordings[-1].path}")
    return 0
