"""Reads the log of an inference server as steps, with the facts that it tells of itself.

vLLM prints the time of every step with `--enable-logging-iteration-details`. Without it, and in
SGLang, a line has the tokens per second since the line before it. Then the time of a step is the
running requests times the tokens of each over this rate, and a line counts only if the number of
requests hardly changed since the one before. llama.cpp's server prints the rate of each running
request every three seconds, or the time of its tokens when it ends; it counts if the number of
running requests hardly changed meanwhile. What lines look like is data: `server_logs.toml`.

Nothing but numbers and versions is copied: a log names models, hosts, users and prompts.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ...base.budget import Budget
from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.limits import SERVER_STEPS, check_limit
from ..attribution.served_steps import DECODE, MIXED, PREFILL
from ..recording.store import RecordingWriter, columns_of
from . import Options
from .csv_lines import lines_of, parse_number
from .server_slots import Slots, Together, margin
from .source import Source

NAME = "server log"
TYPE = "server log"  # `recording_type` of a recording of one

_FORMATS = Path(__file__).with_name("server_logs.toml")
_LONGEST_LINE = 65_536  # characters that are searched
_SHORT_LINE = 300  # characters of a line that holds no two
_MOST_VALUES = 4_096  # of a list of sizes
_MOST_REQUESTS = (1 << 31) - 1
_MOST_TOKENS = 1 << 40
_MOST_MS = 1e9
_BATCH_ROWS = 50_000
_STEPS_PER_LINE = 40  # SGLang's default of --decode-log-interval
# facts that a server tells before its first step; another value after it is that of another start
_OF_GRAPHS = ("captured_sizes", "largest_captured", "graph_mode", "most_requests", "eager")
_OF_SLOTS = ("launch", "release", "progress", "timing", "eval")
_PROGRESS_S = 3.0  # that the rate of a running request is of
_LEAST_TOKENS = 8  # of a request whose mean time per token counts
# of a data-parallel server
_ENGINE = re.compile(r"(?:DP|Engine |global_rank = |attentionDpRank\W{2,3})(\d{1,5})\b")
# What wrote a line, where a log has lines of several: a process, as Python's servers, Ray,
# journald and llama.cpp's router print it, a container of Docker or a pod of Kubernetes.
_WRITER = re.compile(
    r"\bpid=\d{1,9}(?:, ip=[\d.]{1,40})?|\b[\w.-]{1,60}\[\d{1,9}\](?=: )"
    r"|^(?:\x1b\[[\d;]{1,10}m)?(?:[\w.-]{1,80}(?= {1,40}\| )|\[[\w./-]{1,200}\](?= ))"
)
# where several lines were pasted as one
_BEGIN = re.compile(
    r"(?=\(\w{1,40} pid=\d{1,9}\) INFO )|(?<!\) )(?=INFO \d\d-\d\d \d\d:)"
    r"|(?=\[\d{4}-\d\d-\d\d \d\d:)"
)
_FULL_PERCENT = 95.0  # of the KV cache, from which on it leaves no place for a further request
_NO_TIMES = {
    "vLLM": "start the server with `--enable-logging-iteration-details`, which prints the time of "
    "each step (0.14 on)",
    "TensorRT-LLM": "serve requests with `print_iter_log: true`",
    "llama.cpp": "serve a load with a fixed number of requests for some minutes, of 100 tokens or "
    "more each, and keep all lines",
    "SGLang": "the time of a line counts from the one before it of the same rank; "
    "`--decode-log-interval 10` prints more lines, and a longer load has more",
}


@dataclass(frozen=True)
class _Line:
    """One kind of line, see `server_logs.toml`."""

    server: str
    kind: str  # step, rate, prefill, or those of slots
    word: str
    pattern: re.Pattern[str] | None
    fields: Mapping[str, re.Pattern[str]]

    def values(self, line: str) -> dict[str, str] | None:
        """The numbers of a line by name; None if it is none of these lines."""
        if self.word not in line:
            return None
        if self.pattern is not None:
            fitting = self.pattern.search(line)
            if fitting is None:
                return None
            return {k: v for k, v in fitting.groupdict().items() if v}
        matches = {name: pattern.search(line) for name, pattern in self.fields.items()}
        return {name: match[1] for name, match in matches.items() if match is not None}


@dataclass(frozen=True)
class _Fact:
    """One fact that a server prints, see `server_logs.toml`."""

    server: str
    name: str
    type: str
    pattern: re.Pattern[str]


@cache
def _formats() -> tuple[tuple[_Line, ...], tuple[_Fact, ...]]:
    table = tomllib.loads(_FORMATS.read_text(encoding="utf-8"))
    lines = []
    for entry in table["line"]:
        pattern = _compile(entry["pattern"]) if "pattern" in entry else None
        fields = {name: _field(names) for name, names in entry.get("fields", {}).items()}
        lines.append(_Line(entry["server"], entry["kind"], entry["word"], pattern, fields))
    facts = []
    for entry in table["fact"]:
        pattern = _compile(entry["pattern"])
        facts.append(_Fact(entry["server"], entry["name"], entry["type"], pattern))
    return tuple(lines), tuple(facts)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("\n", ""))


def _field(names: list[str]) -> re.Pattern[str]:
    either = "|".join(map(re.escape, names))
    return re.compile(rf"(?<![\w#])(?:{either})(?:['\"]?:| =) ?(\d[\d.]{{0,20}}|True|False)")


def recognises(source: Source) -> bool:
    """Whether the file begins as the log of a server."""
    lines, _ = _formats()
    text = source.text
    if source.head.startswith(codecs.BOM_UTF16_LE):  # as PowerShell writes what it redirects
        text = source.head.decode("utf-16-le", errors="replace")
    present = [line for line in lines if line.word in text]
    return any(_begins(line, text) for line in present)


def _begins(line: _Line, text: str) -> bool:
    """Whether the first lines with the word, of which other files may have some, are of
    this kind.
    """
    at = -1
    for _ in range(10):
        at = text.find(line.word, at + 1)
        if at < 0:
            return False
        start = text.rfind("\n", max(0, at - 2000), at) + 1 or max(0, at - 2000)
        if line.values(text[start : at + 2000].split("\n", 1)[0]):
            return True
    return False


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Write the steps of the log, and the facts on its server as the entry `server`."""
    del options  # no option of a profile has a meaning for a log
    log = _Log(writer, source.budget)
    with source.open() as stream:
        for line in lines_of(stream):
            # Quotes of a line that stands in a JSON document, as docker keeps it.
            text = line[:_LONGEST_LINE].replace('\\"', '"')
            for part in _BEGIN.split(text) if len(text) > _SHORT_LINE else (text,):
                log.take(part)
    log.finish()


