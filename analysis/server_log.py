"""The cost curve of a server's log: time of a decode step over its requests, where it bends, why.

A log is no experiment: load and context move together, and neighbouring steps share the state of
the machine. So the steps of a size are cut, in the order of the log, into blocks, whose medians are
the rounds of the curve. What the log tells of the context is taken out by its effect inside each
size. Bends are looked for between steps that are neighbours in time, see `server_edges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ..base.counted import counted
from ..base.errors import CurvescopeError
from ..profiling.attribution.served_steps import DECODE, MIXED, PREFILL
from ..profiling.recording.store import Recording
from .decompose.curve import Curve, cost_curve
from .decompose.functionals import Functional
from .decompose.statistics import Estimate, Floats, Ints, block_estimate, mean_error, spread_of
from .server_edges import DecodeSteps, Edge, find_edges

BLOCKS = 8  # of each size; a size with fewer steps is left out
LEAST_SIZES = 5  # that a curve needs
_CERTAIN = 4.0  # standard errors from which on the effect of the context is taken out
_LEAST_SLOPE = 4  # captured sizes for what a request adds
OTHER_SETTINGS = "This log is of servers, or of starts of one, with different settings"
_MANY, _SHARED = (
    4,
    0.25,
)  # ratio of requests, and share of its gain, below which batching hardly helps
_MOST_SPREAD = 0.5  # of the steps of one size; a server on its own machine has 0.01 to 0.1
# prompt tokens beyond one, for each request, from which on a step is more than one of decode
_PROMPTS = 0.05
_CLIPPED = 5.0  # median absolute deviations beyond which a step says nothing of the context


@dataclass(frozen=True)
class PromptCost:
    """What prompt tokens cost in steps of one mode."""

    mode: str  # prefill or mixed
    steps: int  # number of steps
    tokens: float  # median of the tokens in such a step
    # ms for 1,000 tokens; of mixed steps beyond a decode step of its requests
    ms_per_1000: Estimate


@dataclass(frozen=True)
class Batching:
    """What requests together gain over few of them."""

    few: int  # smallest number of requests of the curve
    many: int  # largest
    gain: Estimate  # ratio of their tokens per second
    slower: float  # ratio of the times of their steps

    @property
    def helps(self) -> bool:
        """Whether it is certain that requests share enough of a step; few of them say nothing."""
        ratio = self.many / self.few
        return ratio < _MANY or self.gain.high >= ratio**_SHARED


@dataclass(frozen=True)
class SizeTime:
    """The decode steps of one number of requests, in a log with too few for a curve."""

    requests: int  # number of requests of a step
    n: int  # number of steps, or of lines
    time_ms: float  # median time of a step


@dataclass(frozen=True)
class LogCurve:
    """A log as a cost curve."""

    server: Mapping[str, Any]  # what the log says of its server, `recording.json`'s entry
    decode_steps: int  # decode steps of the log
    sizes: tuple[int, int]  # the smallest and largest number of requests of a decode step
    curve: Curve | None  # time of a decode step over requests; None of a steady load
    medians: tuple[SizeTime, ...]  # what there is instead of a curve; empty with one
    limit: int | None  # the largest size with a graph, as far as the log tells; None if it does not
    edges: tuple[Edge, ...]  # where it bends, the largest loss of time first
    outside: float | None  # share of the decode steps with more requests than the limit
    beyond_ms: Estimate | None  # what a step beyond the limit takes more; None if it is not known
    padding: Estimate | None  # share of decode time that padding to captured sizes takes at most
    prompts: tuple[PromptCost, ...]  # costs of prefill
    batching: Batching | None  # what more requests gain; None without a curve, and with noise
    # how much steps of equally many requests differ, where that is too much to look for a bend
    noise: float | None
    notes: tuple[str, ...]  # sentences on what was left out and taken out


def is_server_log(recording: Recording) -> bool:
    """Whether a recording holds a server's log."""
    return recording.meta.get("recording_type") == "server log"


def refuse_log(recording: Recording, path: object, what: str) -> None:
    """CurvescopeError if a recording is a server's log: it has times of steps, and no kernel or
    operator.

    Args:
        recording: any recording.
        path: the recording or log that the user named.
        what: the view that a command would show, a noun, e.g. "breakdown".
    """
    if is_server_log(recording):
        raise CurvescopeError(
            f"{path} is a server's log: it has times of steps and no kernels, so there is no "
            f"{what} of it. `curvescope explain {path}` shows its curve, and the trace to record "
            "that would split a step."
        )


