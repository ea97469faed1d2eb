"""Reads what benchmarks of inference servers save as tables of times: time per output token over
requests in flight.

One result is one point, the mean over all requests of one run; a curve needs several, in one file
or in several files. Formats, from the benchmarks' sources: `vllm bench serve` and
`vllm bench sweep` (vllm/benchmarks/serve.py and sweep/serve.py), SGLang's `bench_serving`, AIPerf's
profile_export_aiperf.json (aiperf/exporters/metrics_json_exporter.py), GuideLLM's benchmarks.json
(guidellm/benchmark/schemas/generative), `trtllm-bench --report_json`
(tensorrt_llm/bench/dataclasses/reporting.py). What the benchmarks of vLLM, SGLang and TensorRT-LLM
print is read, too, as often as a log or page holds it, and the table of SGLang's
`bench_one_batch_server` (python/sglang/bench_one_batch_server.py).

Requests of one run share its steps, so their spread says nothing of the error of their mean:
without several runs of a concurrency, the error is estimated from the curve. Names of models, hosts
and prompts are not copied: several models are numbered. So are the curves of results that do not
name their model, where two of one concurrency differ by more than a third.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ...base.errors import CurvescopeError
from ...base.harmless import is_choice
from ..recording.store import RecordingWriter, columns_of
from . import Options
from .csv_lines import lines_of, parse_number
from .source import Source

NAME = "benchmark of a server"

_MOST_BYTES = 1 << 28  # of a file; saved texts of all requests have 100 MB
_MOST_RESULTS = 100_000
_LONGEST_NAME = 200
_PER_OUTPUT = "time per output token"
_REPEATS = 1 / 3  # relative difference beyond which two results are not of one curve
_LENGTH_ALIKE = 0.2  # relative difference of mean prompt and output lengths within one curve
_NAN = re.compile(
    rb"(?<=[:\[,])\s*(?:NaN|-?Infinity)(?=\s*[,\]}])"
)  # Python writes it, JSON has none
_MOST_REQUESTS = 1 << 31
_MOST_MS = 1e9
# Words that all files of a kind have near their beginning.
_MARKS = (
    ('"request_throughput"', '"total_output_tokens"'),  # vLLM, SGLang
    ('"aiperf_version"',),
    ('"input_config"', '"inter_token_latency"'),  # AIPerf before it wrote its version
    ('"benchmarks"', '"request_concurrency"'),  # GuideLLM
    ('"benchmarks"', '"inter_token_latency_ms"'),
    ('"request_info"', '"avg_num_concurrent_requests"'),  # trtllm-bench
)
# What a printed result begins and ends with, and the names of its lines in a saved one.
_PRINTED = "= Serving Benchmark Result ="
_PRINTED_END = re.compile(r"={40,}")
# also before the result; SGLang wrote it so until June 2025
_LIMIT = re.compile(r"Max(?:imum)? (?:request|reqeuest) concurrency: *(\d{1,9})\b")
_PRINTED_LINE = re.compile(r"([A-Z][\w ()/]{2,50}?): +([\d.]{1,20})\s*$")
_SAVED_NAMES = {
    "Successful requests": "completed",
    "Request throughput (req/s)": "request_throughput",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Max reqeuest concurrency": "max_concurrency",
    "Concurrency": "concurrency",
    "Mean TTFT (ms)": "mean_ttft_ms",
    "Mean TPOT (ms)": "mean_tpot_ms",
    "Mean ITL (ms)": "mean_itl_ms",
    "Mean E2EL (ms)": "mean_e2el_ms",
    "Mean E2E Latency (ms)": "mean_e2e_latency_ms",
}
# What trtllm-bench prints; several results in one file each begin with the first of these lines.
_TRTLLM = "= PERFORMANCE OVERVIEW"
_TRTLLM_LINE = re.compile(r"([A-Z][\w ()/\[\]-]{2,60}?):\s+([\d.]{1,20})\s*$")
_TRTLLM_NAMES = {
    "Number of concurrent requests": "requests",
    "Average Input Length (tokens)": "prompts",
    "Average Output Length (tokens)": "outputs",
    "Request Throughput (req/sec)": "per_s",
    "Average request latency (ms)": "whole_ms",
    "Average time-to-first-token [TTFT] (ms)": "first_ms",
    "Average time-per-output-token [TPOT] (ms)": "token_ms",
}
_ONE_BATCH = re.compile(
    r"^\|\s*batch size\s*\|\s*input len\s*\|[^\n]{1,300}\|\s*output throughput", re.MULTILINE
)


@dataclass(frozen=True)
class Point:
    """One run of a benchmark."""

    tool: str
    requests: float | None  # in flight; None if the result does not tell
    token_ms: float | None  # time per output token after the first
    first_ms: float | None  # time to the first token
    lengths: tuple[float, float] | None = None  # mean tokens of prompts and of outputs
    settings: tuple[tuple[str, Any], ...] = ()  # what a sweep changed
    model: str | None = None  # name of the model; None if the result does not tell
    repeats: bool = False  # whether it says that it is one of several runs


def recognises(source: Source) -> bool:
    """Whether the file is the result of a benchmark, by the names in it."""
    has_marks = any(all(mark in source.text for mark in marks) for marks in _MARKS)
    if _is_json(source):
        return has_marks
    text = source.text
    return (
        _PRINTED in text
        or _TRTLLM in text
        or _ONE_BATCH.search(text) is not None
        or (has_marks and "\n{" in text)
    )


def _is_json(source: Source) -> bool:
    return source.text.startswith(("{", "["))


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Write each result as published times; CurvescopeError without one."""
    del options  # no option of a profile has a meaning for a table
    write_points(list(points_of(source)), writer)