@dataclass
class _Engine:
    """The lines read of one engine of one server since its last rate."""

    requests: int | None = None  # running requests of its last line; None before the first
    prefill_tokens: int = 0  # prompt tokens computed since


@dataclass
class _Last:
    """A rate whose accepted drafts the next line may tell."""

    row: dict[str, Any]
    requests: float
    prefill: float  # prompt tokens in one step

    def accept(self, each: float) -> None:
        """Its steps made so many tokens for each request."""
        row = self.row
        row["duration_ns"] = max(1, round(row["duration_ns"] * each))
        row["tokens"] = round(self.requests + self.prefill * each)
        if steps := row.get("averaged_steps"):
            row["averaged_steps"] = max(1, round(steps / each))


@dataclass
class _Cache:
    """How often requests waited because the KV cache was full."""

    lines: int = 0  # with running requests
    full: int = 0  # of these, with requests that waited while it was full

    def take(self, values: Mapping[str, str], requests: int | None) -> None:
        """Count a line that tells both."""
        percent = _number(values.get("cache_percent"))
        waiting = _whole(values.get("waiting"))
        if percent is None and (share := _number(values.get("cache_share"))) is not None:
            percent = 100 * share
        if requests and percent is not None and waiting is not None:
            self.lines += 1
            self.full += waiting > 0 and percent >= _FULL_PERCENT


