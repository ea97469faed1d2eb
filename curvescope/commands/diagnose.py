"""Measure a network over batch sizes on this machine and explain its cost curve.

Runs on CUDA if there is a device, else on the CPU. Takes about two minutes on two cores, with --quick under 40
seconds. After Ctrl-C the measured data is kept, and `curvescope explain` reads it.

`--device model:gtx1080` runs nothing: the cost model predicts the steps on that GPU (`curvescope devices` lists the
GPUs), and every view of the result is marked as modelled.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import measuring
from ..profiling.recording.remote_store import AnyPath, as_path

if TYPE_CHECKING:
    from ..profiling.measure.protocol import Protocol
    from ..profiling.workload.networks import Network


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    measuring.add_network_arguments(parser)
    parser.add_argument("--batch", default="1..32", help="batch sizes: 1,2,4 or 1..32 (doubling) or 32..160:8")
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
    parser.add_argument("--axis", choices=("log2", "linear"), default="log2", help="axis of curvatures")
    parser.add_argument(
        "-o", "--output", type=as_path, metavar="DIR", help="folder to create (default: runs/DATE_NETWORK)"
    )
    parser.add_argument("--all", action="store_true", help="show every anomaly and every term")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Measure, record and explain."""
    from ..profiling.errors import CurvescopeError
    from ..profiling.measure.protocol import parse_batches
    from ..profiling.measure.sweep import run_sweep
    from ..profiling.recording.store import new_recording_path, open_recording
    from ..profiling.workload.network_step import Workload, pick_device

    batches = parse_batches(args.batch)
    network = measuring.network_of(args)
    protocol = measuring.protocol_of(args)
    path = args.output or new_recording_path(network.name)
    if (args.device or "").startswith("model:"):
        return _model(args, network, batches, path)
    if args.library or args.framework or args.what_if:
        raise CurvescopeError(
            "--library, --framework and --what-if are for a modelled GPU, e.g. --device model:gtx1080."
        )
    device = pick_device(args.device)

    from ..analysis.render import terminal
    from ..analysis.render.show import show_diagnosis
    from ..profiling.hardware.host import describe_device
    from ..profiling.measure.experiment import Progress

    messages = terminal.console(stderr=True)
    messages.print(
        f"Measuring {network.name} ({args.mode} step), batch {', '.join(map(str, batches))}, on "
        f"{describe_device(device)['name']} ({device}): {_duration(protocol)}, into {path}."
    )
    with terminal.progress_bars(22) as bars:
        task = bars.add_task("building the network", total=None)

        def report(standing: Progress) -> None:
            bars.update(task, completed=standing.elapsed_s, total=standing.expected_s, description=standing.doing)

        workload = Workload(network, device, args.mode, args.precision, args.compile)
        try:
            run_sweep(workload, batches, protocol, path, report, measuring.precise_enough(protocol))
        except KeyboardInterrupt:
            bars.console.print(f"Interrupted. The measured data is kept: `curvescope explain {path}` reads it.")
            raise
    show_diagnosis(open_recording(path), axis=args.axis, everything=args.all, as_json=args.json)
    return 0


def _model(args: argparse.Namespace, network: Network, batches: Sequence[int], path: AnyPath) -> int:
    """Model the steps on a GPU. Nothing runs, and networks by name do not need torch."""
    from ..analysis.cost_model.networks import load_operations
    from ..analysis.cost_model.recording import DEVICE_PREFIX, record_model
    from ..analysis.render.show import show_diagnosis
    from ..profiling.errors import CurvescopeError
    from ..profiling.recording.store import open_recording

    if args.precision != "fp32" or args.compile:
        raise CurvescopeError("The cost model supports only eager steps in fp32: omit --precision and --compile.")
    table: Mapping[str, Any]
    if args.model or args.sequence_length is not None:
        from ..profiling.workload.networks.operations import operations

        table = operations(network)
    else:
        table = load_operations(network.name)
    device = args.device.removeprefix(DEVICE_PREFIX)
    framework, what_if = args.framework or "torch", _facts(args.what_if)
    record_model(path, network.name, table, batches, device, args.library, args.mode, framework, what_if)
    show_diagnosis(open_recording(path), axis=args.axis, everything=args.all, as_json=args.json)
    return 0


def _facts(text: str | None) -> dict[str, float]:
    """Parse `--what-if` to values by name of the fact."""
    from ..profiling.errors import CurvescopeError
    from ..profiling.measure.protocol import parse_bytes

    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    if not all(name and value for name, _, value in pairs):
        raise CurvescopeError(f"--what-if {text}: write facts and values, e.g. memory_bytes=12GiB,sm_count=40.")
    return {name.strip(): parse_bytes(value, f"--what-if {name}") for name, _, value in pairs}


def _duration(protocol: Protocol) -> str:
    if protocol.time_limit_s is None:
        return f"{protocol.rounds[0]} rounds without a time limit"
    upto = "at most" if protocol.until else "about"
    return f"{upto} {protocol.time_limit_s / 60:.1f} minutes"