def points_of(source: Source) -> Iterator[Point]:
    """The results of a file: a JSON object, a list of them, one a line, or printed ones."""
    if not _is_json(source):
        yield from map(_bench_serve, _read_printed(source))
        with source.open() as stream:
            yield from _further(lines_of(stream))
        return
    data = _NAN.sub(b" null", source.read_all(_MOST_BYTES)).lstrip(b"\xef\xbb\xbf").strip()
    try:
        objects = _objects(data)
    except msgspec.DecodeError as error:
        raise CurvescopeError(
            f"it is broken JSON ({error}); the file was cut off or edited, run the benchmark again."
        ) from error
    if len(objects) > _MOST_RESULTS:
        raise CurvescopeError(f"it has more than {_MOST_RESULTS:,} results, and no benchmark has.")
    for result in objects:
        yield from _of_result(result)


def _read_printed(source: Source) -> Iterator[dict[str, msgspec.Raw]]:
    """The printed results of a benchmark, by the names of a saved result."""
    limit: str | None = None  # of concurrency, which earlier versions print before the result
    result: dict[str, msgspec.Raw] | None = None
    with source.open() as stream:
        for line in lines_of(stream):
            if _PRINTED in line:
                if result:
                    yield result
                result = {} if limit is None else {"max_concurrency": msgspec.Raw(limit.encode())}
                limit = None
            elif result is None:
                match = _LIMIT.search(line)
                limit = match[1] if match else limit
            elif _PRINTED_END.search(line):
                yield result
                result = None
            elif printed := _PRINTED_LINE.search(line):
                name = _SAVED_NAMES.get(printed[1])
                if name is not None and parse_number(printed[2]) is not None:
                    result[name] = msgspec.Raw(printed[2].encode())
    if result:
        yield result


def _further(lines: Iterator[str]) -> Iterator[Point]:
    """Results of trtllm-bench and `bench_one_batch_server`, and saved ones between other lines."""
    head: list[str] = []
    result: dict[str, float] = {}
    for line in lines:
        if _ONE_BATCH.match(line):
            head = [cell.strip() for cell in line.strip("| ").split("|")]
        elif head and line.startswith("|"):
            cells = (parse_number(cell) for cell in line.strip("| ").split("|"))
            row = dict(zip(head, cells, strict=False))
            if row.get("batch size"):
                yield _one_batch(row)
        elif line.startswith("{") and '"request_throughput"' in line:
            try:
                yield from _of_result(_objects(_NAN.sub(b" null", line.encode()))[0])
            except msgspec.DecodeError:
                continue  # cut off
        elif (match := _TRTLLM_LINE.search(line)) and match[1] in _TRTLLM_NAMES:
            name = _TRTLLM_NAMES[match[1]]
            value = parse_number(match[2])
            if name in result:
                yield _trtllm_printed(result)
                result = {}
            if value:
                result[name] = value
    if result:
        yield _trtllm_printed(result)


