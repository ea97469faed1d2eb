"""The cost curve of a server's log as text and as a document: where it bends, what to do, and what
to try next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, with_sign
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import Recording
from ..decompose.curve import Curve, Point
from ..decompose.statistics import Estimate
from ..server_edges import Edge
from ..server_log import (
    BLOCKS,
    LEAST_SIZES,
    OTHER_SETTINGS,
    Batching,
    LogCurve,
    PromptCost,
    SizeTime,
    best_batch,
    explain_log,
    sizes_in_words,
)
from . import terminal
from .documents import print_document
from .explained import CurvePoint
from .tables import table
from .words import interval, join_texts, note_hidden, show_ms

_SHOWN = 12  # sizes of a short table
_LINES = ("line of decode steps", "lines of decode steps")
_LEAST_PADDING = 0.02  # of the decode time, that is worth a sentence
_LEAST_WAITING = 0.1  # of the lines, likewise
_SUGGESTED = "Suggested, not tested: a log is no experiment."


@dataclass(frozen=True, kw_only=True)
class LogBend:
    """One size beyond which the steps of a server take longer."""

    at: int  # the last number of requests before it
    to: int  # the largest number of requests behind it
    extra_ms: Estimate  # time behind it less the line through smaller sizes, ms a step
    known: bool  # whether the log names it as the largest captured size
    captured: bool  # whether the log names it as a captured size
    steps: int  # decode steps behind it
    share: float  # of the decode steps of the log
    sentence: str  # what it is, as a sentence
    advice: str | None  # what to do, as a sentence; null where the log does not tell
    setting: str | None  # the server's option that does it; null where the log does not tell


@dataclass(frozen=True, kw_only=True)
class ServerLogDocument:
    """The log of an inference server, explained: `explain` of such a log."""

    recording: str  # folder or URL of the recording, or the log
    headline: str  # what the curve shows, in a sentence
    verdict: str  # suggested: a log is no experiment
    server: Mapping[str, Any]  # what the log says of its server, as in `recording.json`
    decode_steps: int  # decode steps of the log
    graph_limit: int | None  # most requests of a captured graph; 0 without graphs; null if unknown
    outside_graphs: float | None  # share of the decode steps with more requests; null if unknown
    bends: Sequence[LogBend]  # where it bends, the largest loss of time first
    padding: Estimate | None  # share of the decode time that padding to captured sizes takes
    best_batch: int | None  # requests with the most tokens per second, under a stated limit
    limit_ms: float | None  # the stated limit of a step's time; null without one
    prompts: Sequence[PromptCost]  # what prompt tokens cost
    batching: Batching | None  # what more requests gain; null without a curve
    curve: Sequence[CurvePoint]  # time of a decode step by requests
    medians: Sequence[SizeTime]  # where the log has too few steps for a curve
    notes: Sequence[str]  # what was left out and taken out
    commands: Sequence[str]  # what to run next


def show_server_log(
    recording: Recording, path: object, *, limit_ms: float | None, everything: bool, as_json: bool
) -> None:
    """Print the answer of a log, as text or as a document; `path` is the recording or log that the
    user named.
    """
    log, made = log_document(recording, path, limit_ms)
    if as_json:
        print_document(made)
        return
    console = terminal.console()
    console.print(Text(_title(log, path), "bold"))
    terminal.print_below(console, Text(made.headline, "bold"))
    for bend in made.bends:
        if bend.sentence != made.headline:
            console.print(Text(bend.sentence))
        if bend.advice and bend.setting:
            console.print(Text(bend.advice))
            terminal.print_commands(console, bend.setting)
    for line in _further(log, made):
        console.print(Text(line))
    if made.bends:
        console.print(Text(_SUGGESTED, "dim"))
    if log.curve is None:
        terminal.print_below(console, _few(log, everything))
    else:
        terminal.print_below(console, _table(log, log.curve, made.bends, everything))
    for line in (*describe_lost(recording.meta.get("lost", {})), *log.notes):
        console.print(Text(line, "dim"))
    if made.commands:
        terminal.print_below(console, Text("Next:"))
        terminal.print_commands(console, *made.commands)


def log_document(
    recording: Recording, path: object, limit_ms: float | None = None
) -> tuple[LogCurve, ServerLogDocument]:
    """The cost curve of a log, and its document; CurvescopeError without a decode step."""
    log = explain_log(recording)
    bends = [_bend(edge, log) for edge in log.edges]
    points = () if log.curve is None else log.curve.points
    best = None
    if log.curve is not None and log.noise is None:
        best = best_batch(log.curve, limit_ms)
    return log, ServerLogDocument(
        recording=str(path),
        headline=bends[0].sentence if bends else _say_nothing(log),
        verdict="suggested",
        server=log.server,
        decode_steps=log.decode_steps,
        graph_limit=log.limit,
        outside_graphs=log.outside,
        bends=bends,
        padding=log.padding,
        best_batch=best,
        limit_ms=limit_ms,
        prompts=log.prompts,
        batching=log.batching,
        curve=[CurvePoint.of(point) for point in points],
        medians=log.medians,
        notes=log.notes,
        commands=_commands(log, path),
    )


def log_lead(recording: Recording) -> tuple[str, str]:
    """The headline of a log, and all further sentences, for a page."""
    log, made = log_document(recording, recording.named)
    lines = []
    for bend in made.bends:
        if bend.sentence != made.headline:
            lines.append(bend.sentence)
        if bend.advice and bend.setting:
            lines.append(f"{bend.advice} {bend.setting}.")
    lines += _further(log, made)
    if made.bends:
        lines.append(_SUGGESTED)
    return made.headline, " ".join([*lines, *log.notes])


def _title(log: LogCurve, path: object) -> str:
    server = log.server
    name = join_texts((server.get("server"), server.get("version")), " ")
    facts = [f"{PurePath(str(path)).name}: {name}"]
    facts.append(f"{_steps(log)} of {sizes_in_words(log.sizes)} requests")
    if server.get("most_requests"):
        facts.append(f"at most {server['most_requests']} requests")
    if server.get("eager"):
        facts.append("eager")
    engines = server.get("engines") or 1
    if engines > 1:
        facts.append(f"{engines} engines together")
    return ", ".join(facts)


def _steps(log: LogCurve) -> str:
    noun = ("decode step",) if log.server.get("lines") == "steps" else _LINES
    return counted(log.decode_steps, *noun)


def _bend(edge: Edge, log: LogCurve) -> LogBend:
    sizes, extra = sizes_in_words((edge.at + 1, edge.last)), _ms(edge.extra_ms)
    share = f"{edge.share:.0%} of the decode steps of this log"
    is_single = edge.at + 1 == edge.last
    batches, ending = ("Batch", "s") if is_single else ("Batches", "")
    if edge.known:
        leave = f"leave{ending} the graph that was captured up to {edge.at}"
        sentence = f"{batches} {sizes} {leave}: {extra} a step, {share}."
    else:
        takes = f"take{ending} {extra} a step more than the line through smaller ones"
        why = "The log does not say why."
        if edge.captured:
            why = f"{edge.at} is a captured size, so they run other graphs."
        sentence = f"{batches} {sizes} {takes}, {share}. {why}"
    advice, setting = None, None
    if edge.known:
        advice = f"Capture {_say_needed(log, edge.last)}:"
        setting = _capture(log, edge.last)
    return LogBend(
        at=edge.at,
        to=edge.last,
        extra_ms=edge.extra_ms,
        known=edge.known,
        captured=edge.captured,
        steps=edge.steps,
        share=edge.share,
        sentence=sentence,
        advice=advice,
        setting=setting,
    )


def _ms(value: Estimate) -> str:
    return f"{with_sign(value.value)} ms ({interval(value, 3)})"


def _say_needed(log: LogCurve, largest: int) -> int:
    """The largest size to capture: of vLLM, whose list is exact, what may run at most."""
    allowed = log.server.get("most_requests") or 0
    return max(largest, allowed) if log.server.get("server") == "vLLM" else largest


def _capture(log: LogCurve, largest: int) -> str:
    """The server's option that captures graphs up to the largest size that runs."""
    server, most = log.server, _say_needed(log, largest)
    if server.get("server") == "TensorRT-LLM":
        return f"cuda_graph_config: {{enable_padding: true, max_batch_size: {most}}}"
    if server.get("server") != "vLLM":
        return f"--cuda-graph-max-bs {most}"
    most *= 1 + (server.get("speculative_tokens") or 0)
    kept = [size for size in server.get("captured_sizes") or () if size < most]
    sizes = ",".join(map(str, [*kept, most]))
    return f"--compilation-config '{{\"cudagraph_capture_sizes\":[{sizes}]}}'"


