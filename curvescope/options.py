"""Options that commands share, and their meaning."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .base.arguments import PROBE_SHARE, parse_duration, parse_share
from .parsers import group
from .profiling.hardware.precisions import STEP_PRECISIONS
from .profiling.recording.axis import MODES
from .profiling.recording.remote_store import as_path

if TYPE_CHECKING:
    from .profiling.measure.axes import Axes
    from .profiling.measure.configuration import Configuration
    from .profiling.measure.protocol import Protocol

CURVATURES = ("log2", "linear", "throughput")
# Titles of groups of options.
WHAT = "what to measure"
WHERE = "where it runs"
HOW = "how long and how exactly"


def add_curve_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of commands that measure one curve in this process and show it."""
    add_network_arguments(parser)
    add_batch_argument(parser)
    add_axis_argument(parser)
    add_protocol_arguments(parser)
    add_clock_argument(parser)
    add_result_arguments(parser)


def add_result_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the curve of one network is recorded, and how it is shown."""
    parser.add_argument(
        "-o", "--output", type=as_path, metavar="DIR", help="folder to create (default: runs/DATE_NETWORK)"
    )
    add_curvature_argument(parser)
    parser.add_argument("--all", action="store_true", help="show everything: all anomalies, terms and tests")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for one network, without batch sizes."""
    what = group(parser, WHAT)
    parser.add_argument(
        "network",
        nargs="?",
        help="name of a network, e.g. alexnet or vgg_a, or PACKAGE.MODULE:FUNCTION, which returns your torch module",
    )
    add_step_argument(parser)
    add_sample_argument(parser)
    add_mode_argument(parser, choices=MODES)
    add_precision_argument(
        parser, STEP_PRECISIONS, "fp32 (without TF32; default), tf32, or mixed precision in fp16 or bf16"
    )
    what.add_argument("--compile", action="store_true", help="run the network through torch.compile")
    what.add_argument(
        "--cuda-graph", action="store_true", help="capture each batch size's step as a CUDA graph, and time its replays"
    )
    add_device_argument(parser)


def add_device_argument(parser: argparse.ArgumentParser, default: str = "cuda if there is one") -> None:
    """Declare --device."""
    group(parser, WHERE).add_argument("--device", help=f"cpu, cuda or cuda:N (default: {default})")


def add_precision_argument(parser: argparse.ArgumentParser, choices: Sequence[str], words: str) -> None:
    """Declare --precision, one of `choices`, described by `words`."""
    group(parser, WHAT).add_argument("--precision", choices=choices, default="fp32", help=words)


def add_clock_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --lock-clocks."""
    group(parser, WHERE).add_argument(
        "--lock-clocks",
        nargs="?",
        type=int,
        const=0,
        metavar="MHZ",
        help="SM clock to lock the GPU at while it is measured (needs root; without a value: its "
        "default application clock)",
    )


def clocks(args: argparse.Namespace, device: str) -> AbstractContextManager[object]:
    """The context in which the clock of a GPU is locked, if `--lock-clocks` asks for it.

    Raises:
        CurvescopeError: on entering it, see `locked_clocks`.
    """
    if args.lock_clocks is None:
        return nullcontext()
    from .profiling.hardware.locked_clocks import locked_clocks

    return locked_clocks(device, args.lock_clocks or None)


def add_step_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --step."""
    group(parser, WHAT).add_argument(
        "--step",
        metavar="PACKAGE.MODULE:MAKE_STEP",
        help="your own step: make_step(batch) returns a function that runs one; also FILE.py:MAKE_STEP",
    )


def add_batch_argument(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Declare --batch; `more` is an addition to its help."""
    group(parser, WHAT).add_argument(
        "--batch", metavar="SIZES", help=f"batch sizes: 1,2,4 or 1..32 (default; doubling) or 32..160:8{more}"
    )


def add_memory_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the memory that the largest batch size must fit."""
    parser.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="memory that a step may have, e.g. 24GB (default: what the device had left when it was measured)",
    )


