"""Measure a network, or a step of your own, over batch sizes on this machine and explain its cost curve.

Runs on CUDA if there is a device, else on the CPU. Measures for about two minutes, with --quick for half a
minute, and then tests the causes by experiment for up to a minute more (--experiments). After Ctrl-C everything
measured is kept, and `curvescope explain` reads it; `curvescope confirm` makes the missing experiments later.

`--against RUN` prints the comparison with an earlier recording instead, and makes no experiments unless asked. With
`--fail-over 5%` the exit code is 1 if a step time grew significantly and by more, see `curvescope compare`.

`--device model:gtx1080` runs nothing: the cost model predicts the steps on that GPU (`curvescope devices` lists the
GPUs), and every view of the result is marked as modelled.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import measuring
from ..base.arguments import (
    CUDA_EXPERIMENTS_S,
    DEFAULT_EXPERIMENTS_S,
    QUICK_EXPERIMENTS_S,
    default_experiments_s,
    parse_share,
)
from ..diagnosing import measure
from ..profiling.recording.axis import BATCH
from ..profiling.recording.remote_store import AnyPath, as_path
from .compare import add_fail_over, show_comparison

if TYPE_CHECKING:
    from ..profiling.measure.axes import Axes
    from ..profiling.measure.configuration import Configuration
    from ..profiling.measure.protocol import Protocol
    from ..profiling.workload.networks import Network


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    measuring.add_network_arguments(parser)
    measuring.add_axis_arguments(parser)
    parser.add_argument("--library", metavar="NAME", help="for a modelled GPU: its cuDNN, e.g. cudnn5.1 or cudnn7")
    parser.add_argument(
        "--framework", metavar="NAME", help="for a modelled GPU: torch, tensorflow, mxnet, mxnet0.9, paddle or caffe"
    )
    parser.add_argument(
        "--what-if",
        metavar="FACT=VALUE[,…]",
        help="for a modelled GPU: changed facts, e.g. memory_bytes=12GiB,sm_count=40 (`curvescope devices "
        "GPU` lists them)",
    )
    measuring.add_protocol_arguments(parser)
    measuring.add_energy_arguments(parser)
    measuring.add_clock_argument(parser)
    measuring.add_experiments_argument(
        parser,
        f"; 0 for none (default: {DEFAULT_EXPERIMENTS_S:g}s, on a GPU {CUDA_EXPERIMENTS_S:g}s, with --quick "
        f"{QUICK_EXPERIMENTS_S:g}s)",
    )
    parser.add_argument(
        "--counters",
        action="store_true",
        help="measure memory traffic, executed FLOPs and cycles of the kernels afterwards (`curvescope counters`)",
    )
    parser.add_argument(
        "-o", "--output", type=as_path, metavar="DIR", help="folder to create (default: runs/DATE_NETWORK)"
    )
    parser.add_argument(
        "--against",
        dest="base",
        type=as_path,
        metavar="RUN",
        help="earlier recording to compare with, in place of the explanation",
    )
    add_fail_over(parser)
    parser.add_argument("--all", action="store_true", help="show every anomaly and every term")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Measure, record and explain."""
    from ..base.errors import CurvescopeError
    from ..base.torch_runtime import pick_device
    from ..profiling.recording.store import new_recording_path, open_recording

    axes = measuring.axes_of(args)
    protocol = measuring.protocol_of(args)
    _experiments_s(args, protocol, "cpu")  # a wrong value is refused before anything is measured
    modelled = (args.device or "").startswith("model:")
    device = "cpu" if modelled else pick_device(args.device)
    if modelled and args.cuda_graph:
        raise CurvescopeError("--cuda-graph: a modelled GPU has nothing to capture; omit it.")
    over = _check_against(args, axes)
    configurations = measuring.configurations_of(args, axes, device)
    path = args.output or new_recording_path(configurations[0].network)
    if args.counters:
        _check_counters(device, modelled or axes.family is not None)
    if modelled and (args.of == "energy" or args.lock_clocks is not None):
        raise CurvescopeError("--of energy and --lock-clocks need a device that runs: omit them.")
    if modelled:
        if args.experiments is not None:
            raise CurvescopeError("--experiments: a modelled GPU has nothing to run; omit it.")
        if args.step or axes.curve != BATCH or axes.family is not None:
            raise CurvescopeError("The cost model knows networks over batch sizes: omit --step and --axis.")
        _model(args, measuring.network_of(args), axes.values, path)
        return _show(args, path, over)
    if args.library or args.framework or args.what_if:
        raise CurvescopeError(
            "--library, --framework and --what-if are for a modelled GPU, e.g. --device model:gtx1080."
        )
    if args.of == "energy":
        protocol = _for_energy(protocol, device, axes)
    with measuring.clocks(args, device):
        if axes.family is not None:
            return _family(args, axes, configurations, protocol, path)
        _measure(args, configurations[0], axes, protocol, path)
    if args.counters:
        _count(path)
    if args.of == "energy":
        from ..analysis.render.energy import show_energy

        recording, curvature = open_recording(path), measuring.curvature_of(args)
        show_energy(recording, axis=curvature, everything=args.all, as_json=args.json)
        return 0
    return _show(args, path, over)


