"""Options that commands share, and their meaning."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base.arguments import PROBE_SHARE, parse_duration, parse_share
from .base.errors import CurvescopeError
from .base.harmless import home_as_tilde
from .parsers import CommandParser, group, refuse_given
from .profiling.hardware.precisions import STEP_PRECISIONS
from .profiling.measure.axes import Axes, parse_axes
from .profiling.measure.protocol import (
    PROTOCOLS,
    Protocol,
    get_protocol,
    parse_batches,
    parse_bytes,
)
from .profiling.recording.axis import MODES
from .profiling.recording.remote_store import as_path

if TYPE_CHECKING:
    from .profiling.measure.configuration import Configuration

CURVATURES = ("log2", "linear", "throughput")
# Titles of groups of options.
WHAT = "what to measure"
WHERE = "where it runs"
HOW = "how long and how exactly"

# Help that some commands change or complete.
RECORDING_OR_PROFILE = "folder or URL of a recording, or a profile"
BATCHES = "batch sizes: 1,2,4 or 1..32 (default; doubling), 1..81*3 or 32..160+8"
ONE_GPU = "number of the only recorded GPU whose work counts (default: all)"
EVERY_ROW = "show every row, not only the 25 largest"
EXPERIMENTS = "time limit of the experiments that test causes, e.g. 60s or 2m"


def _option(title: str | None = None, **settings: Any) -> tuple[str | None, dict[str, Any]]:
    return title, settings


# Each with the title of its group, where it has one.
_OPTIONS = {
    "recording": _option(type=as_path, help="folder or URL of a recording"),
    "network": _option(
        nargs="?",
        help="name of a network, e.g. alexnet or vgg_a, or PACKAGE.MODULE:FUNCTION, which returns "
        "your torch module",
    ),
    "--step": _option(
        WHAT,
        metavar="PACKAGE.MODULE:MAKE_STEP",
        help="your own step: make_step(batch) returns a function that runs one; also "
        "FILE.py:MAKE_STEP",
    ),
    "--input-shape": _option(
        WHAT,
        metavar="C,H,W",
        help="shape of a sample for your own network; tokens for BERT (default: 128)",
    ),
    "--batch": _option(WHAT, metavar="SIZES", help=BATCHES),
    "--axis": _option(
        WHAT,
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="another number to vary, e.g. tokens=128..4096: an argument of make_step, or tokens "
        "for BERT; several numbers of one axis make the curve",
    ),
    "--mode": _option(WHAT, default="training", choices=MODES, help="what a step runs"),
    "--precision": _option(
        WHAT,
        default="fp32",
        choices=STEP_PRECISIONS,
        help="fp32 (without TF32; default), tf32, or mixed precision in fp16 or bf16",
    ),
    "--cuda-graph": _option(
        WHAT,
        action="store_true",
        help="capture each batch size's step as a CUDA graph, and time its replays",
    ),
    "--framework": _option(
        WHAT,
        metavar="NAME",
        help="what runs a network: torch (default), torch-compile, or jax, which builds a named "
        "one from the same description",
    ),
    "--device": _option(WHERE, help="cpu, cuda or cuda:N (default: cuda if there is one)"),
    "--gpu": _option(type=int, metavar="N", help=ONE_GPU),
    "--run-its-code": _option(
        action="store_true",
        help="run the code that it names, though you did not: as you, with all that you may do "
        "(read it first)",
    ),
    "--lock-clocks": _option(
        WHERE,
        nargs="?",
        type=int,
        const=0,
        metavar="MHZ",
        help="SM clock to lock the GPU at while it is measured (needs root; without a value: its "
        "default application clock)",
    ),
    "--probe": _option(
        HOW,
        default=f"{PROBE_SHARE:.0%}",
        metavar="SHARE",
        help=f"share of the time in which sizes between the batch sizes are probed for jumps; 0 "
        "for none (default: "
        f"{PROBE_SHARE:.0%}%)",
    ),
    "--experiments": _option(HOW, metavar="TIME", help=EXPERIMENTS),
    "--memory-limit": _option(
        metavar="SIZE",
        help="memory that a step may have, e.g. 24GB (default: what the device had left when it "
        "was measured)",
    ),
    "--by-instance": _option(
        action="store_true", help="keep repeated layers apart, e.g. the blocks of a transformer"
    ),
    "--output": _option(
        type=as_path, metavar="DIR", help="folder to create (default: runs/DATE_NETWORK)"
    ),
    "--at": _option(type=int, metavar="SIZE", help="batch size (default: the largest profiled)"),
    "--curvature": _option(
        choices=CURVATURES,
        default=CURVATURES[0],
        help="axis of curvatures: log2, of time per sample (default); linear, of the step time; or "
        "throughput, of "
        "samples per second over log2 of the batch size",
    ),
    "--all": _option(action="store_true", help="show everything: all anomalies, terms and tests"),
    "program": _option(nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run"),
    "--json": _option(action="store_true", help="print one JSON document"),
    "--svg": _option(type=Path, metavar="FILE", help="write the picture alone, as a new SVG file"),
}
NETWORK = (
    "network",
    "--step",
    "--input-shape",
    "--mode",
    "--precision",
    "--cuda-graph",
    "--framework",
    "--device",
)
_OF_NETWORKS = ("network", "--input-shape", "--mode", "--precision", "--framework")
RESULT = ("--output", "--all", "--json")


def add(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Declare shared options in their groups; `changes` are other settings of theirs."""
    for name in names:
        title, settings = _OPTIONS[name]
        options = parser if title is None else group(parser, title)
        flags = ("-o", name) if name == "--output" else (name,)
        options.add_argument(*flags, **(settings | changes))


