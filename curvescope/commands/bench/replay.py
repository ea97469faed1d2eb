"""Replay the operator calls of a recorded step alone, at recorded batch sizes and others.

`sweep` and `diagnose` record the operators of one profiled step per batch size. An imported
PyTorch trace has them if it was taken with shapes. Each call is built again from its arguments and
measured like every benchmark.

By default, the caches are flushed before each sample. Then the operands that depend on the batch
size are read, since the operator before has just written them. `in step` is the time of one call in
the profiled step. `kernels` compares the kinds of kernels in the step and alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...analysis.render import terminal
from ...base.arguments import parse_share
from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.numbers import duration
from ...options import WHAT
from ...parsers import group
from ...profiling.measure.protocol import parse_batches
from . import measuring
from .result_columns import percent

if TYPE_CHECKING:
    from ...experiments.replay.problem import LeftOut, ReplayPlan, ReplaySweep
    from ...kernels.runner import Result
    from ...profiling.recording.store import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording", type=Path, metavar="RECORDING", help="recording with operators"
    )
    what = group(parser, WHAT)
    what.add_argument(
        "--layer", help="layer whose calls to replay, with those of layers inside it (default: all)"
    )
    what.add_argument("--op", help="operator to replay, e.g. linear or aten::linear (default: all)")
    what.add_argument(
        "--phase", help="phase whose calls to replay: forward, backward or optimizer (default: all)"
    )
    what.add_argument(
        "--batch", help="batch sizes, e.g. 1..64; any size will do (default: the recorded ones)"
    )
    what.add_argument(
        "--share",
        default="99%",
        metavar="SHARE",
        help="share of the time of all calls to replay, the calls with most time first (default: "
        "99%%)",
    )
    what.add_argument(
        "--all", action="store_true", help="replay all calls, those with little time, too"
    )
    measuring.add_method(parser, time_limit_s=1.0, device="that of the recording")
    parser.set_defaults(backend="torch", no_verify=True)


def run(args: argparse.Namespace) -> int:
    from ...experiments.replay.problem import list_replayed_kernels
    from ...experiments.replay.recorded_call import device_of
    from ...kernels.backends import open_backend
    from ...profiling.recording.store import open_recording

    recording = open_recording(args.recording)
    plan = _plan(args, recording)
    if not plan.sweeps:
        reasons = "; ".join(dict.fromkeys(left.reason for left in plan.left_out))
        raise CurvescopeError(f"None of the selected operators can be replayed: {reasons}.")
    backend = open_backend("torch", args.device or device_of(recording))
    rows: list[dict[str, Any]] = []

    def on_end(position: int, sweep_result: measuring.MeasuredSweep) -> None:
        kernels = list_replayed_kernels(open_recording(sweep_result.path))
        for result in sweep_result.results:
            row = _row(plan.sweeps[position], result, kernels.get(result.value))
            rows.append(row)
            if not args.json:
                _print_row(row)

    jobs = [(backend, sweep.sweep) for sweep in plan.sweeps]
    measured = measuring.collect(args, "replay", jobs, on_end)
    left_out = [_describe_left_out(left) for left in plan.left_out]
    for planned, measurement in zip(plan.sweeps, measured, strict=True):
        for result in measurement.results:
            if result.median_ns is None:
                where = {"batch": result.value, "reason": result.detail}
                left_out.append(_call(planned) | where)
    if args.json:
        from ...analysis.render.documents import print_document
        from .documents import ReplayDocument, ReplayedCall, UnreplayedCall

        document = ReplayDocument(
            method=measuring.method_of(args),
            recording=str(args.recording),
            calls=[ReplayedCall(**row) for row in rows],
            left_out=[UnreplayedCall(**row) for row in left_out],
            minor=plan.minor,
            minor_share=plan.minor_share,
        )
        print_document(document)
    else:
        _print_totals(plan, rows, left_out, measured)
    return 0


def _plan(args: argparse.Namespace, recording: Recording) -> ReplayPlan:
    from ...experiments.replay.problem import plan_replay
    from ...experiments.replay.recorded_call import families, read_calls

    if not recording.count_rows("operators"):
        raise CurvescopeError(
            f"{args.recording} has no operators. `curvescope sweep` and `diagnose` of this version "
            "record them, and imported PyTorch traces have them if they were taken with "
            "record_shapes=True."
        )
    groups = families(read_calls(recording, layer=args.layer, phase=args.phase, op=args.op))
    if not groups:
        layers = {call.layer or "" for call in read_calls(recording)}
        listed = ", ".join(sorted(layers))
        raise CurvescopeError(
            f"No recorded operator is of that layer, phase and name; layers: {listed}."
        )
    batches = None if args.batch is None else parse_batches(args.batch)
    share = 1.0
    if not args.all:
        share = parse_share("--share", args.share, "a share of the time, e.g. 95% or 0.95")
    return plan_replay(groups, batches, share, recording.meta.get("precision") or "fp32")


def _call(replayed: ReplaySweep) -> dict[str, Any]:
    call = replayed.families[0].largest
    return {"op": call.op, "layers": list(replayed.sweep.layers), "phase": call.phase}


def _row(replayed: ReplaySweep, result: Result, kernels: Sequence[str] | None) -> dict[str, Any]:
    """One call at one batch size; times of one call, in nanoseconds."""
    from ...experiments.replay.problem import compare_kernels

    batch, alone_ns = result.value, result.median_ns
    in_step_ns = replayed.in_step_ns(batch)
    ratio = None if in_step_ns is None or not alone_ns else in_step_ns / alone_ns
    return {
        **_call(replayed),
        "batch": batch,
        "problem": result.problem,
        "calls": replayed.calls(batch),
        "n": result.n,
        "alone_ns": alone_ns,
        "low_ns": result.low_ns,
        "high_ns": result.high_ns,
        "in_step_ns": in_step_ns,
        "ratio": ratio,
        "kernels": compare_kernels(replayed.kernels(batch), kernels),
        "notes": result.notes,
    }


def _describe_left_out(left: LeftOut) -> dict[str, Any]:
    call = left.call
    layers = [] if call.layer is None else [call.layer]
    return {
        "op": call.op,
        "layers": layers,
        "phase": call.phase,
        "batch": left.batch,
        "reason": left.reason,
    }


def _print_row(row: dict[str, Any]) -> None:
    """A line for a batch size of a call, as soon as it is measured: an interrupt keeps it."""
    if row["alone_ns"] is None:
        return
    where = [_where(row), row["op"].removeprefix("aten::")]
    if row["phase"]:
        where.insert(1, row["phase"])
    spread = None
    if row["low_ns"] is not None:
        spread = (row["high_ns"] - row["low_ns"]) / 2 / row["alone_ns"]
    alone = duration(row["alone_ns"])
    parts = [f"batch {row['batch']}: alone {alone} ± {percent(spread)}"]
    if row["in_step_ns"] is not None:
        in_step = duration(row["in_step_ns"])
        parts += [f"in step {in_step}", f"ratio {row['ratio']:.2f}"]
    parts.append(f"kernels {row['kernels']}")
    line = ", ".join([" ".join(where), *parts])
    terminal.console().print(line, soft_wrap=True)


def _print_totals(
    plan: ReplayPlan,
    rows: list[dict[str, Any]],
    left_out: list[dict[str, Any]],
    measured: list[Any],
) -> None:
    console = terminal.console()
    totals = defaultdict[int, list[float]](lambda: [0.0, 0.0])  # alone and in the step, ns
    for row in rows:
        if row["ratio"] is not None:
            total = totals[row["batch"]]
            total[0] += row["calls"] * row["alone_ns"]
            total[1] += row["calls"] * row["in_step_ns"]
    for batch, (alone_ns, in_step_ns) in sorted(totals.items()):
        alone, in_step = duration(alone_ns), duration(in_step_ns)
        line = f"Batch {batch}: alone {alone}, in the step {in_step} in all"
        console.print(f"{line}, ratio {in_step_ns / alone_ns:.2f}.")
    reasons = defaultdict[str, list[dict[str, Any]]](list)
    for left in left_out:
        reasons[f"{left['op']}: {left['reason']}"].append(left)
    for reason, alike in reasons.items():
        places = ", ".join(dict.fromkeys(map(_where, alike)))
        batches = {left["batch"] for left in alike} - {None}
        if batches:
            listed = ", ".join(map(str, sorted(batches)))
            places += f", batch {listed}"
        console.print(f"Not replayed: {reason} ({places}).", style="yellow")
    if plan.minor:
        calls = counted(plan.minor, "call")
        line = f"Left out: {calls} with {plan.minor_share:.1%} of the time; --all replays all."
        console.print(Text(line))
    measuring.print_notes(measured)
    console.print(f"Recorded in {measuring.path_of(measured)}.")


def _where(row: dict[str, Any]) -> str:
    layers = row["layers"]
    return (layers[0] if layers else "outside layers") + measuring.mark_alike(layers)