_LONGER = "Serve a load that changes more slowly."
_MORE_LINES = {
    "vLLM": "Start the server with `--enable-logging-iteration-details`, which prints every step.",
    "SGLang": "`--decode-log-interval 10` prints more lines.",
}


def _say_nothing(log: LogCurve) -> str:
    """What to say of a log in which no bend is significant."""
    rest = _why_no_bend(log)
    if log.limit == 0:
        return f"Graphs are turned off; what that costs this log cannot tell. {rest}"
    if not log.outside:
        return f"{_without_graph(log)}{rest}"
    more = f"more than the {log.limit} requests of the largest graph"
    outside = f"{log.outside:.0%} of the decode steps have {more}"
    if log.beyond_ms is None:
        why = "as hardly a step around it has fewer"
        return f"{outside}; what that costs this log cannot tell, {why}. {rest}"
    return f"{outside}, and that costs nothing certain: {_ms(log.beyond_ms)} a step. {rest}"


def _why_no_bend(log: LogCurve) -> str:
    """Why a log shows no bend: the reason that says most."""
    server, batching = log.server, log.batching
    enough = LEAST_SIZES * BLOCKS
    if log.curve is None:
        changing = server.get("lines_of_changing_load") or 0
        if log.decode_steps < min(changing, enough):
            lines = f"in the time of {changing} of {changing + log.decode_steps}"
            remedy = _MORE_LINES.get(str(server.get("server")), _LONGER)
            return (
                f"The load changes faster than the log has lines: {lines} the requests changed, so "
                f"there is no curve. {remedy}"
            )
        if log.decode_steps < enough:
            takes = f"one takes {LEAST_SIZES} numbers of requests with {BLOCKS} each"
            return f"The log has {_steps(log)}, too few for a curve: {takes}. Nothing is claimed."
    if batching is not None and not batching.helps:
        return _hardly_helps(batching)
    if log.noise is not None and server.get("changed"):
        return f"{OTHER_SETTINGS}, so its steps are those of no one curve."
    if log.noise is not None:
        return (
            f"Steps of equally many requests differ by {log.noise:.0%}, too much to look for a "
            "bend: other work ran on the machine, or prompts were computed meanwhile. Serve the "
            "load again on a quiet machine."
        )
    if log.curve is None:
        few = f"fewer than {LEAST_SIZES} sizes have {BLOCKS} decode steps"
        return f"The load is steady: {few}, so there is no curve, and nothing is claimed."
    small, large = log.curve.points[0], log.curve.points[-1]
    if large.time_ms.high < small.time_ms.low:
        takes = f"{large.condition} requests take less time a step than {small.condition}"
        changed = "something besides their number changed within this log"
        return f"No significant bend, but {takes}: {changed}."
    return "No significant bend: each request adds about as much as the one before."