def _one_batch(row: dict[str, float | None]) -> Point:
    """A row of `bench_one_batch_server`: all requests begin together and have one length."""
    requests = row.get("batch size")
    per_s = next((row[name] for name in row if name.startswith("output throughput")), None)
    length = row.get("input len")
    settings = () if length is None else (("input_len", round(length)),)
    token_ms = 1e3 * requests / per_s if requests and per_s else None
    return Point("SGLang, one batch", requests, token_ms, None, None, settings)


def _trtllm_printed(result: dict[str, float]) -> Point:
    per_s = result.get("per_s")
    whole_ms = result.get("whole_ms")
    in_flight = per_s * whole_ms / 1e3 if per_s and whole_ms else None
    prompts = result.get("prompts")
    outputs = result.get("outputs")
    return Point(
        "TensorRT-LLM",
        result.get("requests") or in_flight,
        result.get("token_ms"),
        result.get("first_ms"),
        (prompts, outputs) if prompts and outputs else None,
    )


def _objects(data: bytes) -> list[dict[str, msgspec.Raw]]:
    if data.startswith(b"["):
        return msgspec.json.decode(data, type=list[dict[str, msgspec.Raw]])
    try:
        return [msgspec.json.decode(data, type=dict[str, msgspec.Raw])]
    except msgspec.DecodeError:
        if b"\n" not in data:
            raise
    return msgspec.json.Decoder(dict[str, msgspec.Raw]).decode_lines(data)


def _of_result(result: dict[str, msgspec.Raw]) -> Iterator[Point]:
    if "benchmarks" in result:
        yield from _guidellm(_value(result, "benchmarks"))
    elif "request_info" in result and "performance" in result:
        yield _trtllm(result)
    elif "input_config" in result or "aiperf_version" in result:
        yield _aiperf(result)
    elif "request_throughput" in result:
        yield _bench_serve(result)


def _value(result: dict[str, msgspec.Raw], name: str) -> Any:
    if name in result:
        return msgspec.json.decode(result[name])
    return None


def _number(value: Any) -> float | None:
    """A number above 0; None for anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if usable else None


def _at(value: Any, *names: str) -> Any:
    """What lies under these names, one in the other; None if something is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _bench_serve(result: dict[str, msgspec.Raw]) -> Point:
    """A result of vLLM or SGLang; what follows `run_number` is what `vllm bench sweep` changed."""

    def number(name: str) -> float | None:
        return _number(_value(result, name))

    names = list(result)
    changed = names[names.index("run_number") + 1 :] if "run_number" in names else []
    runs = number("completed")
    per_s = number("request_throughput")
    prompts = number("total_input_tokens")
    outputs = number("total_output_tokens")
    first_ms = number("mean_ttft_ms")
    token_ms = number("mean_tpot_ms")
    whole_ms = number("mean_e2el_ms") or number("mean_e2e_latency_ms")
    if whole_ms is None and first_ms and token_ms and runs and outputs:
        whole_ms = first_ms + token_ms * max(outputs / runs - 1, 0)
    in_flight = per_s * whole_ms / 1e3 if per_s and whole_ms else None  # Little's law
    settings = [(name, _value(result, name)) for name in changed if name != "max_concurrency"]
    server = "server"
    model: str | None = None
    if "model_id" in result:
        server = "vLLM"
        model = str(_value(result, "model_id"))
    elif "mean_e2e_latency_ms" in result:
        server = "SGLang"
    tokens = None
    if runs and prompts and outputs:
        tokens = prompts / runs, outputs / runs
    return Point(
        server,
        number("max_concurrency") or number("concurrency") or in_flight,
        token_ms or number("mean_itl_ms"),
        first_ms,
        tokens,
        tuple(settings),
        model,
        "run_number" in result,
    )


