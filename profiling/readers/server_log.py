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
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.limits import SERVER_STEPS, check_limit
from ..attribution.served_steps import DECODE, MIXED, PREFILL
from ..recording.store import RecordingWriter, columns_of
from . import Options
from .csv_lines import lines_of, parse_number
from .source import Source

NAME = "server log"
TYPE = "server log"  # `recording_type` of a recording of one

_FORMATS = Path(__file__).with_name("server_logs.toml")
_LONGEST_LINE = 65_536  # characters that are searched
_MOST_VALUES = 4_096  # of a list of sizes
_MOST_REQUESTS = (1 << 31) - 1
_MOST_TOKENS = 1 << 40
_MOST_MS = 1e9
_BATCH_ROWS = 50_000
_STEADY = 0.05  # relative change of the requests between two lines, above which a rate is left out
_STEADY_SHARE = 0.9  # of the time of a request in which the load was as steady
_STEPS_PER_LINE = 40  # SGLang's default of --decode-log-interval
# facts that a server tells before its first step; another value after it is that of another start
_OF_GRAPHS = ("captured_sizes", "largest_captured", "graph_mode", "most_requests", "eager")
_OF_SLOTS = ("launch", "release", "progress", "timing", "eval")
_PROGRESS_S = 3.0  # that the rate of a running request is of
_LEAST_TOKENS = 8  # of a request whose mean time per token counts
# minutes, seconds, ms and µs since a server's start
_CLOCK = re.compile(r"\b(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3})(?= [A-Z] )")
# of a data-parallel server
_ENGINE = re.compile(r"(?:DP|Engine |global_rank = |attentionDpRank\W{2,3})(\d{1,5})\b")
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
            return None if fitting is None else {k: v for k, v in fitting.groupdict().items() if v}
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
        pattern = re.compile(entry["pattern"].replace("\n", "")) if "pattern" in entry else None
        fields = {name: _field(names) for name, names in entry.get("fields", {}).items()}
        lines.append(_Line(entry["server"], entry["kind"], entry["word"], pattern, fields))
    facts = (
        _Fact(
            entry["server"],
            entry["name"],
            entry["type"],
            re.compile(entry["pattern"].replace("\n", "")),
        )
        for entry in table["fact"]
    )
    return tuple(lines), tuple(facts)


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
    """Write the steps of the log, and what it says of its server as the entry `server`."""
    del options  # no option of a profile has a meaning for a log
    log = _Log(writer)
    with source.open() as stream:
        for line in lines_of(stream):
            # Quotes of a line that stands in a JSON document, as docker keeps it.
            log.take(line[:_LONGEST_LINE].replace('\\"', '"'))
    log.finish()


@dataclass
class _Engine:
    """What was read of one engine of a data-parallel server since its last rate."""

    requests: int | None = None  # running requests of its last line; None before the first
    prefill_tokens: int = 0  # prompt tokens computed since
    step: int = 0


@dataclass
class _Together:
    """How many requests ran while one request did, itself included."""

    least: int
    most: int
    us: Counter[int] = field(default_factory=Counter)  # by their number, if lines tell the time
    is_told: bool = False  # whether lines told its rate while it ran

    def take(self, requests: int, us: int) -> None:
        """Note that so many ran for a time that has passed."""
        self.us[requests] += us

    def count(self, requests: int) -> None:
        """Note that so many run from now on."""
        self.least, self.most = min(self.least, requests), max(self.most, requests)

    def steady(self) -> int | None:
        """The number that the request ran with; None if it changed too much. A place that is free
        for an instant between two requests weighs as much as that instant.
        """
        total_us = sum(self.us.values())
        if not total_us:
            return self.most if self.most - self.least <= _margin(self.most) else None
        mean = round(sum(requests * us for requests, us in self.us.items()) / total_us)
        near = (us for requests, us in self.us.items() if abs(requests - mean) <= _margin(mean))
        return mean if sum(near) >= _STEADY_SHARE * total_us else None