@dataclass
class _Log:
    writer: RecordingWriter
    budget: Budget
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"step": [], "rate": []})
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by server, then by name
    # by what wrote the line and the number that it gives an engine
    engines: dict[tuple[str, str], _Engine] = field(default_factory=dict)
    stepping: set[tuple[str, str]] = field(default_factory=set)  # that told times of steps
    slots: dict[str, Slots] = field(default_factory=dict)  # by what wrote the line
    last: _Last | None = None
    cache: _Cache = field(default_factory=_Cache)
    drafts: bool = False  # whether a line tells of drafted tokens
    accepted: int = 0  # rates whose accepted drafts are known
    seen: Counter[str] = field(default_factory=Counter)  # lines by server
    changed: set[str] = field(default_factory=set)  # facts that changed after the first step
    changing: int = 0  # rates in whose time the requests changed
    idle: int = 0  # rates without a running request
    preempted: int = 0  # requests that were thrown out of the cache, as rates tell
    graphed: list[tuple[int, bool]] = field(default_factory=list)  # requests, and if a graph ran
    timed: bool = False  # whether lines tell the times of single steps
    written: int = 0

    def take(self, line: str) -> None:
        lines, facts = _formats()
        for kind in lines:
            values = kind.values(line)
            if values is None:
                continue
            self.seen[kind.server] += 1
            writer = match[0] if (match := _WRITER.search(line)) else ""
            named = _ENGINE.search(line)
            key = (writer, named[1].lstrip("0") if named else "")
            if kind.kind == "step":
                self.stepping.add(key)
                self._step(values)
            elif kind.kind in _OF_SLOTS:
                self._slot(kind, values, line, self.slots.setdefault(writer, Slots(self.budget)))
            elif kind.kind == "accepted":
                self._accept(values)
            elif not self.timed:
                self._rate(kind, values, self.engines.setdefault(key, _Engine()))
            return
        for fact in facts:
            if (match := fact.pattern.search(line)) is not None:
                of_server = self.facts.setdefault(fact.server, {})
                before = of_server.get(fact.name)
                _note(of_server, fact, match)
                if fact.type == "identity" and before not in (None, of_server[fact.name]):
                    self.changed.add(fact.name)
                has_steps = self.written or any(self.rows.values())
                if fact.name in _OF_GRAPHS and has_steps and before != of_server.get(fact.name):
                    self.changed.add(fact.name)

    def _step(self, values: dict[str, str]) -> None:
        """A line that tells the time of one step."""
        self.timed = True
        if "dummy" in values:  # of an engine that waits for others
            return
        ms = _number(values.get("ms"))
        seconds = _number(values.get("seconds"))
        names = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
        prompts, prompt_tokens, decodes, tokens = (_whole(values.get(name)) or 0 for name in names)
        tokens = tokens or decodes
        if "scheduled_requests" in values:
            decodes = tokens = max((_whole(values["scheduled_requests"]) or 0) - prompts, 0)
        if prompts and decodes:
            mode = MIXED
        elif prompts:
            mode = PREFILL
        else:
            mode = DECODE
        row = {"mode": mode, "batch": prompts + decodes, "tokens": prompt_tokens + tokens}
        if context := _whole(values.get("context_tokens"), _MOST_TOKENS):
            row["context_tokens"] = context
        self._add("step", row, ms if seconds is None else 1e3 * seconds, values)

    def _accept(self, values: dict[str, str]) -> None:
        """A line that tells how many drafted tokens the steps of the last rate accepted."""
        self.drafts = True
        if self.last is None:
            return
        each = _number(values.get("tokens_per_request"))
        tokens = self.last.row.get("averaged_steps")
        accepted = _whole(values.get("accepted"))
        if each is None and tokens and accepted is not None and accepted < tokens:
            each = tokens / (tokens - accepted)
        if each is not None and each >= 1:
            self.last.accept(each)
            self.accepted += 1
        self.last = None

    def _slot(self, kind: _Line, values: dict[str, str], line: str, slots: Slots) -> None:
        """A line of a server that tells the time of a request when it ends."""
        slots.tell_time(line)
        if kind.kind == "launch":
            slots.launch(values["slot"])
        elif kind.kind == "release":
            slots.release(values["slot"])
        elif kind.kind == "progress":
            rate = _number(values["tokens_per_s"])
            together = slots.progress(values["slot"])
            if together is not None and rate:
                self._slot_steps(together, 1e3 / rate, round(_PROGRESS_S * rate))
            return
        elif kind.kind == "timing":
            slots.ended = values["slot"]
            self.last = None
        ms = _number(values.get("ms"))
        tokens = _whole(values.get("tokens"))
        if ms is None or not tokens:
            return
        slots.tell_duration(ms)
        together = slots.while_running()
        if together is not None and not together.is_told:
            row = self._slot_steps(together, ms / tokens, tokens)
            self.last = None if row is None else _Last(row, row["batch"], 0.0)

    def _slot_steps(self, together: Together, ms: float, tokens: int) -> dict[str, Any] | None:
        """The steps in which a request got so many tokens; None if they do not count."""
        if tokens < _LEAST_TOKENS:
            return None
        requests = together.steady()
        if requests is None:
            self.changing += 1
            return None
        row = {"mode": DECODE, "batch": requests, "tokens": requests, "averaged_steps": tokens}
        if self._add("rate", row, ms, {}):
            return row
        return None

    def _rate(self, kind: _Line, values: dict[str, str], engine: _Engine) -> None:
        """A line that tells the tokens per second since the one before it."""
        if kind.kind == "prefill":
            engine.prefill_tokens += _whole(values.get("prefill_tokens")) or 0
            return
        requests = _whole(values.get("requests"))
        before = engine.requests
        prefill_tokens = engine.prefill_tokens
        engine.prefill_tokens = 0
        engine.requests = requests
        rate = _number(values.get("tokens_per_s"))
        self.last = None
        self.preempted += _whole(values.get("preemptions")) or 0
        self.cache.take(values, requests)
        self.idle += requests == 0
        if requests and "graph" in values:
            self.graphed.append((requests, values["graph"] == "True"))
        if not requests or not before or not rate:
            return  # the first of a burst: its time holds the pause before it
        if abs(requests - before) > margin(before):
            self.changing += 1
            return
        each = _number(values.get("tokens_per_request"))
        self.drafts |= each is not None
        self.accepted += each is not None
        each = each or 1.0
        mean = (requests + before) / 2
        ms = 1e3 * mean * each / rate
        prefill_per_s = _number(values.get("prefill_tokens_per_s"))
        if prefill_per_s is None:
            prefill = prefill_tokens / self._steps_per_line(kind.server)
        else:
            prefill = prefill_per_s * ms / 1e3
        row = {"mode": DECODE, "batch": requests, "tokens": round(mean + prefill)}
        if kind.server == "SGLang":
            row["averaged_steps"] = self._steps_per_line(kind.server)
        context = _whole(values.get("context_tokens"), _MOST_TOKENS)
        if context:
            row["context_tokens"] = context
        if "graph" in values:
            row["graph"] = values["graph"] == "True"
        if self._add("rate", row, ms, values):
            self.last = _Last(row, mean, prefill)

    def _steps_per_line(self, server: str) -> int:
        return int(self.facts.get(server, {}).get("steps_per_line") or _STEPS_PER_LINE)

    def _add(
        self, kind: str, row: dict[str, Any], ms: float | None, values: dict[str, str]
    ) -> bool:
        if ms is None or not 0 < ms <= _MOST_MS or not 0 < row["batch"] <= _MOST_REQUESTS:
            self.writer.count_lost("rows_unreadable", int(row["batch"] != 0))
            return False
        percent = _number(values.get("cache_percent"))
        if percent is not None and percent <= 100:
            row["cache_percent"] = percent
        row["duration_ns"] = max(1, round(1e6 * ms))
        self.rows[kind].append(row)
        if kind == "step" and len(self.rows["step"]) >= _BATCH_ROWS:
            self._write(self.rows["step"])
            self.rows["step"] = []
        check_limit(self.written + len(self.rows[kind]), SERVER_STEPS, "steps")
        return True

    def finish(self) -> None:
        server = self.seen.most_common(1)[0][0] if self.seen else "vLLM"
        rows = self.rows["step" if self.timed else "rate"]
        if not rows and not self.written:
            lines = f"; in the time of {counted(self.changing, 'line')} the requests changed"
            idle = f"; {counted(self.idle, 'line')} had no running request"
            raise CurvescopeError(
                f"it is a log of {server} that tells no time of a step: {_NO_TIMES[server]}"
                f"{lines if self.changing else ''}{idle if self.idle else ''}."
            )
        facts = self.facts.get(server, {})
        rows, apart = _of_graphs(rows)
        if apart:
            self.writer.count_lost("rates_without_graph", apart["lines_before_graphs"])
            facts |= apart
        self._write(rows)
        facts.pop("model", None)  # a name of the user's
        if facts.get("largest_captured") == 0:  # what vLLM says where graphs are turned off
            del facts["largest_captured"]
            facts["eager"] = True
        if not self.timed:
            self.writer.count_lost("rates_of_changing_load", self.changing)
            if self.changing:
                facts["lines_of_changing_load"] = self.changing
            if self.graphed:
                facts |= _graph_facts(self.graphed)
            if self.drafts or facts.get("speculative_tokens"):
                facts["drafts"] = True
                facts["lines_without_accepted"] = max(len(rows) - self.accepted, 0)
            if self.cache.lines:
                facts["lines_running"] = self.cache.lines
                facts["lines_waiting_for_cache"] = self.cache.full
            if self.preempted:
                facts["preemptions"] = self.preempted
        if self.changed:
            facts["changed"] = sorted(self.changed)
        facts |= {
            "server": server,
            "engines": max(len(self.stepping if self.timed else self.engines), 1),
            "lines": "steps" if self.timed else "rates",
        }
        self.writer.update(recording_type=TYPE, server=facts, steps_from="the lines of the log")

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """Write rows as steps; what counts as context follows from the use of the cache, if its
        size is known.
        """
        cache_tokens = self.facts.get("vLLM", {}).get("cache_tokens")
        for begin in range(0, len(rows), _BATCH_ROWS):
            part = []
            for position, row in enumerate(rows[begin : begin + _BATCH_ROWS], self.written):
                percent = row.pop("cache_percent", None)
                if cache_tokens and percent is not None and "context_tokens" not in row:
                    row["context_tokens"] = max(round(cache_tokens * percent / 100), row["batch"])
                place = {"step": position, "round": 0, "index": position, "profiled": False}
                part.append({**place, **row})
            self.written += len(part)
            if part:
                self.writer.write("steps", _with_all_columns(part))