def _aiperf(result: dict[str, msgspec.Raw]) -> Point:
    def mean(name: str, unit_ms: bool = True) -> float | None:
        metric = _value(result, name)
        scale = {"ms": 1.0, "sec": 1e3, "s": 1e3, "us": 1e-3, "ns": 1e-6}
        value = _number(_at(metric, "avg"))
        factor = scale.get(str(_at(metric, "unit")), 1.0) if unit_ms else 1.0
        return None if value is None else value * factor

    prompts = mean("input_sequence_length", False)
    outputs = mean("output_sequence_length", False)
    per_s = mean("request_throughput", False)
    whole_ms = mean("request_latency")
    in_flight = per_s * whole_ms / 1e3 if per_s and whole_ms else None
    return Point(
        "AIPerf",
        _concurrency(_value(result, "input_config")) or in_flight,
        mean("inter_token_latency"),
        mean("time_to_first_token"),
        (prompts, outputs) if prompts and outputs else None,
        model=_model(_value(result, "input_config")),
    )


def _model(config: Any) -> str | None:
    """The model that a configuration of AIPerf asks for."""
    names = _at(config, "endpoint", "model_names")
    if isinstance(names, list):
        return " ".join(map(str, names))
    return None


def _concurrency(config: Any) -> float | None:
    """The requests in flight that a configuration asks for, at whatever depth its version writes
    them.
    """
    if isinstance(config, dict):
        own = _number(config.get("concurrency"))
        return own or next(filter(None, map(_concurrency, config.values())), None)
    if isinstance(config, list):  # phases: the last one is measured, the ones before warm up
        return next(filter(None, map(_concurrency, reversed(config))), None)
    return None


def _guidellm(benchmarks: Any) -> Iterator[Point]:
    for benchmark in benchmarks if isinstance(benchmarks, list) else ():
        metrics = _at(benchmark, "metrics")

        def mean(name: str, metrics: Any = metrics) -> float | None:
            return _number(_at(metrics, name, "successful", "mean"))

        strategy = _at(benchmark, "config", "strategy") or _at(benchmark, "args", "strategy")
        asked = None
        if _at(strategy, "type_") == "concurrent":
            streams = _number(_at(strategy, "streams"))
            asked = streams or _number(_at(strategy, "max_concurrency"))
        prompts = mean("prompt_token_count")
        outputs = mean("output_token_count")
        yield Point(
            "GuideLLM",
            asked or mean("request_concurrency"),
            mean("inter_token_latency_ms"),
            mean("time_to_first_token_ms"),
            (prompts, outputs) if prompts and outputs else None,
        )


def _trtllm(result: dict[str, msgspec.Raw]) -> Point:
    """A report of trtllm-bench; only one with `--streaming` tells the times of tokens."""
    requests = _value(result, "request_info")
    streaming = _value(result, "streaming_metrics")
    prompts, outputs = (
        _number(_at(requests, f"avg_{name}_length")) for name in ("input", "output")
    )
    return Point(
        "TensorRT-LLM",
        _number(_at(requests, "avg_num_concurrent_requests")),
        _number(_at(streaming, "avg_tpot_ms")),
        _number(_at(streaming, "avg_ttft_ms")),
        (prompts, outputs) if prompts and outputs else None,
    )