def _without_graph(log: LogCurve) -> str:
    """What lines that say whether a graph ran tell, where no step that counts is beyond one."""
    server = log.server
    lines, smallest = server.get("lines_without_graph"), server.get("smallest_without_graph")
    largest = server.get("largest_with_graph")
    if log.curve is not None or not lines or largest is None or smallest <= largest:
        return ""
    apart = f"{counted(lines, 'line')} ran without a graph, from {smallest} requests on"
    return f"{apart}; the largest with one had {largest}. "


def _hardly_helps(batching: Batching) -> str:
    few, many = batching.few, batching.many
    gain = f"{number(batching.gain.value, 3)} times ({interval(batching.gain, 3)})"
    slower = f"{number(batching.slower, 3)} times as long"
    return (
        f"Batching hardly helps: {many} requests give {gain} the tokens per second of {few}, and "
        f"their step takes {slower}. Most of a step is done for each request apart: a trace of one "
        "step shows which kernels run more often, or take longer, with more requests."
    )


def _further(log: LogCurve, made: ServerLogDocument) -> list[str]:
    """Advice beside the bends: a limit, padding, prompts."""
    lines = []
    if log.edges and log.batching is not None and not log.batching.helps:
        lines.append(_hardly_helps(log.batching))
    if log.outside and log.beyond_ms is None and log.limit:
        needed, option = _say_needed(log, log.sizes[1]), _capture(log, log.sizes[1])
        lines.append(f"Capture {needed}, and compare both logs: `{option}`.")
    if log.curve is not None and log.noise is None:
        lines.append(_best(log, log.curve, made))
    padding = log.padding
    if padding is not None and padding.low > _LEAST_PADDING:
        share = f"{padding.value:.0%} ({padding.low:.0%} to {padding.high:.0%})"
        lines.append(
            f"Padding to captured sizes takes {share} of the decode time; capture the sizes that "
            "run often."
        )
    lines += map(_say_prompts, log.prompts)
    thrown_out = log.server.get("preemptions")
    if thrown_out:
        lines.append(
            f"Requests were thrown out of the cache {counted(thrown_out, 'time')} and computed "
            "again: allow fewer requests, or give the cache more memory."
        )
    waiting = log.server.get("lines_waiting_for_cache") or 0
    running = log.server.get("lines_running") or 0
    if waiting > _LEAST_WAITING * running:
        lines.append(
            f"In {waiting} of {running} lines requests waited while the KV cache was full: it "
            "limits how many run, so a larger one, or shorter requests, let more run at once."
        )
    return lines