def _with_all_columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    import pyarrow as pa  # late: the module is imported to recognise any file

    from ..recording.schema import TABLES

    columns = columns_of(rows)
    types = TABLES["steps"].arrow
    return {name: pa.array(values, types.field(name).type) for name, values in columns.items()}


def _of_graphs(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a server that ran the same numbers of requests with and without a graph, as
    before and after it was turned on, without the latter, and how much longer those took.
    """
    flags = [row.pop("graph", None) for row in rows]
    times: dict[bool, dict[int, list[int]]] = {True: {}, False: {}}
    for row, flag in zip(rows, flags, strict=True):
        if flag is not None:
            times[flag].setdefault(row["batch"], []).append(row["duration_ns"])
    with_graph = times[True]
    ratios = []
    for size, ns in times[False].items():
        if size in with_graph:
            ratios.append(median(ns) / median(with_graph[size]))
    if not ratios:
        return rows, {}
    largest = max(with_graph)
    kept = []
    for row, flag in zip(rows, flags, strict=True):
        if flag is not False or row["batch"] > largest:
            kept.append(row)
    apart = {"lines_before_graphs": len(rows) - len(kept), "time_before_graphs": median(ratios)}
    return kept, apart


def _graph_facts(lines: list[tuple[int, bool]]) -> dict[str, Any]:
    """Sizes with and without a graph, by what all lines say."""
    with_graph = [requests for requests, graphed in lines if graphed]
    without = [requests for requests, graphed in lines if not graphed]
    return {
        "largest_with_graph": max(with_graph, default=None),
        "smallest_without_graph": min(without, default=None),
        "lines_without_graph": len(without),
    }


def _note(facts: dict[str, Any], fact: _Fact, match: re.Match[str]) -> None:
    if fact.type == "count":
        facts[fact.name] = facts.get(fact.name, 0) + 1
    elif fact.type == "flag":
        facts[fact.name] = match[1] == "True"
    elif fact.type == "each":
        sizes = {*facts.get(fact.name, ()), *_sizes(match[1])}
        facts[fact.name] = sorted(sizes)[:_MOST_VALUES]
    elif fact.type in ("text", "identity"):
        facts[fact.name] = match[1]
    elif fact.type == "integer":
        if (number := _whole(match[1].replace(",", ""), _MOST_TOKENS)) is not None:
            facts[fact.name] = number
    else:
        facts[fact.name] = sorted(set(_sizes(match[1])))[:_MOST_VALUES]


def _sizes(text: str) -> Iterator[int]:
    for part in text.split(","):
        if (size := _whole(part.strip())) is not None and size > 0:
            yield size


def _whole(text: str | None, most: int = _MOST_REQUESTS) -> int | None:
    """A whole number from 0 to a limit; None for anything else."""
    if text is None or not text.isdecimal() or len(text) > 15 or int(text) > most:
        return None
    return int(text)


def _number(text: str | None) -> float | None:
    return None if text is None else parse_number(text)
