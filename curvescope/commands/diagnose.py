"""Measure a network, or a step of your own, over batch sizes on this machine and explain its cost
curve.

It measures a network by name, a step of your own (--step), or a program as it is. `-- python
train.py --batch-size {batch}` runs that command for each visit and ends it once it has enough
steps. If no step is found in it, or the wrong one, --step-range NAME names the range that is a
step, --step-function NAME the function of JAX or TensorFlow, or --step-line 'step {n}: {ms} ms' the
line that it prints after one; --workdir DIR runs it in folders of its own.

Without --batch, sizes double from 1 to 32, or to the last one that is fast enough for the time.

Runs on CUDA if there is a device, else on the CPU. Measures until every verdict is decided, or
cannot be in the time (--time-limit), then tests the causes by experiment (--experiments). After
Ctrl-C, SIGTERM or SIGHUP it answers from the data so far and ends. `curvescope confirm` makes the
missing experiments later, also after a kill.

`[tool.curvescope]` in the pyproject.toml of this folder has defaults: step, batch, device,
protocol, time-limit, until, probe and experiments, as the options have them. The first line names
them.

`--of energy` measures joules per step and sample instead, which needs a device that reports them: a
GPU, or a CPU with RAPL. `--of memory` runs a few steps of each size, and finds the layers and
tensors of the peak and the largest batch size that fits. `--card gtx1080` predicts the curve on a
GPU that is not here: nothing runs, and every view is marked as modelled.
"""

from __future__ import annotations

import argparse
import time
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
from ..base.endings import answer_if_interrupted
from ..base.errors import CurvescopeError
from ..base.standard_output import prints_to_stderr
from ..base.torch_runtime import pick_device
from ..diagnosing import measure
from ..parsers import CommandParser, group
from ..predicting import predict
from ..project import defaults_of_diagnose
from ..quantities import QUANTITIES, TIME, measure_quantity, show_quantity

if TYPE_CHECKING:
    from ..profiling.measure.sites.site import SweptSite
    from ..profiling.workload.any_workload import AnyWorkload


def add_arguments(parser: CommandParser) -> None:
    parser.read_defaults = defaults_of_diagnose
    default = (
        f"; 0 for none (default: what measuring leaves of {TOTAL_S:g}s, of {FAST_TOTAL_S:g}s where "
        f"steps take under {FAST_STEP_NS / 1e6:g} ms, in proportion to --time-limit; on a GPU "
        f"{CUDA_EXPERIMENTS_S:g}s, with --quick {QUICK_EXPERIMENTS_S:g}s)"
    )
    group(parser, options.WHAT).add_argument(
        "--of",
        choices=QUANTITIES,
        default=TIME,
        help="quantity to measure: time (default), energy or memory",
    )
    options.add_curve(parser)
    group(parser, options.WHERE).add_argument(
        "--card",
        metavar="GPU[,FACT=VALUE]",
        help="GPU to predict the times of, e.g. gtx1080 (`curvescope doctor --list devices`); with "
        "changed facts: gtx1080,memory_bytes=12GiB,sm_count=40, or another cuDNN: k40,"
        "library=cudnn5; --framework may be torch, tensorflow, mxnet, paddle or caffe",
    )
    options.add_program(parser)
    options.add(parser, "--probe")
    options.add(parser, "--experiments", help=options.EXPERIMENTS + default)


def run(args: argparse.Namespace) -> int:
    options.print_defaults(args)
    if args.card is not None:
        from ..analysis.render.show import show_diagnosis

        show_diagnosis(predict(args), **options.shown(args))
    elif args.of != TIME:
        show_quantity(measure_quantity(args), args)
    else:
        _diagnose(args)
    return 0


def _diagnose(args: argparse.Namespace) -> None:
    """Measure times, test the causes, and print the answer."""
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
    configuration = options.configuration_of(args, axes, device)
    path = args.output or new_recording_path(configuration.network)

    def answer() -> None:
        recording = open_recording(path)
        show_diagnosis(recording, **options.shown(args), facts=facts_for(recording))

    def experiments_s(device: str) -> float | None:
        if args.experiments is None and protocol.name != "quick":
            return None
        default_s = default_experiments_s(device)
        if protocol.name == "quick":
            default_s = QUICK_EXPERIMENTS_S
        return options.experiments_s_of(args, default_s)

    def choose_sizes(site: SweptSite) -> tuple[int, ...]:
        """The sizes that the options ask for; by default, as many as this machine is fast for."""
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

    with (
        options.clocks(args, device),
        answer_if_interrupted(answer),
        prints_to_stderr(),
    ):
        site = site_of(configuration, find_device=args.device is None, in_rounds=True)
        precise = options.precise_enough(protocol)
        measure(site, choose_sizes(site), protocol, path, experiments_s, precise, share)
    answer()


def _time_step(workload: AnyWorkload, size: int) -> float:
    """Seconds of the second step of a size; 0 where a step fails: the sweep reports the error."""
    try:
        workload.try_step(size)
        began_s = time.monotonic()
        workload.try_step(size)
    except CurvescopeError:
        return 0.0
    return time.monotonic() - began_s
