"""The words that people write over the columns of a table of times: sizes, times, rates, and what
tells curves apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..recording.axis import BATCH

# By axis, the names of a column of sizes; the first axes win where a table has several.
SIZE_WORDS = {
    BATCH: "batch, batch size, batchsize, batch sizes, bs, b, n batch, ubatch, microbatch, "
    "microbatch size, micro batch size, mbs",
    "concurrency": "concurrency, conc, concurrent, concurrent requests, max concurrency, clients, "
    "parallel, parallelism, np, npl, n parallel, streams, users",
    "requests": "requests, num requests, num seqs, sequences, seqs, max num seqs",
    "tokens": "tokens, token, num tokens, n tokens, token num, prompt tokens, seq len, seqlen, "
    "sequence length, prompt length, input len, isl, context, ctx, length",
    "size": "size, sizes, samples, images, width, w, rows",
    "m": "m",
    "n": "n",
    "k": "k",
}
_AXES = {word: axis for axis, words in SIZE_WORDS.items() for word in words.split(", ")}
_SHAPES = ("m", "n", "k")
_DEVICES = {"device", "gpu", "card", "hardware", "accelerator", "hw", "device name", "chip"}
_AVERAGED = {"n", "runs", "iters", "iterations", "repeats", "reps", "averaged steps", "repetitions"}
_SPREAD = {"spread", "cv", "relative spread"}
_DEVIATION = {"std", "stdev", "stddev", "std dev", "sd"}
_NS_PER = {
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microseconds"), 1e3),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e6),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1e9),
}
_FLOPS = {"gflop": 1e9, "tflop": 1e12, "top": 1e12, "pflop": 1e15}
_STEPS = "step|steps|it|iter|iters|iteration|token|tok|batch|batches|call|pass|forward"
_SAMPLES = "sample|image|img|seq|sequence|request|req|query|item|prompt"
UNIT = "|".join(sorted(map(re.escape, _NS_PER), key=len, reverse=True))
_TIME = re.compile(rf"(?P<unit>{UNIT})(?:\s*(?:/|per)\s*(?P<per>{_STEPS}|{_SAMPLES}))?")
_RATE = re.compile(
    r"(?P<what>[a-z]+)\s*(?:/|per|p)\s*(?:s|sec|second)(?P<each>\s*/\s*(?:user|req|request))?"
)
_SHORT_RATES = {"fps": "img", "qps": "req", "tps": "tok", "rps": "req", "ips": "img"}
_RATED = re.compile(rf"(?:{_STEPS}|{_SAMPLES}|t|infer|inference|frame|sentence|utterance)s?")
_EACH = re.compile(r"\b(?:per[ -](?:user|req|request|stream|client|query|sequence)|/user)\b")
_OF_STEPS = {"it", "iter", "iters", "iteration", "iterations", "step", "steps", "batches", "calls"}
_FLOP_RATE = re.compile(r"(?P<unit>gflop|tflop|top|pflop)s?(?:\s*/\s*s)?")
# Servers print these in ms, with the unit or without.
_IN_MS = re.compile(r"\b(?:tpot|itl|inter[ -]token latency|time per output token)\b")
_OF_TOKENS = re.compile(rf"{_IN_MS.pattern}|s ?(?:/|per) ?tok|\btok(?:ens?)? ?(?:/|per) ?s|\btps\b")
# Time columns that another one is taken before, by what they are of.
_RANKS = (
    re.compile(r"\b(?:p ?\d\d(?:\.\d+)?|max|min|worst|best|tail|\d\d%)\b"),
    re.compile(r"\b(?:ttft|ttfp|first)\b"),
    re.compile(r"\b(?:e2e|e2el|request|total|elapsed|duration)\b"),
)
_BESIDE_UNIT = re.compile(r"\s*(?:[,;±]|\+/?-)\s*")  # in brackets, as in `(ms, p50)`
# Measures that tell no curves apart.
_MEASURE = re.compile(
    r"\b(?:speed ?up|gain|improvement|delta|change|ratio|diff|difference|bandwidth|bw|memory|mem|"
    r"vram|peak|power|energy|watts?|temp|temperature|err|error|acc|accuracy|util|utilization|mfu|"
    r"loss|scaling|efficiency|status|notes?|comment|rank|index|step|round|start|timestamp|date|"
    r"seed|throughput|cost|better|winner|rtf|num prompts|p\d\d)\b|[%Δ×#]|[gmk]i?b(?:/s)?\b"
)


@dataclass(frozen=True)
class Column:
    """The contents of a table's column."""

    name: str  # as it is written, without marks
    # size, time, rate, flops, averaged, spread, deviation, device, setting, or other
    kind: str
    axis: str | None = None  # of a size
    ns: float = 0.0  # of a time: nanoseconds of its unit
    # of a time: whether it is of one sample; of a rate: whether samples, or else steps, pass
    of_samples: bool = False
    flops: float = 0.0  # of flops: operations a second of its unit
    rank: int = 0  # of a time or rate: 0 for a step's own, more for what another is taken before


