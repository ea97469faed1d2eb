"""Measure a network over batch sizes on this machine and explain its cost curve.

Takes CUDA if there is a device, else the CPU. About two minutes on two cores; --quick under 40 seconds. Interrupted
with Ctrl-C it keeps what it measured, and `curvescope explain` reads it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..profiling.sweep import Protocol


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("network", nargs="?", help="a network by name, as in alexnet or vgg_a")
    parser.add_argument("--model", metavar="PACKAGE.MODULE:FUNCTION", help="a function that returns your torch module")
    parser.add_argument("--input-shape", metavar="C,H,W", help="shape of one sample for --model")
    parser.add_argument("--batch", default="1..32", help="batch sizes: 1,2,4 or 1..32 (doubling) or 32..160:8")
    parser.add_argument(
        "--phase", choices=("training", "forward", "forward+backward"), default="training", help="what a step runs"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda if there is one)")
    protocol = parser.add_mutually_exclusive_group()
    protocol.add_argument("--quick", action="store_true", help="fewer rounds: wider intervals, under 40 s")
    protocol.add_argument(
        "--protocol",
        default="default",
        help="default, quick, addfor (mean of 100 runs), dlperf (20 ignored, 100 measured, 7 repeats, median)",
    )
    parser.add_argument(
        "--until", metavar="SHARE", help="stop once every interval is this narrow, as in 1%%, or at --time-limit"
    )
    parser.add_argument("--time-limit", type=float, metavar="S", help="seconds to measure (default: the protocol's)")
    parser.add_argument("--axis", choices=("log2", "linear"), default="log2", help="axis of curvatures")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to record (default: runs/DATE_NETWORK)")
    parser.add_argument("--all", action="store_true", help="every anomaly and every term")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Measure, record and explain."""
    from ..profiling.networks import from_factory, get_network
    from ..profiling.store import new_recording_path, open_recording
    from ..profiling.sweep import parse_batches, run_sweep
    from ..profiling.workload import Workload, pick_device

    batches = parse_batches(args.batch)
    network = from_factory(args.model, _shape(args.input_shape)) if args.model else get_network(_named(args))
    protocol = _protocol(args)
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
        f"{describe_device(device)['name']} ({device}): {_duration(protocol)}, into {path}."
    )
    with Progress(
        TextColumn("{task.description:<22}"), BarColumn(), TimeElapsedColumn(), console=messages, transient=True
    ) as bars:
        task = bars.add_task("building the network", total=None)

        def report(standing: Standing) -> None:
            bars.update(task, completed=standing.elapsed_s, total=standing.expected_s, description=standing.doing)

        workload = Workload(network, device, args.phase)
        try:
            run_sweep(workload, batches, protocol, path, report, _precise(protocol))
        except KeyboardInterrupt:
            messages.print(f"Interrupted. What was measured is whole: `curvescope explain {path}` reads it.")
            raise
    show_diagnosis(open_recording(path), axis=args.axis, everything=args.all, as_json=args.json)
    return 0


def _protocol(args: argparse.Namespace) -> Protocol:
    from ..profiling.errors import CurvescopeError
    from ..profiling.sweep import PROTOCOLS

    name = "quick" if args.quick else args.protocol
    if name not in PROTOCOLS:
        raise CurvescopeError(f"--protocol {name}: choose one of {', '.join(PROTOCOLS)}.")
    protocol = PROTOCOLS[name]
    if args.time_limit is not None:
        if not args.time_limit > 0:
            raise CurvescopeError(f"--time-limit {args.time_limit}: seconds, more than 0.")
        protocol = replace(protocol, time_limit_s=args.time_limit)
    if args.until is not None:
        try:
            until = float(args.until.removesuffix("%")) / (100 if args.until.endswith("%") else 1)
        except ValueError:
            until = 0.0
        if not 0 < until < 1:
            raise CurvescopeError(f"--until {args.until}: a share of the step time, as in 1% or 0.01.")
        # The time limit ends it; the most rounds of the protocol would end it sooner.
        protocol = replace(protocol, until=until, rounds=(protocol.rounds[0], 10_000))
    return protocol


def _duration(protocol: Protocol) -> str:
    if protocol.time_limit_s is None:
        return f"{protocol.rounds[0]} rounds however long they take"
    upto = "at most" if protocol.until else "about"
    return f"{upto} {protocol.time_limit_s / 60:.1f} minutes"


def _precise(protocol: Protocol) -> Callable[[Sequence[dict[str, Any]]], bool]:
    """The stopping rule of `--until`."""

    def precise(steps: Sequence[dict[str, Any]]) -> bool:
        if protocol.until is None:
            return False
        import pandas as pd

        from ..analysis.curve import cost_curve

        return cost_curve(pd.DataFrame(steps), protocol.statistic).precision <= protocol.until

    return precise


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