def _say_prompts(cost: PromptCost) -> str:
    """The cost of prompt tokens."""
    beside = "beside decoding requests" if cost.mode == "mixed" else "alone"
    time = cost.ms_per_1000
    basis = f"{counted(cost.steps, 'step')}, median {cost.tokens:,.0f} tokens"
    takes = f"{show_ms(time.value, 3)} ({interval(time, 3)}; {basis})"
    return f"1,000 prompt tokens {beside} take {takes}."


def _best(log: LogCurve, curve: Curve, made: ServerLogDocument) -> str:
    """The number of requests with the most tokens a second."""
    if made.best_batch is None:
        least_ms = min(curve.times_ms.values())
        limit = show_ms(made.limit_ms or 0, 3)
        return f"No size keeps {limit}; the fastest step takes {show_ms(least_ms, 3)}."
    time = curve.at(made.best_batch).time_ms
    rate = number(1e3 * made.best_batch / time.value, 4)
    under = "" if made.limit_ms is None else f" under {show_ms(made.limit_ms, 3)} a step"
    step = f"{show_ms(time.value)} a step ({interval(time, 4)})"
    return f"Best batch{under}: {made.best_batch} requests, {rate} {_rate_unit(log)}, {step}."


def _table(
    log: LogCurve, curve: Curve, bends: Sequence[LogBend], everything: bool
) -> RenderableType:
    """The curve, or the sizes around its bends and some between."""
    points = curve.points
    if not everything and len(points) > _SHOWN:
        points = _choose_points(points, bends[:2])
    unit = _rate_unit(log)
    heads = ("requests", "step ms", "95 % interval", "ms/request", unit, "spread", "n")
    rows = table(*heads, first="right")
    for point in points:
        size, time, spread = point.condition, point.time_ms.value, point.spread
        rows.add_row(
            str(size),
            number(time),
            interval(point.time_ms, 4),
            number(time / size),
            number(1e3 * size / time),
            "unknown" if spread is None else f"{spread:.1%}",
            str(point.n),
        )
    what = "steps" if log.server.get("lines") == "steps" else "lines"
    blocks = f"the intervals are of {BLOCKS} blocks in the order of the log"
    hidden = note_hidden(len(curve.points) - len(points), "size")
    return Group(rows, *hidden, Text(f"Median of n {what}; {blocks}.", "dim"))


