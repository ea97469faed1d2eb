"""Replay the operator calls of a recorded step alone, at recorded batch sizes and others.

The recording has the operators of one profiled step per batch size (`sweep`, `diagnose`, or an
imported PyTorch trace with shapes). Each call is built again from its arguments and measured like
every benchmark. With cold caches, the default, the caches are flushed before each sample, and then
the operands that depend on the batch size are read, since the operator before has just written
them. `in step` is the time of one call in the profiled step; `kernels` says whether the call ran
the same kinds of kernels alone.
"""

from __future__ import annotations

import argparse
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
    jobs = [(backend, sweep.sweep) for sweep in plan.sweeps]
    rows: list[dict[str, Any]] = []

    def on_end(position: int, sweep_result: measuring.MeasuredSweep) -> None:
        kernels = list_replayed_kernels(open_recording(sweep_result.path))
        made = [
            _row(plan.sweeps[position], result, kernels.get(result.value))
            for result in sweep_result.results
        ]
        rows.extend(made)
        if not args.json:
            _print_rows(made)

    measured = measuring.collect(args, "replay", jobs, on_end)
    left_out = [_describe_left_out(left) for left in plan.left_out]
    left_out += [
        {**_call(planned), "batch": result.value, "reason": result.detail}
        for planned, measurement in zip(plan.sweeps, measured, strict=True)
        for result in measurement.results
        if result.median_ns is None
    ]
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
        layers = sorted({call.layer or "" for call in read_calls(recording)})
        raise CurvescopeError(
            f"No recorded operator is of that layer, phase and name; layers: {', '.join(layers)}."
        )
    batches = None if args.batch is None else parse_batches(args.batch)
    share = (
        1.0
        if args.all
        else parse_share("--share", args.share, "a share of the time, e.g. 95% or 0.95")
    )
    return plan_replay(groups, batches, share, recording.meta.get("precision") or "fp32")


def _call(replayed: ReplaySweep) -> dict[str, Any]:
    call = replayed.families[0].largest
    return {"op": call.op, "layers": list(replayed.sweep.layers), "phase": call.phase}


def _row(replayed: ReplaySweep, result: Result, kernels: Sequence[str] | None) -> dict[str, Any]:
    """One call at one batch size; times of one call, in nanoseconds."""
    from ...experiments.replay.problem import compare_kernels

    in_step_ns = replayed.in_step_ns(result.value)
    return {
        **_call(replayed),
        "batch": result.value,
        "problem": result.problem,
        "calls": replayed.calls(result.value),
        "n": result.n,
        "alone_ns": result.median_ns,
        "low_ns": result.low_ns,
        "high_ns": result.high_ns,
        "in_step_ns": in_step_ns,
        "ratio": None
        if in_step_ns is None or not result.median_ns
        else in_step_ns / result.median_ns,
        "kernels": compare_kernels(replayed.kernels(result.value), kernels),
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


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """A line for each batch size of a call, as soon as they are measured: an interrupt keeps what
    is there.
    """
    for row in rows:
        if row["alone_ns"] is None:
            continue
        where = " ".join(
            filter(None, (_where(row), row["phase"], row["op"].removeprefix("aten::")))
        )
        spread = (
            None
            if row["low_ns"] is None
            else (row["high_ns"] - row["low_ns"]) / 2 / row["alone_ns"]
        )
        parts = [f"batch {row['batch']}: alone {duration(row['alone_ns'])} ± {percent(spread)}"]
        if row["in_step_ns"] is not None:
            parts += [f"in step {duration(row['in_step_ns'])}", f"ratio {row['ratio']:.2f}"]
        parts += [f"kernels {row['kernels']}"]
        terminal.console().print(f"{where}, {', '.join(parts)}", soft_wrap=True)


def _print_totals(
    plan: ReplayPlan,
    rows: list[dict[str, Any]],
    left_out: list[dict[str, Any]],
    measured: list[Any],
) -> None:

    console = terminal.console()
    for batch in sorted({row["batch"] for row in rows}):
        both = [r for r in rows if r["batch"] == batch and r["ratio"] is not None]
        alone_ns, in_step_ns = (
            sum(r["calls"] * r[name] for r in both) for name in ("alone_ns", "in_step_ns")
        )
        if both:
            line = (
                f"Batch {batch}: alone {duration(alone_ns)}, in the step {duration(in_step_ns)} in "
                "all"
            )
            console.print(f"{line}, ratio {in_step_ns / alone_ns:.2f}.")
    reasons: dict[str, list[dict[str, Any]]] = {}
    for left in left_out:
        reasons.setdefault(f"{left['op']}: {left['reason']}", []).append(left)
    for reason, ones in reasons.items():
        batches = sorted({left["batch"] for left in ones if left["batch"] is not None})
        at = f", batch {', '.join(map(str, batches))}" if batches else ""
        console.print(
            f"Not replayed: {reason} ({', '.join(dict.fromkeys(map(_where, ones)))}{at}).",
            style="yellow",
        )
    if plan.minor:
        console.print(
            Text(
                f"Left out: {counted(plan.minor, 'call')} with {plan.minor_share:.1%} of the time; "
                "--all replays all."
            )
        )
    measuring.print_notes(measured)
    console.print(f"Recorded in {measuring.common_folder(measured)}.")


def _where(row: dict[str, Any]) -> str:
    layers = row["layers"]
    more = f" (and {len(layers) - 1} alike)" if len(layers) > 1 else ""
    return (layers[0] if layers else "outside layers") + more
