"""Reads the tables of llama.cpp's benchmarks as tables of times: `llama-batched-bench`,
`llama-bench` and `llama-sweep-bench`.

`llama-batched-bench` measures decode over sequences in parallel: the time of a step is the time of
all, T_TG, over their number, TG. A `llama-bench` with several prompts (`pp512`) is a curve over
their tokens, one with several depths (`tg128 @ d4096`) and each `llama-sweep-bench` over the tokens
of context in the middle of a test, in tokens per second with the standard deviation of its
repetitions. The other columns name the curve. Formats: tools/batched-bench/batched-bench.cpp and
tools/llama-bench/llama-bench.cpp (markdown) of ggml-org/llama.cpp, and
examples/sweep-bench/sweep-bench.cpp of ikawrakow/ik_llama.cpp.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...base.errors import CurvescopeError
from ..recording.store import RecordingWriter, columns_of
from . import Options
from .csv_lines import lines_of, parse_number
from .source import Source
from .values import REPEATS_ALIKE, whole

NAME = "llama.cpp benchmark"

_BATCHED = re.compile(r"^\|\s*PP\s*\|\s*TG\s*\|\s*(?:B\s*\|\s*)?N_KV\s*\|", re.MULTILINE)
_BENCH = re.compile(r"^\|\s*model\s*\|[^\n]{1,500}\|\s*test\s*\|\s*t/s\s*\|", re.MULTILINE)
_TEST = re.compile(r"(pp|tg) ?(\d{1,9})(?: @ d(\d{1,9}))?")
# The last two are what a Windows console makes of the first.
_RATE = re.compile(r"([\d.]{1,20})\s*(?:±|Â±|┬▒)\s*([\d.]{1,20})")
_MOST = 1 << 31
_MOST_ROWS = 1_000_000
_LONGEST_NAME = 200


@dataclass(frozen=True)
class _Test:
    """One row of `llama-bench`."""

    named: str  # its further columns
    kind: str  # pp or tg
    tokens: int
    depth: int | None  # tokens of context before it; None if not told
    per_s: float
    spread: float  # standard deviation of `per_s`

    @property
    def of_length(self) -> tuple[str, str, int]:
        """What tests over the context have in common."""
        return self.named, self.kind, self.tokens

    @property
    def of_depth(self) -> tuple[str, str, int]:
        """What tests over their own tokens have in common."""
        return self.named, self.kind, self.depth or 0


def recognises(source: Source) -> bool:
    """Whether the file has the head of one of the tables."""
    return any(head.search(source.text) is not None for head in (_BATCHED, _BENCH))


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Write each row as a published time; CurvescopeError without one."""
    del options  # no option of a profile has a meaning for a table
    rows: list[dict[str, Any]] = []
    tests: list[_Test] = []
    with source.open() as stream:
        for cells in _cells(lines_of(stream)):
            if "T_TG s" in cells:
                rows += _read_batched(cells)
            else:
                tests += _tests(cells)
            if len(rows) + len(tests) > _MOST_ROWS:
                raise CurvescopeError(
                    f"it has more than {_MOST_ROWS:,} rows, and no benchmark prints so many."
                )
    rows += _of_tests(tests)
    if not rows:
        raise CurvescopeError(
            "its table has no row on an axis: run `llama-batched-bench -npl 1,2,4,8`, or "
            "`llama-bench -p 1,2,4,8` or `-d 0,4096,8192`."
        )
    for step, (row, repeat) in enumerate(zip(rows, _number_repeats(rows), strict=True)):
        row |= {
            "step": step,
            "round": repeat,
            "index": 0,
            "mode": "published",
            "profiled": False,
        }
    writer.write("steps", columns_of(rows))
    writer.update(
        recording_type="table", noise=None, batches=sorted({row["batch"] for row in rows})
    )