def memory_limit_of(args: argparse.Namespace) -> int | None:
    """The value of `--memory-limit`, bytes; None without one.

    Raises:
        CurvescopeError: the value is not a size.
    """
    from .profiling.measure.protocol import parse_bytes

    return parse_bytes(args.memory_limit, "--memory-limit") if args.memory_limit else None


def add_axis_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --axis."""
    group(parser, WHAT).add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="another number to vary, e.g. tokens=128..4096: an argument of make_step, or tokens for BERT; a "
        "second axis with several values gives a family of curves",
    )


def add_curvature_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --curvature."""
    parser.add_argument(
        "--curvature",
        choices=CURVATURES,
        default=CURVATURES[0],
        help="axis of curvatures: log2, of time per sample (default); linear, of the step time; or throughput, of "
        "samples per second over log2 of the batch size",
    )


def add_by_instance_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --by-instance."""
    parser.add_argument(
        "--by-instance", action="store_true", help="keep repeated layers apart, e.g. the blocks of a transformer"
    )


def axes_of(args: argparse.Namespace) -> Axes:
    """The axes that the options describe.

    Raises:
        CurvescopeError: a value has no valid form.
    """
    from .profiling.measure.axes import parse_axes
    from .profiling.measure.protocol import parse_batches

    return parse_axes(args.axis, None if args.batch is None else parse_batches(args.batch))


def configurations_of(args: argparse.Namespace, axes: Axes, device: str) -> tuple[Configuration, ...]:
    """What the options of `add_network_arguments` ask for: one configuration per curve.

    Raises:
        CurvescopeError: neither a network nor a step is named, it does not exist, or an option does not fit it.
    """
    from .base.errors import CurvescopeError
    from .profiling.measure.configuration import Configuration

    if args.step:
        refuse_network_options(args)
        made = [Configuration.of_step(args.step, device, axes.curve, dict(fixed)) for fixed in axes.curves]
    elif args.network is None:
        raise CurvescopeError(
            "Name a network, e.g. alexnet (`curvescope networks` lists them), or your own: "
            "PACKAGE.MODULE:FUNCTION or --step."
        )
    else:
        how = (*sample_of(args, args.network), device, args.mode, args.precision, args.compile)
        made = [Configuration(args.network, *how, axis=axes.curve, fixed=fixed) for fixed in axes.curves]
    made = [replace(configuration, graphed=args.cuda_graph) for configuration in made]
    for configuration in made:
        configuration.check()
    return tuple(made)


def refuse_network_options(args: argparse.Namespace) -> None:
    """Refuse options that a step of the user decides by itself.

    Raises:
        CurvescopeError: one of them is given.
    """
    from .base.errors import CurvescopeError

    given = {
        "a network": args.network,
        "--input-shape": args.input_shape,
        "--mode": args.mode != "training",
        "--precision": args.precision != "fp32",
        "--compile": args.compile not in (False, "no"),
    }
    if wrong := [name for name, value in given.items() if value]:
        raise CurvescopeError(f"--step brings its own model, data and optimizer: omit {', '.join(wrong)}.")


def add_mode_argument(parser: argparse.ArgumentParser, words: str = "what a step runs", **options: Any) -> None:
    """Declare --mode, described by `words`."""
    group(parser, WHAT).add_argument("--mode", default="training", help=words, **options)


def add_sample_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the shape of a sample, for networks that leave it open."""
    group(parser, WHAT).add_argument(
        "--input-shape",
        metavar="C,H,W",
        help="shape of a sample for your own network; tokens for BERT (default: 128)",
    )