def _check_against(args: argparse.Namespace, axes: Axes) -> float | None:
    """The value of --fail-over; refuses a wrong --against or --fail-over before anything is measured.

    Raises:
        CurvescopeError: one of them is wrong, or does not fit the other options.
    """
    from ..base.errors import CurvescopeError
    from ..profiling.recording.store import open_recording

    over = None if args.fail_over is None else parse_share("--fail-over", args.fail_over)
    if args.base is None:
        if over is not None:
            raise CurvescopeError("--fail-over needs --against RUN, the recording to compare with.")
        return None
    if axes.family is not None or args.of == "energy":
        raise CurvescopeError("--against compares the step times of one curve: omit --of energy, and give --axis once.")
    recorded = sorted(set(open_recording(args.base).frame("steps")["batch"]))
    if not set(recorded) & set(axes.values):
        listed = ", ".join(map(str, recorded)) or "no step"
        raise CurvescopeError(f"--against {args.base} has {axes.curve} {listed}: measure at least one of them.")
    return over


def _show(args: argparse.Namespace, path: AnyPath, over: float | None) -> int:
    """Print what was measured, or its comparison with --against; returns the exit code."""
    if args.base is not None:
        return show_comparison([args.base, path], over, everything=args.all, as_json=args.json)
    from ..analysis.render.show import show_diagnosis
    from ..profiling.recording.store import open_recording

    show_diagnosis(open_recording(path), axis=measuring.curvature_of(args), everything=args.all, as_json=args.json)
    return 0


def _for_energy(protocol: Protocol, device: str, axes: Axes) -> Protocol:
    """The protocol with visits that are long enough for the source of energies.

    Raises:
        CurvescopeError: this device reports no energy, or a family of curves was asked for.
    """
    from dataclasses import replace

    from ..base.errors import CurvescopeError
    from ..profiling.hardware.energy import find_meter

    if axes.family is not None:
        raise CurvescopeError("--of energy is for one curve: give --axis once.")
    seconds = max(protocol.visit_s, 5 * find_meter(device).source.least_s)
    return replace(protocol, visit_s=seconds, steps_per_visit=(protocol.steps_per_visit[0], 100_000))


def _check_counters(device: str, refused: bool) -> None:
    """Refuse --counters, before anything is measured, where nothing could be counted."""
    from ..base.errors import CurvescopeError
    from ..profiling.measure.counters import find_tools

    if refused:
        raise CurvescopeError("--counters is for one measured curve: omit it, then run `curvescope counters RUN`.")
    if device == "cpu":
        raise CurvescopeError("--counters: only kernels of a GPU have counters, and this runs on the CPU; omit it.")
    find_tools()