def add_curve(parser: argparse.ArgumentParser) -> None:
    """Declare the options of commands that measure one curve in this process and show it."""
    add(parser, *NETWORK, "--batch", "--axis")
    add_protocol(parser)
    add(parser, "--lock-clocks", *RESULT)


def add_program(parser: argparse.ArgumentParser) -> None:
    """Declare the options of commands that measure a program as it is: `-- COMMAND`, whose
    description names them.
    """
    assert isinstance(parser, CommandParser)
    parser.takes_program = True
    for name in ("--step-range", "--step-line", "--step-function", "--workdir"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--assign", action="append", default=[], help=argparse.SUPPRESS)


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the number of rounds and the duration."""
    usual_s, quick_s = (PROTOCOLS[name].time_limit_s for name in ("default", "quick"))
    how = group(parser, HOW)
    rules = how.add_mutually_exclusive_group()
    rules.add_argument(
        "--protocol",
        default="default",
        help="rules of measuring: default, quick (--quick says the same: fewer rounds, wider "
        "intervals in less time), addfor (mean of 100 runs), dell (images/s over all iterations; "
        "dell:SAMPLES sets their total number of samples), dlperf (20 steps ignored, 100 measured, "
        "7 repeats, median)",
    )
    rules.add_argument(
        "--quick", action="store_const", dest="protocol", const="quick", help=argparse.SUPPRESS
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
        help=f"seconds to measure a network (default: the protocol's, {usual_s:g}; with --quick "
        f"{quick_s:g})",
    )


def clocks(args: argparse.Namespace, device: str) -> AbstractContextManager[object]:
    """The context in which the clock of a GPU is locked, if `--lock-clocks` asks for it.

    Raises:
        CurvescopeError: on entering it, see `lock_clocks`.
    """
    if args.lock_clocks is None:
        return nullcontext()
    from .profiling.hardware.locked_clocks import lock_clocks

    return lock_clocks(device, args.lock_clocks or None)


def memory_limit_of(args: argparse.Namespace) -> int | None:
    """The value of `--memory-limit`, bytes; refused if it is not a size."""
    return parse_bytes(args.memory_limit, "--memory-limit") if args.memory_limit else None


def axes_of(args: argparse.Namespace) -> Axes:
    """The axes that `--axis` and `--batch` describe."""
    batches = None if args.batch is None else parse_batches(args.batch)
    return parse_axes(args.axis, batches)


def configuration_of(args: argparse.Namespace, axes: Axes, device: str) -> Configuration:
    """The configuration that the options `NETWORK` ask for.

    Raises:
        CurvescopeError: neither a network nor a step is named, it does not exist, or an option
            does not fit.
    """
    if program := getattr(args, "program", None):
        made = program_configuration(args, axes, program)
    elif args.step:
        made = step_configuration(args, axes, device)
    else:
        made = network_configuration(args, axes, device)
    if not program:
        made = replace(made, graphed=args.cuda_graph)
    made.check()
    return made


def network_configuration(args: argparse.Namespace, axes: Axes, device: str) -> Configuration:
    """A network by name, or the user's own, as the options describe it."""
    from .profiling.measure.configuration import Configuration

    if args.network is None:
        raise CurvescopeError(
            "Name a network, e.g. alexnet (`curvescope doctor --list networks` lists them), or "
            "your own: PACKAGE.MODULE:FUNCTION or --step."
        )
    how = (*sample_of(args, args.network), device, args.mode, args.precision)
    made = Configuration(args.network, *how, axis=axes.curve, fixed=axes.fixed)
    return made if args.framework is None else in_framework(made, args.framework)


def in_framework(
    configuration: Configuration, framework: str, *, elsewhere: bool = False
) -> Configuration:
    """The configuration with its network run by the framework that `--framework` names.

    With `elsewhere` another Python runs it, so this one need not have the framework.
    """
    from .profiling.workload.framework_step import TORCH, TORCH_COMPILE, check_framework

    check_framework(framework, elsewhere=elsewhere)
    if framework in (TORCH, TORCH_COMPILE):
        return replace(configuration, compiled=framework == TORCH_COMPILE)
    if configuration.graphed:
        raise CurvescopeError(f"--framework {framework} compiles by itself: omit --cuda-graph.")
    return replace(configuration, runs_in=framework)


def step_configuration(args: argparse.Namespace, axes: Axes, device: str) -> Configuration:
    """The step of the user's own, which replaces the options of a network."""
    from .profiling.measure.configuration import Configuration

    refuse_given(args, "--step brings its own model, data and optimizer", *_OF_NETWORKS)
    return Configuration.of_step(home_as_tilde(args.step), device, axes.curve, dict(axes.fixed))


def program_configuration(
    args: argparse.Namespace, axes: Axes, command: Sequence[str]
) -> Configuration:
    """A program as it is, which replaces the options of a network."""
    from .profiling.measure.configuration import Configuration
    from .profiling.workload.program import Program

    own = ("--step", *_OF_NETWORKS, "--memory-limit", "--cuda-graph", "--device")
    refuse_given(args, "A program brings its own model, data and device", *own)
    how = args.step_range, args.step_line, args.workdir, tuple(args.assign)
    program = Program(tuple(command), *how, args.step_function)
    return Configuration.of_program(program, axes.curve, dict(axes.fixed))


def program_of(args: argparse.Namespace) -> list[str]:
    """The command to run, without the -- before it."""
    first, *others = args.program or [""]
    return list(others if first == "--" else args.program)


def probe_share_of(args: argparse.Namespace) -> float:
    """The share of the time for probes."""
    if args.probe == "0":
        return 0.0
    return parse_share("--probe", args.probe, "a share of the time, e.g. 15%, or 0")


def protocol_of(args: argparse.Namespace) -> Protocol:
    """The protocol that the options of `add_protocol` describe.

    Raises:
        CurvescopeError: the protocol is unknown, or a value is out of range.
    """
    name, _, samples = args.protocol.partition(":")
    protocol = get_protocol(name)
    if args.time_limit is not None:
        protocol = replace(protocol, time_limit_s=check_time_limit(args.time_limit))
    if samples:
        is_count = samples.isdecimal() and int(samples) > 0
        if protocol.images is None or not is_count:
            raise CurvescopeError(
                f"--protocol {args.protocol}: dell alone takes a number of samples, e.g. "
                "dell:10000."
            )
        protocol = replace(protocol, images=int(samples))
    if args.until is not None:
        until = parse_share("--until", args.until, "a share of the step time, e.g. 1% or 0.01")
        # The time limit ends the run; the protocol's maximum number of rounds would end it sooner.
        protocol = replace(protocol, until=until, rounds=(protocol.rounds[0], 10_000))
    return protocol


def check_time_limit(seconds: float) -> float:
    """The value of `--time-limit`, refused if it is no time."""
    if not seconds > 0:
        raise CurvescopeError(f"--time-limit {seconds}: write seconds, more than 0.")
    return seconds


def precise_enough(protocol: Protocol) -> Callable[[Sequence[dict[str, Any]]], bool]:
    """The stopping rule of `--until`: takes the rows of `steps` so far."""

    def precise(steps: Sequence[dict[str, Any]]) -> bool:
        if protocol.until is None:
            return False
        import pandas as pd

        from .analysis.decompose.curve import cost_curve

        curve = cost_curve(pd.DataFrame(steps), protocol.statistic)
        return curve.precision <= protocol.until

    return precise


def sample_of(args: argparse.Namespace, network: str) -> tuple[tuple[int, ...] | None, int | None]:
    """The value of `--input-shape`: the shape of a sample of the user's own network, or tokens.

    Raises:
        CurvescopeError: the value is missing, or not a shape.
    """
    text, own = args.input_shape, ":" in network
    if text is None and not own:
        return None, None
    try:
        shape = tuple(map(int, (text or "").split(",")))
    except ValueError:
        shape = ()
    if not shape or (len(shape) > 1 and not own):
        form = "a number of tokens"
        if own:
            form = "the shape of one sample, e.g. --input-shape 3,224,224"
        raise CurvescopeError(f"--input-shape {text or 'is missing'}: write {form}.")
    return (shape, None) if own else (None, shape[0])


def experiments_s_of(args: argparse.Namespace, default_s: float) -> float:
    """Seconds for experiments; 0 for none."""
    if args.experiments is None:
        return default_s
    return parse_duration("--experiments", args.experiments)


def print_defaults(args: argparse.Namespace) -> None:
    """Print the defaults that a project set, above the answer, and beside a document."""
    if args.defaults:
        from .analysis.render.terminal import print_prose
        from .project import describe

        print_prose(describe(args.defaults), stderr=args.json)


def shown(args: argparse.Namespace) -> dict[str, Any]:
    """How the result is shown, by the options `RESULT`: arguments of the functions of
    `analysis.render` that show.
    """
    return {"everything": args.all, "as_json": args.json}


def write_picture(path: Path, svg: str) -> None:
    """Write the file of `--svg` and say so; CurvescopeError if it exists or cannot be written."""
    from .profiling.recording.atomic_files import atomic_file

    if path.exists():
        raise CurvescopeError(f"--svg {path} exists already; nothing is overwritten.")
    with atomic_file(path) as file:
        file.write(svg.encode())
    print(f"Wrote {path}.")