def write_points(points: Sequence[Point], writer: RecordingWriter) -> None:
    """Write the times of some results as a table."""
    names = _Names(points)
    by_name: dict[str, list[_Placed]] = {}
    for point in points:
        requests = round(point.requests or 0)
        times = {_PER_OUTPUT: point.token_ms, "time to first token": point.first_ms}
        times_ms = {what: ms for what, ms in times.items() if ms is not None and ms < _MOST_MS}
        if 0 < requests < _MOST_REQUESTS and times_ms:
            placed = _Placed(requests, times_ms, point.repeats)
            by_name.setdefault(names.of(point), []).append(placed)
    rows: list[dict[str, Any]] = []
    repeats: Counter[tuple[str, int]] = Counter()
    for name, of_name in by_name.items():
        for number, placed in zip(_number_curves(of_name), of_name, strict=True):
            curve = name if number == 1 else f"{name}, curve {number}"
            requests = placed.requests
            for what, ms in placed.times_ms.items():
                rows.append(
                    {
                        "step": len(rows), "round": repeats[curve, requests], "index": 0,
                        "problem": f"{what}, {curve}"[:_LONGEST_NAME], "batch": requests,
                        "mode": "published", "profiled": False,
                        "duration_ns": max(1, round(1e6 * ms)),
                    }
                )  # fmt: skip
            repeats[curve, requests] += 1
    if not rows:
        raise CurvescopeError(
            "it has no result with both the requests in flight and a time per token: run the "
            "benchmark with a fixed concurrency, streaming (`vllm bench serve --max-concurrency "
            "16`, `trtllm-bench throughput --streaming`)."
        )
    writer.count_lost("rows_unreadable", len(points) - sum(map(len, by_name.values())))
    writer.write("steps", columns_of(rows))
    batches = sorted({row["batch"] for row in rows})
    writer.update(recording_type="table", noise=None, batches=batches)


class _Placed(NamedTuple):
    """A point of a curve."""

    requests: int
    times_ms: dict[str, float]  # by what was timed
    repeats: bool  # whether it says that it is one of several runs


def _number_curves(points: Sequence[_Placed]) -> list[int]:
    """The number of the curve of each point of one name.

    Where two times at one concurrency differ by more than a third, no points are repeats: each
    concurrency has a point of each curve, in one order; or a curve ends where the concurrency
    rises no more.
    """
    if all(_are_repeats(points, requests) for requests in {point.requests for point in points}):
        return [1] * len(points)
    counts: Counter[int] = Counter()
    numbers, restarts, before = [], [0], 0
    for point in points:
        counts[point.requests] += 1
        numbers.append(counts[point.requests])
        restarts.append(restarts[-1] + (point.requests <= before or len(restarts) == 1))
        before = point.requests
    if len(set(counts.values())) == 1:
        return numbers
    return restarts[1:]


def _are_repeats(points: Sequence[_Placed], requests: int) -> bool:
    """Whether the points of a concurrency say that they are runs of one, or have times per token
    that are alike.
    """
    there = [point for point in points if point.requests == requests]
    times_ms = [point.times_ms.get(_PER_OUTPUT, 0.0) for point in there]
    if all(point.repeats for point in there) or 0 in times_ms:
        return True
    return max(times_ms) <= (1 + _REPEATS) * min(times_ms)


class _Names:
    """Names of curves: the tool, the model's number, the lengths of prompts and outputs, and what a
    sweep changed.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        """Take all points, which tell whether there are several models."""
        self._models = list(dict.fromkeys(point.model for point in points))
        self._lengths: list[tuple[float, float]] = []  # of the first run of each curve
        self._texts: dict[str, list[Any]] = {}  # values of a setting that are not copied

    def of(self, point: Point) -> str:
        """The name of the curve on which a point lies."""
        parts = [point.tool, *(self._show_setting(*setting) for setting in point.settings)]
        if len(self._models) > 1:
            parts.insert(1, f"model {self._models.index(point.model) + 1}")
        if point.lengths:
            prompts, outputs = self._alike(point.lengths)
            parts.append(f"prompts of about {prompts:,.0f} and outputs of {outputs:,.0f} tokens")
        return ", ".join(parts)

    def _alike(self, lengths: tuple[float, float]) -> tuple[float, float]:
        for of_curve in self._lengths:
            pairs = zip(of_curve, lengths, strict=True)
            if all(abs(length - other) <= _LENGTH_ALIKE * length for length, other in pairs):
                return of_curve
        self._lengths.append(lengths)
        return lengths

    def _show_setting(self, name: str, value: Any) -> str:
        shown = re.sub(r"[^\w.-]", "", name)[:40]
        if value is None or isinstance(value, bool | int | float) or is_choice(str(value)):
            return f"{shown}={str(value)[:40]}"
        texts = self._texts.setdefault(name, [])
        if value not in texts:
            texts.append(value)
        return f"{shown}: value {texts.index(value) + 1}"