def _choose_points(points: Sequence[Point], bends: Sequence[LogBend]) -> tuple[Point, ...]:
    """The sizes around bends, and some that lie evenly between all."""
    step = (len(points) - 1) / (_SHOWN - 5)
    chosen = {round(place * step) for place in range(_SHOWN - 4)}
    for index, point in enumerate(points):
        if any(-2 < point.condition - bend.at < 3 for bend in bends):
            chosen.add(index)
    return tuple(points[index] for index in sorted(chosen))


def _few(log: LogCurve, everything: bool) -> RenderableType:
    """What there is of a log without a curve: the median of each number of requests."""
    shown: Sequence[SizeTime] = log.medians
    if not everything:
        shown = sorted(shown, key=lambda median: -median.n)[:_SHOWN]
    rows = table("requests", "step ms", _rate_unit(log), "n", first="right")
    for median in sorted(shown, key=lambda median: median.requests):
        rate = number(1e3 * median.requests / median.time_ms)
        rows.add_row(str(median.requests), number(median.time_ms), rate, str(median.n))
    what = "steps" if log.server.get("lines") == "steps" else "lines"
    hidden = note_hidden(len(log.medians) - len(shown), "size")
    note = f"Median of n {what}, without an interval: they are too few for one."
    return Group(rows, *hidden, Text(note, "dim"))


def _rate_unit(log: LogCurve) -> str:
    """What requests over the time of a step are per second: tokens, if none is drafted."""
    drafts = log.server.get("speculative_tokens") or log.server.get("drafts")
    return "steps of requests/s" if drafts else "tokens/s"


def _say_traced(log: LogCurve) -> list[str]:
    """The numbers of requests whose traces would tell more; empty where nothing is to be told."""
    if log.edges:
        at = log.edges[0].at
        return [str(at), str(at + 1)]
    if log.batching is not None and not log.batching.helps:
        return [str(log.batching.few), str(log.batching.many)]
    return []


def _commands(log: LogCurve, path: object) -> list[str]:
    """The trace that would split the bend, by the server's own means."""
    sizes = _say_traced(log)
    if not sizes:
        return []
    running = f"# with {' and with '.join(sizes)} requests running"
    server, trace = log.server.get("server"), "TRACE.json.gz"
    if server == "llama.cpp":
        bench = f"llama-batched-bench -m MODEL -ntg 64 -npl {','.join(sizes)}"
        commands, trace = [f"curvescope record -o trace -- {bench}"], "trace"
    elif server == "TensorRT-LLM":
        settings = "TLLM_PROFILE_START_STOP=100-120 TLLM_TORCH_PROFILE_TRACE=trace.json"
        commands, trace = [f"{settings} trtllm-serve …   {running}"], "trace.json"
    else:
        host = f"http://localhost:{30000 if server == 'SGLang' else 8000}"
        commands = [
            f"curl -X POST {host}/start_profile   {running}",
            f"curl -X POST {host}/stop_profile",
        ]
    after = f"curvescope compare {path} AFTER.log   # after the change"
    return [*commands, f"curvescope explain {trace}", after]
