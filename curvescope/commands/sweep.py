"""Measure several networks over batch sizes, modes and precisions, each visit in its own process.

A batch size that does not fit the memory, or crashes, loses only its own data and is reported.
`--resume` continues an interrupted sweep. Each network, mode and precision becomes one recording in
the sweep's folder: `curvescope compare --steps DIR` prints them side by side,
`curvescope explain DIR/RECORDING` explains one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render import terminal
from ..base.counted import counted
from ..base.endings import answer_if_interrupted
from ..base.errors import CurvescopeError
from ..base.sizes import list_sizes
from ..base.torch_runtime import pick_device
from ..parsers import group
from ..profiling.hardware.host import usable_cores
from ..profiling.hardware.precisions import STEP_PRECISIONS
from ..profiling.measure.axes import Axes
from ..profiling.measure.protocol import parse_batches
from ..profiling.recording.axis import BATCH, MODES, Axis
from ..profiling.recording.remote_store import as_path
from ..profiling.workload.networks import get_network, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..profiling.measure.configuration import Configuration
    from ..profiling.measure.sites.machines import Measurer
    from ..profiling.measure.sweep_plan import SweepPlan
    from ..profiling.measure.workers import Workers
    from ..profiling.recording.store import Recording

LOCAL = "local"  # instead of the address of a scheduler
_CHOICES = {"no": (False,), "yes": (True,), "both": (False, True)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        nargs="*",
        help="names of networks, or package.module:function with --input-shape",
    )
    options.add(parser, "--step", "--input-shape")
    options.add(
        parser,
        "--batch",
        help=f"{options.BATCHES}; max for the largest that fits, 8..max doubles to it",
    )
    options.add(parser, "--axis")
    options.add(parser, "--mode", choices=None, help=f"modes, one or more of {','.join(MODES)}")
    options.add(
        parser,
        "--precision",
        choices=None,
        help=f"precisions, one or more of {','.join(STEP_PRECISIONS)}",
    )
    options.add(parser, "--cuda-graph", action="store", choices=_CHOICES, default="no")
    options.add(
        parser,
        "--framework",
        help="what runs networks, one or more of torch, torch-compile, jax: a row of the table "
        "each",
    )
    options.add(parser, "--device")
    where = group(parser, options.WHERE)
    where.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="memory limit of each visit, e.g. 8GB: of the device, or on a CPU of the address "
        "space that the network "
        "adds",
    )
    options.add_program(parser)
    options.add_protocol(parser)
    options.add(parser, "--lock-clocks")
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="local, for one worker per GPU of this machine, which measure one recording each; or "
        "the address of a "
        "Dask scheduler, e.g. tls://host:8786, for its workers",
    )
    where.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of workers for --scheduler local on a CPU; they share it",
    )
    options.add(parser, "--output", help="folder or URL to create (default: runs/DATE_sweep)")
    parser.add_argument(
        "--resume",
        type=as_path,
        metavar="DIR",
        help="folder of a sweep to resume: measures missing batch sizes",
    )
    # the refusal names it; the list is long
    options.add(parser, "--run-its-code", help=argparse.SUPPRESS)
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    if args.program and args.scheduler is not None:
        raise CurvescopeError(
            "--scheduler is for networks and steps: a program runs on this machine."
        )
    if args.resume and (args.network or args.step or args.program):
        raise CurvescopeError("--resume continues the existing plan: omit the network and --step.")
    if args.scheduler is None:
        if args.workers is not None:
            raise CurvescopeError("--workers needs --scheduler local.")
        return _sweep_by_plan(args, None)
    if args.lock_clocks is not None:
        raise CurvescopeError(
            "--lock-clocks is for a GPU of this machine: omit it with --scheduler."
        )
    with _workers(args) as workers:
        return _sweep_by_plan(args, workers)


def _workers(args: argparse.Namespace) -> Workers:
    from ..profiling.measure.workers import LocalWorkers, visible_gpus

    if args.scheduler != LOCAL:
        from ..profiling.measure.dask_workers import DaskWorkers

        if args.workers is not None:
            raise CurvescopeError(
                "--workers needs --scheduler local; a running scheduler has its own workers."
            )
        return DaskWorkers(args.scheduler)
    if pick_device(args.device) != "cpu":
        if args.workers is not None:
            raise CurvescopeError(
                "--workers is for a CPU: GPUs have one worker each (CUDA_VISIBLE_DEVICES)."
            )
        return LocalWorkers(None, visible_gpus())
    cores = usable_cores()
    if args.workers is None or not 1 <= args.workers <= cores:
        raise CurvescopeError(
            "--scheduler local on a CPU: give the number of workers that share its cores, "
            f"--workers 1 to {cores}."
        )
    return LocalWorkers(args.workers, threads=cores // args.workers)


def _sweep_by_plan(args: argparse.Namespace, workers: Workers | None) -> int:
    from ..profiling.measure.sweep_plan import PLAN_FILE

    if args.resume:
        plan = PLAN_FILE.read_to_run(args.resume, args.run_its_code)
    else:
        plan = _plan(args, workers)
    with _keep_compilations(plan):
        return _sweep(args, plan, workers)


@contextlib.contextmanager
def _keep_compilations(plan: SweepPlan) -> Iterator[None]:
    """Let visits, which are processes, take what an earlier one of their framework compiled."""
    from ..profiling.workload.framework_step import list_cache_variables

    frameworks = {configuration.runs_in for configuration in plan.configurations} - {None}
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        variables: dict[str, str] = {}
        for framework in frameworks:
            variables.update(list_cache_variables(str(framework), Path(folder)))
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                del os.environ[name]


def _sweep(args: argparse.Namespace, plan: SweepPlan, workers: Workers | None) -> int:
    from ..analysis.framework_reasons import reasons
    from ..analysis.render.live import LiveCurves
    from ..analysis.render.step_table import JSON, TEXT, show_step_times
    from ..profiling.measure.sweep_plan import PLAN_FILE, run_plan, sweep_recordings
    from ..profiling.recording.store import new_recording_path, open_recording

    # Before anything is written: workers that cannot measure must leave no folder.
    first, count = plan.configurations[0], len(plan.configurations)
    measurers = [] if workers is None else workers.measurers(first.device, count)
    folder = args.resume or args.output or new_recording_path("sweep")
    if not args.resume:
        PLAN_FILE.write(folder, plan)
    messages = terminal.console(stderr=True)
    where = "" if workers is None else f", on {counted(len(measurers), 'worker')}"
    sizes = f" of {first.axis} {list_sizes(plan.batches)}" if plan.batches else ""
    messages.print(
        f"{counted(count, 'recording')}{sizes}, protocol {plan.protocol.name}, into "
        f"{folder}{where}."
    )
    if note := _warn_of_shared_cpu(measurers):
        messages.print(note, style="yellow")

    def answer() -> list[Recording]:
        recordings = [open_recording(path) for path in sweep_recordings(folder)]
        show_step_times(recordings, JSON if args.json else TEXT)
        for sentence in reasons(recordings):
            messages.print(sentence)
        return recordings

    labels = [configuration.label for configuration in plan.configurations]
    with (
        answer_if_interrupted(answer),
        LiveCurves(labels, plan.protocol.statistic, Axis(first.axis)) as view,
    ):
        try:
            precise = options.precise_enough(plan.protocol)
            with options.clocks(args, first.device):
                failed = run_plan(folder, plan, view.report, precise, measurers)
        except KeyboardInterrupt:
            messages.print("Interrupted. This resumes:")
            terminal.print_commands(messages, f"curvescope sweep --resume {folder}")
            raise
    recordings = answer()
    for configuration, why in failed:
        messages.print(f"{configuration.label}: nothing could be measured; {why}.", style="yellow")
    if recordings:
        messages.print(f"Recorded in {folder}. Next:")
        terminal.print_commands(messages, f"curvescope explain {recordings[0].path}")
    return 0


def _warn_of_shared_cpu(measurers: Sequence[Measurer]) -> str | None:
    """A warning for workers on one CPU."""
    machines = [measurer.machine for measurer in measurers]
    if not machines or machines[0].device["kind"] != "cpu":
        return None
    if len({machine.identity for machine in machines}) == len(machines):
        return None
    return "Workers share a CPU: the times include contention for caches and memory bandwidth."


def _plan(args: argparse.Namespace, workers: Workers | None) -> SweepPlan:
    from ..profiling.measure.sweep_plan import SweepPlan
    from ..profiling.workload.network_step import check_precision

    if not args.network and not args.step and not args.program:
        raise CurvescopeError(
            f"Name the networks to sweep: {', '.join(names())}; a step of your own: --step; a "
            "program: `-- python train.py --batch-size {batch}`; or `--resume DIR`."
        )
    searched = re.fullmatch(r"(?:(.+)\.\.)?max", args.batch or "")
    protocol = options.protocol_of(args)
    if args.time_limit is not None and not args.program and not protocol.is_fixed:
        # A visit is a process, whose start may take as long as the limit.
        protocol = replace(protocol, rounds=(1, protocol.rounds[1]))
    if searched:
        if args.program:
            raise CurvescopeError(f"--batch {args.batch}: name the sizes for a program.")
        if args.axis:
            raise CurvescopeError(
                f"--batch {args.batch}: the largest batch size is searched without --axis."
            )
        axes = Axes(BATCH, parse_batches(searched[1]) if searched[1] else ())
    else:
        axes = options.axes_of(args)
    if args.program:
        program = options.configuration_of(args, axes, "cpu")
        return SweepPlan((program,), axes.values, False, protocol)
    device = pick_device(args.device) if workers is None else workers.pick_device(args.device)
    limit = options.memory_limit_of(args)
    if args.step:
        made = [options.step_configuration(args, axes, device)]
    else:
        made = _networks(args, axes, device)
    if args.framework is not None:
        frameworks = dict.fromkeys(args.framework.split(","))
        made = [options.in_framework(*pair) for pair in product(made, frameworks)]
    configurations = [
        replace(configuration, memory_limit_bytes=limit, graphed=graphed)
        for configuration, graphed in product(made, _CHOICES[args.cuda_graph])
    ]
    for configuration in configurations:
        configuration.check()
        if configuration.precision is not None:
            check_precision(configuration.precision, device)
    return SweepPlan(tuple(configurations), axes.values, searched is not None, protocol)


def _networks(args: argparse.Namespace, axes: Axes, device: str) -> list[Configuration]:
    from ..profiling.measure.configuration import Configuration

    samples = {network: options.sample_of(args, network) for network in args.network}
    named = {network: get_network(network).reads_text for network in samples if ":" not in network}
    if any(named.values()):  # a number of tokens is theirs alone
        others = [network for network, reads_text in named.items() if not reads_text]
        samples |= dict.fromkeys(others, (None, None))
    modes = _parse_choices(args.mode, MODES, "--mode")
    precisions = _parse_choices(args.precision, STEP_PRECISIONS, "--precision")
    configurations = []
    for network, mode, precision in product(samples, modes, precisions):
        how = (*samples[network], device, mode, precision)
        made = Configuration(network, *how, axis=axes.curve, fixed=axes.fixed)
        configurations.append(made)
    return configurations


def _parse_choices(text: str, allowed: tuple[str, ...], option: str) -> list[str]:
    chosen = list(dict.fromkeys(text.split(",")))
    for name in chosen:
        if name not in allowed:
            listed = ",".join(allowed)
            raise CurvescopeError(f"{option} {name}: choose one or more of {listed}.")
    return chosen