def _margin(requests: int) -> float:
    """By how much the requests may change for a time to count as one of a steady load."""
    return max(1, _STEADY * requests)


@dataclass
class _Slots:
    """The running requests of a server that prints when each begins and ends."""

    running: dict[str, _Together] = field(default_factory=dict)  # by slot
    # what ran beside each request since its rate was printed last
    since: dict[str, _Together] = field(default_factory=dict)
    last: dict[str, _Together] = field(default_factory=dict)  # of requests that have ended
    ended: str = ""  # slot of the request whose times are printed
    now_us: int | None = None  # of the last line that told the time

    def tell_time(self, line: str) -> None:
        """Let the requests that run have run until the time of a line, if it tells one."""
        if (match := _CLOCK.search(line)) is None:
            return
        minutes, seconds, ms, us = map(int, match.groups())
        now_us = ((minutes * 60 + seconds) * 1000 + ms) * 1000 + us
        if self.now_us is not None:
            for together in (*self.running.values(), *self.since.values()):
                together.take(len(self.running), max(0, now_us - self.now_us))
        self.now_us = now_us

    def launch(self, slot: str) -> None:
        """A request begins."""
        self.running.pop(slot, None)  # one whose end was not printed
        requests = len(self.running) + 1
        self.running[slot] = _Together(requests, requests)
        self.since[slot] = _Together(requests, requests)
        self._count()

    def progress(self, slot: str) -> _Together | None:
        """A rate is printed: what ran beside the request meanwhile; None if its begin was not
        printed, and then it begins here.
        """
        if slot not in self.running:
            self.launch(slot)
            return None
        requests, before = len(self.running), self.since[slot]
        self.since[slot] = _Together(requests, requests)
        self.running[slot].is_told = True
        return before

    def release(self, slot: str) -> None:
        """A request ends; its times may follow."""
        if (together := self.running.pop(slot, None)) is not None:
            self.last[slot] = together
            del self.since[slot]
        self._count()

    def while_running(self) -> _Together | None:
        """What ran beside the request whose times are printed; None if its begin was not."""
        return self.running.get(self.ended) or self.last.get(self.ended)

    def _count(self) -> None:
        for together in (*self.running.values(), *self.since.values()):
            together.count(len(self.running))