def graph_limit(server: Mapping[str, Any]) -> int | None:
    """The largest number of requests that a captured graph holds; 0 without graphs, None if
    unknown.

    vLLM captures full graphs of decode steps up to `max_num_seqs` only: a captured size beyond it
    belongs to a piecewise graph (vllm/v1/cudagraph_dispatcher.py).
    """
    if server.get("changed"):
        return None
    if server.get("eager"):
        return 0
    sizes, most = server.get("captured_sizes"), server.get("most_requests")
    # of a request in a step; sizes count tokens
    tokens = 1 + (server.get("speculative_tokens") or 0)
    full = server.get("graph_mode") in (None, "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    if sizes:
        fits = [size for size in sizes if most is None or not full or size <= most * tokens]
        return int(max(fits, default=0) // tokens)
    stated = server.get("largest_captured")
    if stated is None:
        return server.get("largest_with_graph")
    return int(stated // tokens)


def block_steps(steps: pd.DataFrame, times_ns: Floats | None = None) -> pd.DataFrame:
    """One row for each block of each size with `BLOCKS` steps or more: its median time, its number
    as round.
    """
    if times_ns is None:
        times_ns = steps["duration_ns"].to_numpy(np.float64)
    sizes = steps["batch"].to_numpy(np.int64)
    order = np.argsort(sizes, kind="stable")
    rows, medians, rounds = [], [], []
    for of_size in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        if len(of_size) < BLOCKS:
            continue
        for number, block in enumerate(np.array_split(of_size, BLOCKS)):
            rows.append(block[0])
            medians.append(np.median(times_ns[block]))
            rounds.append(number)
    made = steps.iloc[rows].copy()
    rounded = np.maximum(np.round(medians), 1)
    made["duration_ns"] = rounded.astype(np.int64)
    made["round"] = np.array(rounds, np.int32)
    made["index"] = 0
    return made


def collect_decode_blocks(recordings: Sequence[Recording]) -> list[pd.DataFrame]:
    """Blocks of the decode steps of several logs, at the same context per request where all tell
    it.

    CurvescopeError: one is no log, or has no decode step, or too few of each size.
    """
    others = [str(recording.path) for recording in recordings if not is_server_log(recording)]
    if others:
        raise CurvescopeError(
            f"A server's log is compared with another one; {', '.join(others)} is none. Compare "
            "traces with traces."
        )
    of_logs = [decode_steps(recording) for recording in recordings]
    for recording, steps in zip(recordings, of_logs, strict=True):
        if steps.groupby("batch").size().max() < BLOCKS:
            name = recording.path.name
            raise CurvescopeError(
                f"{name} has no number of requests with {BLOCKS} decode steps or lines, so there "
                f"is no curve: keep a longer log. `curvescope explain {name}` shows the steps that "
                "there are."
            )
    contexts = [(steps["context_tokens"] / steps["batch"]).astype("Float64") for steps in of_logs]
    every = pd.concat(contexts)
    usual = None if every.isna().any() else float(every.median())
    blocks = []
    for steps in of_logs:
        times_ns, _ = _at_equal_context(steps, usual)
        blocks.append(block_steps(steps, times_ns))
    return blocks


def decode_steps(recording: Recording) -> pd.DataFrame:
    """The decode steps of a log; CurvescopeError without one."""
    steps = recording.frame("steps")
    decode = steps[steps["mode"] == DECODE]
    if decode.empty:
        raise CurvescopeError(
            f"{recording.path.name} has no decode step, so there is no curve over requests: let "
            "the server generate."
        )
    return decode


def explain_log(recording: Recording) -> LogCurve:
    """The curve of a log, its bends and their causes; CurvescopeError without a decode step."""
    server = recording.meta.get("server") or {}
    decode = decode_steps(recording)
    times_ns, notes = _at_equal_context(decode)
    sizes = decode["batch"].to_numpy(np.int64)
    padded = _pad(server)
    pooled = _pool_rare(sizes, times_ns, padded)
    blocks = block_steps(decode.assign(batch=pooled), times_ns)
    limit = graph_limit(server)
    curve: Curve | None = None
    medians: tuple[SizeTime, ...] = ()
    if blocks["batch"].nunique() >= LEAST_SIZES:
        curve = _with_all_steps(cost_curve(blocks), pooled, times_ns)
        notes += _describe_pooled(sizes, pooled)
    else:
        medians = tuple(_medians(decode, times_ns))
    notes += _describe_left_out(server, len(decode))
    edges: tuple[Edge, ...] = ()
    beyond: Estimate | None = None
    padding: Estimate | None = None
    noise: float | None = None
    batching: Batching | None = None
    if curve is not None:
        noise = _noise(curve)
        if noise is None:
            edges, beyond = _edges(curve, pooled, times_ns, limit, padded)
            batching = _compare_ends(curve)
        if limit:
            padding = _weigh_padding(curve, sizes, pooled, limit, padded)
    smallest, largest = int(sizes.min()), int(sizes.max())
    outside = None if limit is None else float(np.mean(sizes > limit))
    prompts = tuple(_prompt_costs(recording.frame("steps"), curve))
    return LogCurve(
        server=server,
        decode_steps=len(decode),
        sizes=(smallest, largest),
        curve=curve,
        medians=medians,
        limit=limit,
        edges=edges,
        beyond_ms=beyond,
        outside=outside,
        padding=padding,
        prompts=prompts,
        batching=batching,
        noise=noise,
        notes=tuple(notes),
    )


def _describe_pooled(sizes: Ints, pooled: Ints) -> Iterator[str]:
    """Which steps count at another size, and which are in no curve."""
    moved = int(np.count_nonzero(pooled != sizes))
    if moved:
        yield (
            f"{counted(moved, 'step')} of rare numbers of requests count at the captured size that "
            "they ran."
        )
    count = pd.Series(pooled).value_counts()
    rare = count[count < BLOCKS]
    if len(rare):
        few = f"{counted(len(rare), 'size')} with fewer than {BLOCKS} steps each"
        yield f"Left out: {few} ({rare.sum()} steps)."


def _describe_left_out(server: Mapping[str, Any], decode_steps: int) -> Iterator[str]:
    """What the log's own lines say against its numbers."""
    changed = server.get("changed")
    if changed:
        names = ", ".join(name.replace("_", " ") for name in changed)
        unheld = f"{OTHER_SETTINGS} ({names}), so no edge is held against graphs"
        yield f"{unheld}. Explain the part of each alone."
    before = server.get("lines_before_graphs")
    if before:
        lines = f"{counted(before, 'line')} without a graph, at numbers of requests that also ran"
        took = f"{server['time_before_graphs']:.2f} times as long"
        yield f"Left out: {lines} with one. Their steps took {took}."
    unknown = server.get("lines_without_accepted")
    if unknown:
        do = "does" if unknown == 1 else "do"
        yield (
            f"{counted(unknown, 'line')} of {decode_steps} {do} not tell how many drafted tokens "
            "were accepted, so their steps took longer than is said."
        )


def _medians(decode: pd.DataFrame, times_ns: Floats) -> Iterator[SizeTime]:
    """The median of each size, of steps without prompt tokens between them if it has any."""
    sizes = decode["batch"].to_numpy(np.int64)
    tokens = decode["tokens"].to_numpy(np.float64, na_value=np.nan)
    prompts = np.nan_to_num(tokens - sizes) > 1 + _PROMPTS * sizes
    for size in np.unique(sizes):
        of_size = sizes == size
        kept = of_size & ~prompts if (of_size & ~prompts).any() else of_size
        median_ns = float(np.median(times_ns[kept]))
        yield SizeTime(int(size), int(kept.sum()), median_ns / 1e6)


def _noise(curve: Curve) -> float | None:
    """How much steps of equally many requests differ, the median over the sizes, if that is too
    much to look for a bend.
    """
    spreads = [point.spread for point in curve.points if point.spread is not None]
    spread = float(np.median(spreads))
    return spread if spread > _MOST_SPREAD else None


def _compare_ends(curve: Curve) -> Batching:
    """The tokens per second of the largest size over the smallest's, with a logarithmic
    interval.
    """
    small, large = curve.points[0], curve.points[-1]
    few, many = int(small.condition), int(large.condition)
    slower = large.time_ms.value / small.time_ms.value
    errors = []
    for time in (small.time_ms, large.time_ms):
        errors.append(np.log(max(time.high, time.value) / time.value))
    spread = float(np.exp(np.hypot(*errors)))
    gain = many / few / slower
    value = Estimate(gain, gain / spread, gain * spread, 0.0)
    return Batching(few, many, value, slower)


def _with_all_steps(curve: Curve, sizes: Ints, times_ns: Floats) -> Curve:
    """The curve with the number and spread of all steps, not of the blocks."""
    points = []
    for point in curve.points:
        of_size = times_ns[sizes == point.condition] / 1e6
        spread = spread_of(of_size, point.time_ms.value)
        points.append(replace(point, n=len(of_size), spread=spread))
    return replace(curve, points=tuple(points))


def _at_equal_context(
    decode: pd.DataFrame, per_request: float | None = None
) -> tuple[Floats, list[str]]:
    """Times of decode steps, ns, at one context per request and without prefill in between.

    The effects are the slopes inside sizes, and are taken out where they are certain and positive.
    """
    times = decode["duration_ns"].to_numpy(np.float64)
    sizes = decode["batch"].to_numpy(np.float64)
    context = decode["context_tokens"].to_numpy(np.float64, na_value=np.nan)
    has_context = ~np.isnan(context)
    beside = decode["tokens"].to_numpy(np.float64, na_value=np.nan) - sizes
    notes = []
    if not has_context.any():
        notes.append(
            "The log does not tell the context of the requests; a longer one makes steps slower, "
            "too."
        )
    elif has_context.all():
        usual = per_request
        if usual is None:
            usual = float(np.median(context / sizes))
        away = context - usual * sizes
        slope = _slope_inside(times, away, sizes)
        if slope:
            times = times - slope * away
            notes.append(
                f"At {usual:,.0f} tokens of context per request: 1,000 tokens more take "
                f"{slope / 1e3:.3g} ms a step."
            )
    if not np.isnan(beside).any() and (beside > 0).any():
        slope = _slope_inside(times, beside, sizes)
        if slope:
            times = times - slope * np.maximum(beside, 0)
            notes.append(
                f"Without prompt tokens between the steps, of which 1,000 take {slope / 1e3:.3g} "
                "ms."
            )
    return np.maximum(times, 1.0), notes


def _slope_inside(times: Floats, other: Floats, sizes: Floats) -> float:
    """The slope of times over another quantity inside sizes; 0 where it is not certain, or not
    positive.
    """
    frame = pd.DataFrame({"time": times, "other": other, "size": sizes})
    by_size = frame.groupby("size")
    medians = by_size[["time", "other"]].transform("median")
    time = (frame["time"] - medians["time"]).to_numpy(np.float64)
    away = (frame["other"] - medians["other"]).to_numpy(np.float64)
    usual = np.median(np.abs(time))
    if usual > 0:
        kept = np.abs(time) <= _CLIPPED * usual
        time = time[kept]
        away = away[kept]
    time = time - time.mean()
    away = away - away.mean()
    squares = float(away @ away)
    freedom = len(time) - 2
    if squares <= 0 or freedom < 10:
        return 0.0
    slope = float(away @ time) / squares
    rest = time - slope * away
    error = float(np.sqrt(rest @ rest / freedom / squares))
    return slope if slope > _CERTAIN * error else 0.0


def _pad(server: Mapping[str, Any]) -> Ints:
    """The captured sizes in requests, increasing; empty if unknown.

    Those beyond the limit are of piecewise graphs, for which steps are padded, too.
    """
    captured = () if server.get("changed") else server.get("captured_sizes") or ()
    tokens = 1 + (server.get("speculative_tokens") or 0)
    sizes = {size // tokens for size in captured} - {0}
    return np.array(sorted(sizes), np.int64)


def _work(sizes: Floats, captured: Ints) -> Floats:
    """The sizes that steps compute: the next captured one, or their own beyond the last."""
    if not len(captured):
        return sizes
    position = np.searchsorted(captured, sizes)
    following = captured[np.minimum(position, len(captured) - 1)]
    return np.where(position < len(captured), following, sizes).astype(np.float64)


def _pool_rare(sizes: Ints, times_ns: Floats, captured: Ints) -> Ints:
    """The sizes, of which those with fewer than `BLOCKS` steps are the captured size that they run,
    where times follow that: else the foot of a stair may be left out.
    """
    if not len(captured):
        return sizes
    distinct, place, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    by_place = pd.Series(times_ns).groupby(place)
    medians = by_place.median().to_numpy(np.float64)
    if not _is_padded(np.column_stack([distinct, medians]), captured):
        return sizes
    ran = _work(sizes.astype(np.float64), captured).astype(np.int64)
    return np.where(counts[place] < BLOCKS, ran, sizes)


def _is_padded(points: Floats, captured: Ints) -> bool:
    """Whether times follow the captured sizes more than the running requests: among the sizes that
    run one captured size they rise by less than half as much as over all.

    Attention and sampling work for the running ones, and may be most of a step.

    Args:
        points: sizes and times, ms, shape (sizes, 2).
        captured: captured sizes, increasing.
    """
    sizes, times = points.T
    by_work = pd.Series(sizes).groupby(_work(sizes, captured))
    inside = sizes - by_work.transform("mean").to_numpy()
    if len(points) < _LEAST_SLOPE or not inside.any():
        return True
    away = sizes - sizes.mean()
    slope_inside = inside @ times / (inside @ inside)
    slope = away @ times / (away @ away)
    return bool(slope_inside <= slope / 2)


def _edges(
    curve: Curve, sizes: Ints, times_ns: Floats, limit: int | None, captured: Ints
) -> tuple[tuple[Edge, ...], Estimate | None]:
    """The edges of a curve, from the steps of its sizes, see `find_edges`."""
    points = np.array([(point.condition, point.time_ms.value) for point in curve.points])
    kept = np.isin(sizes, points[:, 0])
    work = sizes[kept].astype(np.float64)
    if _is_padded(points[points[:, 0] <= limit] if limit else points, captured):
        work = _work(work, captured)
    steps = DecodeSteps(sizes[kept], work, times_ns[kept] / 1e6)
    own_sizes, own_times_ms = points.T
    return find_edges(steps, (own_sizes.astype(np.int64), own_times_ms), limit, captured)


def _weigh_padding(
    curve: Curve, requests: Ints, pooled: Ints, limit: int, captured: Ints
) -> Estimate | None:
    """The share of the decode time that padding takes if a request costs what the line's slope
    says.

    None without captured sizes, if no step was padded, or if times follow the running requests.
    """
    inside = [point for point in curve.points if point.condition <= limit]
    sizes = np.array([point.condition for point in inside], np.float64)
    times_ms = np.array([point.time_ms.value for point in inside])
    work = _work(sizes, captured)
    if len(captured) and not _is_padded(np.column_stack([sizes, times_ms]), captured):
        return None
    own = requests[np.isin(pooled, sizes)].astype(np.float64)
    added = float(np.sum(_work(own, captured) - own))
    if not len(captured) or len(np.unique(work)) < _LEAST_SLOPE or not added:
        return None
    from_mean = work - work.mean()
    slope = from_mean / float(from_mean @ from_mean)  # coefficients of T that give ms for a request
    weights = slope * added
    whole = 0.0
    for size, time_ms in zip(sizes, times_ms, strict=True):
        whole += float(np.count_nonzero(pooled == size) * time_ms)
    share = []
    for size, weight in zip(sizes, weights, strict=True):
        share.append((int(size), float(weight / whole)))
    return curve.evaluate(Functional("padding", int(sizes[0]), None, tuple(share), "1"))


def _prompt_costs(steps: pd.DataFrame, curve: Curve | None) -> list[PromptCost]:
    """What 1,000 prompt tokens cost alone, and beside decoding requests."""
    costs = []
    for mode in (PREFILL, MIXED):
        rows = steps[steps["mode"] == mode].dropna(subset=["tokens"])
        if len(rows) < BLOCKS or (mode == MIXED and curve is None):
            continue
        times_ms = rows["duration_ns"].to_numpy(np.float64) / 1e6
        tokens = rows["tokens"].to_numpy(np.float64)
        if mode == MIXED:
            assert curve is not None
            decode_ms = [point.time_ms.value for point in curve.points]
            requests = rows["batch"].to_numpy(np.float64)
            times_ms = times_ms - np.interp(requests, curve.conditions, decode_ms)
            tokens = np.maximum(tokens - requests, 1.0)
        rates = []
        for block in np.array_split(np.arange(len(rows)), BLOCKS):
            block_ms = times_ms[block].sum()
            rates.append(1e3 * block_ms / tokens[block].sum())
        value = _estimate_blocks(np.array(rates))
        usual_tokens = float(np.median(tokens))
        costs.append(PromptCost(mode, len(rows), usual_tokens, value))
    return costs


def _estimate_blocks(rates: Floats) -> Estimate:
    """The mean of the rates of blocks with its interval."""
    most = float(np.abs(rates).max())
    return block_estimate(float(rates.mean()), mean_error(rates), BLOCKS - 1, most)


def best_batch(curve: Curve, limit_ms: float | None = None) -> int | None:
    """The size with the most tokens per second whose time, by the upper end of its interval, keeps
    a limit.
    """
    able = [point for point in curve.points if limit_ms is None or point.time_ms.high <= limit_ms]
    if not able:
        return None
    return int(max(able, key=lambda point: point.condition / point.time_ms.value).condition)


def sizes_in_words(sizes: Sequence[int]) -> str:
    """Sizes as a range, e.g. `97 to 100`."""
    if sizes[0] == sizes[-1]:
        return str(sizes[0])
    return f"{sizes[0]} to {sizes[-1]}"