def _count(path: AnyPath) -> None:
    from ..analysis.render import terminal
    from ..base.errors import CurvescopeError
    from .counters import count_and_print

    try:
        count_and_print(path)
    except CurvescopeError as error:  # what was measured is explained without counters
        terminal.console(stderr=True).print(f"No counters: {error}", style="yellow", markup=False)


def _measure(
    args: argparse.Namespace, configuration: Configuration, axes: Axes, protocol: Protocol, path: AnyPath
) -> None:
    workload = configuration.build(find_device=args.device is None)

    def seconds(device: str) -> float:
        return _experiments_s(args, protocol, device) / len(axes.curves)

    measure(workload, axes.values, protocol, path, seconds, measuring.precise_enough(protocol))


def _experiments_s(args: argparse.Namespace, protocol: Protocol, device: str) -> float:
    if args.experiments is None and (args.of == "energy" or args.base is not None):
        return 0.0  # experiments test causes of times; a comparison shows none
    default_s = QUICK_EXPERIMENTS_S if protocol.name == "quick" else default_experiments_s(device)
    return measuring.experiments_s_of(args, default_s)


def _family(
    args: argparse.Namespace, axes: Axes, configurations: Sequence[Configuration], protocol: Protocol, path: AnyPath
) -> int:
    """Measure one curve per value of the second axis, in a folder like that of a sweep."""
    from ..analysis.render import terminal
    from ..base.errors import CurvescopeError
    from ..profiling.measure.sweep_plan import PLAN_FILE, SweepPlan
    from ..profiling.recording.store import open_recording
    from .table import show_table

    PLAN_FILE.write(path, SweepPlan(tuple(configurations), axes.values, False, protocol))
    messages, recordings = terminal.console(stderr=True), []
    for configuration in configurations:
        try:
            _measure(args, configuration, axes, protocol, path / configuration.label)
        except CurvescopeError as error:
            messages.print(f"{configuration.label}: {error}", style="yellow", markup=False)
            continue
        recordings.append(open_recording(path / configuration.label))
    if not recordings:
        raise CurvescopeError(f"No {axes.curve} could be measured for any {axes.family}.")
    show_table(recordings, "json" if args.json else "text")
    messages.print(f"Recorded in {path}. Next:", markup=False)
    terminal.print_commands(messages, f"curvescope explain {recordings[-1].path}")
    return 0


def _model(args: argparse.Namespace, network: Network, batches: Sequence[int], path: AnyPath) -> None:
    """Model the steps on a GPU. Nothing runs, and networks by name do not need torch."""
    from ..analysis.cost_model.networks import load_operations
    from ..analysis.cost_model.recording import DEVICE_PREFIX, record_model
    from ..base.errors import CurvescopeError

    if args.precision == "tf32" or args.compile:
        raise CurvescopeError(
            "The cost model supports only eager steps in fp32, fp16 and bf16: omit tf32 and --compile."
        )
    table: Mapping[str, Any]
    if args.model or args.sequence_length is not None:
        from ..profiling.workload.networks.operations import operations

        table = operations(network)
    else:
        table = load_operations(network.name)
    device = args.device.removeprefix(DEVICE_PREFIX)
    framework, what_if = args.framework or "torch", _facts(args.what_if)
    record_model(
        path, network.name, table, batches, device, args.library, args.mode, framework, what_if, args.precision
    )


def _facts(text: str | None) -> dict[str, float]:
    """Parse `--what-if` to values by name of the fact."""
    from ..base.errors import CurvescopeError
    from ..profiling.measure.protocol import parse_bytes

    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    if not all(name and value for name, _, value in pairs):
        raise CurvescopeError(f"--what-if {text}: write facts and values, e.g. memory_bytes=12GiB,sm_count=40.")
    return {name.strip(): parse_bytes(value, f"--what-if {name}") for name, _, value in pairs}