@dataclass
class _Log:
    writer: RecordingWriter
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"step": [], "rate": []})
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by server, then by name
    engines: dict[str, _Engine] = field(default_factory=dict)
    slots: _Slots = field(default_factory=_Slots)
    seen: Counter[str] = field(default_factory=Counter)  # lines by server
    changed: set[str] = field(default_factory=set)  # facts that changed after the first step
    changing: int = 0  # rates in whose time the requests changed
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
            named = _ENGINE.search(line)
            engine = self.engines.setdefault(named[1] if named else "", _Engine())
            if kind.kind == "step":
                self._step(values)
            elif kind.kind in _OF_SLOTS:
                self._slot(kind, values, line)
            elif not self.timed:
                self._rate(kind, values, engine)
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
        ms, seconds = _number(values.get("ms")), _number(values.get("seconds"))
        names = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
        prompts, prompt_tokens, decodes, tokens = (_whole(values.get(name)) or 0 for name in names)
        tokens = tokens or decodes
        if "scheduled_requests" in values:
            decodes = tokens = max((_whole(values["scheduled_requests"]) or 0) - prompts, 0)
        mode = MIXED if prompts and decodes else PREFILL if prompts else DECODE
        row = {"mode": mode, "batch": prompts + decodes, "tokens": prompt_tokens + tokens}
        self._add("step", row, ms if seconds is None else 1e3 * seconds, values)

    def _slot(self, kind: _Line, values: dict[str, str], line: str) -> None:
        """A line of a server that tells the time of a request when it ends."""
        self.slots.tell_time(line)
        if kind.kind == "launch":
            self.slots.launch(values["slot"])
        elif kind.kind == "release":
            self.slots.release(values["slot"])
        elif kind.kind == "progress":
            rate, together = _number(values["tokens_per_s"]), self.slots.progress(values["slot"])
            if together is not None and rate:
                self._slot_steps(together, 1e3 / rate, round(_PROGRESS_S * rate))
            return
        elif kind.kind == "timing":
            self.slots.ended = values["slot"]
        ms, tokens = _number(values.get("ms")), _whole(values.get("tokens"))
        if ms is None or not tokens:
            return
        together = self.slots.while_running()
        if together is not None and not together.is_told:
            self._slot_steps(together, ms / tokens, tokens)

    def _slot_steps(self, together: _Together, ms: float, tokens: int) -> None:
        """The steps in which a request got so many tokens."""
        if tokens < _LEAST_TOKENS:
            return
        requests = together.steady()
        if requests is None:
            self.changing += 1
            return
        row = {"mode": DECODE, "batch": requests, "tokens": requests, "averaged_steps": tokens}
        self._add("rate", row, ms, {})

    def _rate(self, kind: _Line, values: dict[str, str], engine: _Engine) -> None:
        """A line that tells the tokens per second since the one before it."""
        if kind.kind == "prefill":
            engine.prefill_tokens += _whole(values.get("prefill_tokens")) or 0
            return
        requests, before = _whole(values.get("requests")), engine.requests
        prefill_tokens, engine.prefill_tokens, engine.requests = engine.prefill_tokens, 0, requests
        rate = _number(values.get("tokens_per_s"))
        if requests and "graph" in values:
            self.graphed.append((requests, values["graph"] == "True"))
        if not requests or not before or not rate:
            return  # the first of a burst: its time holds the pause before it
        if abs(requests - before) > _margin(before):
            self.changing += 1
            return
        each = _number(values.get("tokens_per_request")) or 1.0
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
        self._add("rate", row, ms, values)

    def _steps_per_line(self, server: str) -> int:
        return int(self.facts.get(server, {}).get("steps_per_line") or _STEPS_PER_LINE)

    def _add(
        self, kind: str, row: dict[str, Any], ms: float | None, values: dict[str, str]
    ) -> None:
        if ms is None or not 0 < ms <= _MOST_MS or not 0 < row["batch"] <= _MOST_REQUESTS:
            self.writer.count_lost("rows_unreadable", int(row["batch"] != 0))
            return
        percent = _number(values.get("cache_percent"))
        if percent is not None and percent <= 100:
            row["cache_percent"] = percent
        row["duration_ns"] = max(1, round(1e6 * ms))
        self.rows[kind].append(row)
        if kind == "step" and len(self.rows["step"]) >= _BATCH_ROWS:
            self._write(self.rows["step"])
            self.rows["step"] = []
        check_limit(self.written + len(self.rows[kind]), SERVER_STEPS, "steps")

    def finish(self) -> None:
        server = self.seen.most_common(1)[0][0] if self.seen else "vLLM"
        rows = self.rows["step" if self.timed else "rate"]
        if not rows and not self.written:
            lines = f"; in the time of {counted(self.changing, 'line')} the requests changed"
            raise CurvescopeError(
                f"it is a log of {server} that tells no time of a step: {_NO_TIMES[server]}"
                f"{lines if self.changing else ''}."
            )
        self._write(rows)
        facts = self.facts.get(server, {})
        facts.pop("model", None)  # a name of the user's
        if not self.timed:
            self.writer.count_lost("rates_of_changing_load", self.changing)
            if self.changing:
                facts["lines_of_changing_load"] = self.changing
            if self.graphed:
                facts |= _graph_facts(self.graphed)
        if self.changed:
            facts["changed"] = sorted(self.changed)
        facts |= {
            "server": server,
            "engines": max(len(self.engines), 1),
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