def _number_repeats(rows: list[dict[str, Any]]) -> list[int]:
    """The number of each row among the rows of the same problem and size. Rows that differ too much
    come from several models or builds, and become problems of their own.
    """
    of_size: dict[tuple[str, int], list[int]] = defaultdict(list)
    repeats = []
    for row in rows:
        times = of_size[row["problem"], row["batch"]]
        repeats.append(len(times))
        times.append(row["duration_ns"])
    apart = set()
    for (name, _), ns in of_size.items():
        if max(ns) > REPEATS_ALIKE * min(ns):
            apart.add(name)
    for place, row in enumerate(rows):
        if row["problem"] in apart:
            row["problem"] += f" #{repeats[place] + 1}"
            repeats[place] = 0
    return repeats


def _cells(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """The rows of all tables by the names of their columns."""
    head: list[str] = []
    for line in lines:
        if not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if _BATCHED.match(line.lstrip()) or _BENCH.match(line.lstrip()):
            head = cells
        elif head and len(cells) == len(head):
            yield dict(zip(head, cells, strict=True))


def _read_batched(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A row of `llama-batched-bench`, over its sequences, or of `llama-sweep-bench`, over the
    context: its prefill, and one step of its decode.
    """
    prompt, steps, held = (whole(row.get(name), _MOST) for name in ("PP", "TG", "N_KV"))
    batch = whole(row.get("B"), _MOST)
    for what, name, count, tokens in (
        ("prefill", "T_PP s", 1, prompt),
        ("decode", "T_TG s", steps, steps),
    ):
        seconds = parse_number(row.get(name, ""))
        if "B" in row:
            size = batch
            after = "prompts" if what == "prefill" else "after prompts"
            problem = f"{what}, {after} of {prompt} tokens"
        else:
            size = None if held is None or tokens is None else held + tokens // 2
            problem = f"{what} of {tokens} tokens over the tokens of context"
        if prompt is not None and size and count and seconds and seconds < 1e6:
            step_ns = max(1, round(1e9 * seconds / count))
            yield {"problem": problem, "batch": size, "duration_ns": step_ns}


def _tests(row: dict[str, str]) -> Iterator[_Test]:
    """A row of `llama-bench` with a prompt or with generated tokens alone."""
    test = _TEST.fullmatch(row.get("test", ""))
    rate = _RATE.fullmatch(row.get("t/s", ""))
    if test is None or rate is None:
        return
    tokens = whole(test[2], _MOST)
    per_s = parse_number(rate[1])
    spread = parse_number(rate[2])
    if not tokens or not per_s or spread is None or tokens / per_s > 1e6:
        return
    named = []
    for name, text in row.items():
        if name not in ("test", "t/s", "size", "params") and text:
            named.append(text)
    depth = None if test[3] is None else whole(test[3], _MOST)
    yield _Test(", ".join(named), test[1], tokens, depth, per_s, spread)


def _of_tests(tests: list[_Test]) -> Iterator[dict[str, Any]]:
    """Prompts over their tokens; tests of one length at several depths over the context."""
    depths: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    lengths: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for test in tests:
        depths[test.of_length].add(test.depth or 0)
        lengths[test.of_depth].add(test.tokens)
    for test in tests:
        if len(depths[test.of_length]) > len(lengths[test.of_depth]):
            what = f"{test.tokens} prompt tokens"
            tokens = test.tokens
            if test.kind == "tg":
                what = "a generated token"
                tokens = 1
            problem = f"{test.named}, {what} over the tokens of context"
            yield _row(test, problem, (test.depth or 0) + test.tokens // 2, tokens)
        elif test.kind == "pp":
            depth = "" if test.depth is None else f" @ d{test.depth}"
            yield _row(test, f"{test.named}, prompt{depth}", test.tokens, test.tokens)


def _row(test: _Test, problem: str, size: int, tokens: int) -> dict[str, Any]:
    return {
        "problem": problem[:_LONGEST_NAME],
        "batch": max(size, 1),
        "duration_ns": max(1, round(1e9 * tokens / test.per_s)),
        "relative_spread": test.spread / test.per_s or None,
    }