def clean(name: str) -> str:
    """A heading without the marks of Markdown."""
    return re.sub(r"\s+", " ", re.sub(r"[*`]|</?\w+>|\\", "", name)).strip(" _")


def describe_column(written: str) -> Column:
    """The contents of a column by its heading; other, where the values have to tell."""
    name = clean(written)
    bare, unit = _without_unit(name.lower())
    words = re.sub(r"[\s_\-.]+", " ", bare).strip()
    rank = _rank(words)
    if words in _DEVIATION or words.split(" ")[0] in _DEVIATION:
        ns = _NS_PER.get(unit or "", 0.0)
        return Column(name, "deviation" if ns else "other", ns=ns)
    for text in filter(None, (unit, words)):
        if timed := _TIME.fullmatch(text):
            per = timed["per"] or ""
            of_samples = re.fullmatch(_SAMPLES, per) is not None
            return Column(name, "time", ns=_NS_PER[timed["unit"]], of_samples=of_samples, rank=rank)
        if flop := _FLOP_RATE.fullmatch(text):
            return Column(name, "flops", flops=_FLOPS[flop["unit"]], rank=rank + 10)
        if (what := _find_rate(text)) is not None:
            each = _EACH.search(bare) is not None or text.endswith(("/user", "/req", "/request"))
            of_samples = what not in _OF_STEPS and not each
            return Column(name, "rate", of_samples=of_samples, rank=rank + 5 + each)
    if unit is None and words in _AXES:
        return Column(name, "size", axis=_AXES[words])
    if words in _AXES and unit in ("tokens", "samples", "size"):
        return Column(name, "size", axis=_AXES[words])
    if _IN_MS.search(words):
        return Column(name, "time", ns=1e6, rank=rank)
    if words in _DEVICES:
        return Column(name, "device")
    if words in _SPREAD:
        return Column(name, "spread")
    if words in _AVERAGED:
        return Column(name, "averaged")
    return Column(name, "other", rank=rank)


def describe_columns(names: Sequence[str]) -> list[Column]:
    """What the headings of one table say; a letter is a shape only where no word is a size."""
    columns = [describe_column(name) for name in names]
    has_word = any(c.kind == "size" and c.axis not in _SHAPES for c in columns)

    def beside_word(column: Column) -> Column:
        if not has_word or column.axis not in _SHAPES:
            return column
        averaged = column.name.lower() in _AVERAGED
        return replace(column, kind="averaged" if averaged else "setting", axis=None)

    return [beside_word(column) for column in columns]


def name_counted(column: Column, axis: str) -> str:
    """What passes in a step, plural, where the axis does not say it: TPOT at 8 clients is of 8
    tokens.
    """
    if _OF_TOKENS.search(column.name.lower()):
        return "tokens"
    return "requests" if axis == "concurrency" else ""


def is_measure(name: str) -> bool:
    """Whether a heading is of another measured value, which tells no curves apart."""
    return _MEASURE.search(re.sub(r"[_\-]+", " ", name.lower())) is not None


def unit_ns(unit: str) -> float | None:
    """Nanoseconds of a unit behind a number; None if it is none of time."""
    return _NS_PER.get(unit.lower())


def size_axis(word: str) -> str | None:
    """The axis of a word before a number, as in `bs=8`; None if it names none."""
    return _AXES.get(re.sub(r"[\s_\-]+", " ", word.lower()).strip())


def _without_unit(name: str) -> tuple[str, str | None]:
    """A heading and its unit: in brackets, or as its last word."""
    if match := re.fullmatch(r"(.*?)\s*[(\[]\s*([^)\]]+?)\s*[)\]](.*)", name):
        outside = f"{match[1]} {match[3]}".strip(" _")
        inside = _BESIDE_UNIT.split(match[2])
        for part in filter(_is_unit, inside):
            others = [other for other in inside if other != part]
            return " ".join([outside, *others]).strip(), part
        bare, unit = _without_unit(outside)
        return bare, unit or match[2]
    parts = re.split(r"[\s_]+", name)
    for count in (3, 2, 1):
        last = " ".join(parts[-count:])
        if len(parts) >= count and _is_unit(last):
            return " ".join(parts[:-count]), last
    return name, None


def _is_unit(text: str) -> bool:
    """Whether a text is a unit of time, of a rate or of operations a second."""
    is_time = _TIME.fullmatch(text) or _FLOP_RATE.fullmatch(text)
    return bool(is_time) or _find_rate(text) is not None


def _find_rate(text: str) -> str | None:
    """What passes in a second, of a unit like `img/s`; None for other text."""
    if text in _SHORT_RATES:
        return _SHORT_RATES[text]
    match = _RATE.fullmatch(text.replace("/gpu", "").replace("/chip", "").strip())
    if match and _RATED.fullmatch(match["what"]):
        return match["what"]
    return None


def _rank(words: str) -> int:
    return max((3 - place for place, rank in enumerate(_RANKS) if rank.search(words)), default=0)
