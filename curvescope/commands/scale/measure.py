"""Measure multi-GPU scaling: data-parallel steps on 1, 2, 4, … devices, and where the lost time
goes.

On one machine it starts a process per device, which connect on loopback: by NCCL on GPUs, by Gloo
on a CPU. Under torchrun or srun it is one rank of that launch, on any number of nodes, and rank 0
prints:

    torchrun --nnodes 4 --nproc-per-node 8 … -m curvescope scale measure vgg16 --nodes 1,2 -o DIR
    srun --nodes 4 --ntasks-per-node 8 curvescope scale measure vgg16 --nodes 1,2 -o DIR

Measured data is kept after an interruption: `--resume DIR` continues, `curvescope explain DIR`
prints the result again.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from ... import options
from ...analysis.render import terminal
from ...base.counted import counted
from ...base.endings import answer_if_interrupted
from ...base.errors import CurvescopeError
from ...base.sizes import double, parse_sizes
from ...base.torch_runtime import import_torch, pick_device
from ...parsers import group
from ...profiling.hardware.host import usable_cores
from ...profiling.recording.axis import MODES
from ...profiling.recording.rank_info import RankInfo, find_launched_rank
from ...profiling.workload.networks import names

if TYPE_CHECKING:
    from ...profiling.measure.scaling_plan import ScalingPlan

_BATCH = 16
_TIMEOUT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        nargs="?",
        help="name of a network, or package.module:function with --input-shape",
    )
    options.add(parser, "--input-shape")
    what, where = group(parser, options.WHAT), group(parser, options.WHERE)
    where.add_argument(
        "--devices", metavar="1,2,4", help="numbers of devices (default: doubling up to all)"
    )
    where.add_argument(
        "--nodes",
        metavar="1,2,4",
        help="for a launch on several nodes: numbers of nodes with all their devices",
    )
    what.add_argument(
        "--at",
        type=int,
        metavar="SIZE",
        help=f"weak scaling: batch size of each device (default: {_BATCH})",
    )
    what.add_argument(
        "--total-batch",
        type=int,
        metavar="B",
        help="strong scaling: samples of all devices in total",
    )
    options.add(parser, "--mode", choices=[mode for mode in MODES if mode != "forward"])
    options.add(parser, "--precision", help="precision of the steps (default: fp32)")
    options.add(
        parser,
        "--device",
        choices=("cpu", "cuda"),
        help="cpu or cuda (default: cuda if there is one)",
    )
    where.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads per process on a CPU (default: an equal share)",
    )
    what.add_argument(
        "--input",
        default="resident",
        metavar="SOURCE",
        help="source of the batches: resident (one batch stays on the device; default), host "
        "(copied to the device in "
        "every step), or package.module:function of batch size, rank and world size that "
        "returns (inputs, targets) to iterate over",
    )
    group(parser, options.HOW).add_argument(
        "--timeout",
        type=float,
        default=_TIMEOUT_S,
        metavar="S",
        help="seconds to wait for an unresponsive rank before aborting",
    )
    options.add_protocol(parser)
    options.add(parser, "--output", type=Path, help="folder to create (default: runs/DATE_scale)")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="folder of a run to resume: measures what is missing",
    )
    options.add(parser, "--run-its-code")
    options.add(parser, "--all", help="split the loss at every number of devices, by every layer")
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    if args.resume and args.network:
        raise CurvescopeError("--resume continues the existing plan: omit the network.")
    rank = find_launched_rank()
    return _run_here(args) if rank is None else _run_rank(args, rank)


def _run_here(args: argparse.Namespace) -> int:
    """Start the ranks on this machine."""
    from ...analysis.render.live import LiveProgress
    from ...analysis.render.show_scaling import show_scaling
    from ...profiling.measure.scaling_launch import launch
    from ...profiling.measure.scaling_plan import is_complete

    messages = terminal.console(stderr=True)
    if args.nodes not in (None, "1"):
        raise CurvescopeError(
            f"--nodes {args.nodes}: several nodes need a launch on all of them; "
            "`curvescope scale measure --help` shows torchrun and srun."
        )
    here = _device_count(args)
    plan = _read_plan(args) or _plan(args, here, here)
    if plan.configuration.device == "cuda" and max(plan.devices) > here:
        raise CurvescopeError(
            f"{max(plan.devices)} devices are requested, but this machine has "
            f"{counted(here, 'GPU')}. Request fewer with --devices, start one process per GPU on "
            "several nodes with torchrun or srun, or use --device cpu."
        )
    folder = args.resume or _begin(args, plan)
    if plan.threads is not None and max(plan.devices) * plan.threads > usable_cores():
        messages.print(
            f"{counted(max(plan.devices), 'process', 'processes')} of "
            f"{counted(plan.threads, 'thread')} on {counted(usable_cores(), 'core')}: their "
            "contention appears as slower kernels.",
            style="yellow",
        )

    def answer() -> None:
        show_scaling(folder, args.all, args.json)

    if not is_complete(folder, plan):
        messages.print(
            f"{counted(len(plan.points), 'point')}, protocol {plan.protocol.name}, into {folder}."
        )
        try:
            with answer_if_interrupted(answer), LiveProgress() as view:
                launch(folder, plan, "curvescope.scaling_rank", view.report)
        except KeyboardInterrupt:
            messages.print("Interrupted. This resumes:")
            terminal.print_commands(messages, f"curvescope scale measure --resume {folder}")
            raise
    answer()
    return 0


def _run_rank(args: argparse.Namespace, rank: RankInfo) -> int:
    """Run as one rank of a launch by torchrun or Slurm; rank 0 makes the plan, broadcasts it, and
    prints.
    """
    from ...analysis.render.live import LiveProgress
    from ...analysis.render.show_scaling import show_scaling
    from ...profiling.measure.process_group import ProcessGroup
    from ...profiling.measure.scaling_run import run_rank

    with ProcessGroup(rank, args.timeout) as ranks:
        answer: tuple[Path, ScalingPlan] | str | None = None
        per_node = ranks.nodes.count(0)
        if rank.rank == 0:
            try:
                plan = _read_plan(args) or _plan(args, rank.world_size, per_node)
                ranks.check_size(plan.devices)
                answer = (args.resume or _begin(args, plan), plan)
            except CurvescopeError as error:
                answer = str(error)
        answer = ranks.broadcast(answer)
        if isinstance(answer, str):  # all ranks exit, and one reports the reason
            if rank.rank == 0:
                raise CurvescopeError(answer)
            return 2
        assert answer is not None
        folder, plan = answer
        with LiveProgress() if rank.rank == 0 else contextlib.nullcontext() as view:
            report = view.report if view is not None else lambda _: None
            run_rank(folder, plan, ranks, report, options.precise_enough(plan.protocol))
    if rank.rank == 0:
        show_scaling(folder, args.all, args.json)
    return 0


def _read_plan(args: argparse.Namespace) -> ScalingPlan | None:
    """The plan of the run that is resumed, if one is."""
    from ...profiling.measure.scaling_plan import PLAN_FILE

    return PLAN_FILE.read_to_run(args.resume, args.run_its_code) if args.resume else None


def _begin(args: argparse.Namespace, plan: ScalingPlan) -> Path:
    """Create a new folder with the plan in it."""
    from ...profiling.measure.scaling_plan import PLAN_FILE
    from ...profiling.recording.store import new_recording_path

    folder: Path = args.output or new_recording_path("scale")
    PLAN_FILE.write(folder, plan)
    return folder.resolve()


def _plan(args: argparse.Namespace, device_count: int, per_node: int) -> ScalingPlan:
    """The plan for the command line; `per_node` is the number of devices of the first node."""
    from ...profiling.measure.configuration import Configuration
    from ...profiling.measure.scaling_plan import ScalingPlan
    from ...profiling.workload.network_step import check_precision

    if not args.network:
        raise CurvescopeError(
            f"Name the network to scale: {', '.join(names())}; or `--resume DIR`."
        )
    device = _device(args)
    check_precision(args.precision, device)
    shape, length = options.sample_of(args, args.network)
    configuration = Configuration(args.network, shape, length, device, args.mode, args.precision)
    configuration.find_network()
    devices = _device_counts(args, device_count, per_node)
    total = args.total_batch
    batch = args.at if args.at is not None or total is not None else _BATCH
    for option, value in (
        ("--at", batch),
        ("--total-batch", total),
        ("--threads", args.threads),
    ):
        if value is not None and value < 1:
            raise CurvescopeError(f"{option} {value}: must be at least 1.")
    if total is not None and (unequal := [n for n in devices if total % n]):
        listed = ", ".join(map(str, unequal))
        raise CurvescopeError(
            f"--total-batch {total} cannot be divided equally among {listed} devices."
        )
    threads = None
    if device == "cpu":
        threads = args.threads or max(1, usable_cores() // max(devices))
    protocol = options.protocol_of(args)
    return ScalingPlan(
        configuration, devices, batch, total, protocol, threads, args.input, args.timeout
    )


def _device_counts(args: argparse.Namespace, device_count: int, per_node: int) -> tuple[int, ...]:
    """The numbers of devices to measure, always with one."""
    counts = {1}
    if args.devices:
        counts.update(parse_sizes("--devices", args.devices))
    if args.nodes:
        counts.update(per_node * nodes for nodes in parse_sizes("--nodes", args.nodes))
    if not args.devices and not args.nodes:
        counts.update(double(1, device_count), (device_count,))
    return tuple(sorted(counts))


def _device(args: argparse.Namespace) -> str:
    return pick_device(args.device).partition(":")[0]


def _device_count(args: argparse.Namespace) -> int:
    """Number of GPUs of this machine, or of cores of its CPU."""
    return usable_cores() if _device(args) == "cpu" else int(import_torch().cuda.device_count())
