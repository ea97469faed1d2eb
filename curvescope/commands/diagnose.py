"""Measure a network over batch sizes on this machine and explain its cost curve.

Takes CUDA if there is a device, else the CPU. About two minutes on two cores; --quick under 40 seconds. Interrupted
with Ctrl-C it keeps what it measured, and `curvescope explain` reads it.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("network", nargs="?", help="a network by name, as in alexnet or vgg_a")
    parser.add_argument("--model", metavar="PACKAGE.MODULE:FUNCTION", help="a function that returns your torch module")
    parser.add_argument("--input-shape", metavar="C,H,W", help="shape of one sample for --model")
    parser.add_argument("--batch", default="1..32", help="batch sizes: 1,2,4 or 1..32 (doubling) or 32..160:8")
    parser.add_argument("--phase", choices=("training", "forward"), default="training", help="what a step runs")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda if there is one)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: wider intervals, under 40 s")
    parser.add_argument("--axis", choices=("log2", "linear"), default="log2", help="axis of curvatures")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to record (default: runs/DATE_NETWORK)")
    parser.add_argument("--all", action="store_true", help="every anomaly and every term")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Measure, record and explain."""
    from ..profiling.networks import from_factory, get_network
    from ..profiling.store import new_recording_path, open_recording
    from ..profiling.sweep import PROTOCOLS, parse_batches, run_sweep
    from ..profiling.workload import Workload, pick_device

    batches = parse_batches(args.batch)
    network = from_factory(args.model, _shape(args.input_shape)) if args.model else get_network(_named(args))
    protocol = PROTOCOLS["quick" if args.quick else "default"]
    path = args.output or new_recording_path(network.name)
    device = pick_device(args.device)

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from ..profiling.host import describe_device
    from ..profiling.sweep import Progress as Standing
    from ..show import show_diagnosis

    messages = Console(stderr=True, highlight=False)
    messages.print(
        f"Measuring {network.name} ({args.phase} step), batch {', '.join(map(str, batches))}, on "
        f"{describe_device(device)['name']} ({device}): about {protocol.time_limit_s / 60:.1f} minutes, into {path}."
    )
    with Progress(
        TextColumn("{task.description:<22}"), BarColumn(), TimeElapsedColumn(), console=messages, transient=True
    ) as bars:
        task = bars.add_task("building the network", total=protocol.time_limit_s)

        def report(standing: Standing) -> None:
            bars.update(task, completed=standing.elapsed_s, total=standing.expected_s, description=standing.doing)

        workload = Workload(network, device, args.phase)
        try:
            run_sweep(workload, batches, protocol, path, report)
        except KeyboardInterrupt:
            messages.print(f"Interrupted. What was measured is whole: `curvescope explain {path}` reads it.")
            raise
    show_diagnosis(open_recording(path), axis=args.axis, everything=args.all, as_json=args.json)
    return 0


def _named(args: argparse.Namespace) -> str:
    from ..profiling.errors import CurvescopeError

    if args.network is None:
        raise CurvescopeError("Name a network, as in `curvescope diagnose alexnet`, or bring your own with --model.")
    return str(args.network)


def _shape(text: str | None) -> tuple[int, ...]:
    from ..profiling.errors import CurvescopeError

    try:
        return tuple(int(extent) for extent in (text or "").split(","))
    except ValueError:
        raise CurvescopeError(
            f"--input-shape {text or 'is missing'}: the shape of one sample, as in --input-shape 3,224,224."
        ) from None