def add_protocol_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the number of rounds and the duration."""
    from .profiling.measure.protocol import PROTOCOLS

    usual_s, quick_s = (PROTOCOLS[name].time_limit_s for name in ("default", "quick"))
    how = group(parser, HOW)
    protocol = how.add_mutually_exclusive_group()
    protocol.add_argument("--quick", action="store_true", help="fewer rounds: wider intervals in less time")
    protocol.add_argument(
        "--protocol",
        default="default",
        help="rules of measuring: default, quick, addfor (mean of 100 runs), dell (images/s over all iterations; "
        "dell:SAMPLES sets their total number of samples), dlperf (20 steps ignored, 100 measured, 7 repeats, median)",
    )
    how.add_argument(
        "--until",
        metavar="SHARE",
        help="width of the intervals at which to stop, e.g. 1%%; --time-limit ends it before",
    )
    how.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help=f"seconds to measure a network (default: the protocol's, {usual_s:g}; with --quick {quick_s:g})",
    )


def add_probe_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --probe."""
    group(parser, HOW).add_argument(
        "--probe",
        default=f"{PROBE_SHARE:.0%}",
        metavar="SHARE",
        help=f"share of the time in which sizes between the batch sizes are probed for jumps; 0 for none (default: "
        f"{PROBE_SHARE:.0%}%)",
    )


def probe_share_of(args: argparse.Namespace) -> float:
    """The share of the time for probes.

    Raises:
        CurvescopeError: the value is no share.
    """
    return 0.0 if args.probe == "0" else parse_share("--probe", args.probe, "a share of the time, e.g. 15%, or 0")


def protocol_of(args: argparse.Namespace) -> Protocol:
    """The protocol that the options describe.

    Raises:
        CurvescopeError: the protocol is unknown, or a value is out of range.
    """
    from .base.errors import CurvescopeError
    from .profiling.measure.protocol import get_protocol

    name, _, samples = args.protocol.partition(":")
    protocol = get_protocol("quick" if args.quick else name)
    if args.time_limit is not None:
        if not args.time_limit > 0:
            raise CurvescopeError(f"--time-limit {args.time_limit}: write seconds, more than 0.")
        protocol = replace(protocol, time_limit_s=args.time_limit)
    if samples:
        if protocol.images is None or not samples.isdecimal() or not int(samples):
            raise CurvescopeError(f"--protocol {args.protocol}: dell alone takes a number of samples, e.g. dell:10000.")
        protocol = replace(protocol, images=int(samples))
    if args.until is not None:
        until = parse_share("--until", args.until, "a share of the step time, e.g. 1% or 0.01")
        # The time limit ends the run; the protocol's maximum number of rounds would end it sooner.
        protocol = replace(protocol, until=until, rounds=(protocol.rounds[0], 10_000))
    return protocol


def precise_enough(protocol: Protocol) -> Callable[[Sequence[dict[str, Any]]], bool]:
    """The stopping rule of `--until`: takes the rows of `steps` so far."""

    def precise(steps: Sequence[dict[str, Any]]) -> bool:
        if protocol.until is None:
            return False
        import pandas as pd

        from .analysis.decompose.curve import cost_curve

        return cost_curve(pd.DataFrame(steps), protocol.statistic).precision <= protocol.until

    return precise


def sample_of(args: argparse.Namespace, network: str) -> tuple[tuple[int, ...] | None, int | None]:
    """What `--input-shape` says of a network: the shape of a sample of the user's own, or the tokens of one of text.

    Raises:
        CurvescopeError: the value is missing, or not a shape.
    """
    from .base.errors import CurvescopeError

    text, own = args.input_shape, ":" in network
    if text is None and not own:
        return None, None
    try:
        shape = tuple(int(extent) for extent in (text or "").split(","))
    except ValueError:
        shape = ()
    if not shape or (len(shape) > 1 and not own):
        form = "the shape of one sample, e.g. --input-shape 3,224,224" if own else "a number of tokens"
        raise CurvescopeError(f"--input-shape {text or 'is missing'}: write {form}.")
    return (shape, None) if own else (None, shape[0])


def add_experiments_argument(parser: argparse.ArgumentParser, more: str) -> None:
    """Declare the time limit of experiments.

    Args:
        parser: parser of the command.
        more: addition to the help, e.g. the default.
    """
    group(parser, HOW).add_argument(
        "--experiments", metavar="TIME", help=f"time limit of the experiments that test causes, e.g. 60s or 2m{more}"
    )


def experiments_s_of(args: argparse.Namespace, default_s: float) -> float:
    """Seconds for experiments; 0 for none.

    Raises:
        CurvescopeError: the value is not a duration.
    """
    return default_s if args.experiments is None else parse_duration("--experiments", args.experiments)
