"""Reads the tables of llama.cpp's benchmarks as tables of times: `llama-batched-bench` and
`llama-bench`.

`llama-batched-bench` measures decode over sequences in parallel: the time of a step is that of all
steps, T_TG, over their number, TG. Of `llama-bench` only prompt tests (`pp512`) lie on an axis:
tokens, in tokens per second with the standard deviation of its repetitions. The other columns name
the curve. Formats: tools/batched-bench/batched-bench.cpp and tools/llama-bench/llama-bench.cpp
(markdown) of ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...base.errors import CurvescopeError
from ..recording.store import RecordingWriter, columns_of
from . import Options
from .csv_lines import lines_of, parse_number
from .source import Source
from .values import whole

NAME = "llama.cpp benchmark"

_BATCHED = re.compile(r"^\|\s*PP\s*\|\s*TG\s*\|\s*B\s*\|\s*N_KV\s*\|", re.MULTILINE)
_BENCH = re.compile(r"^\|\s*model\s*\|[^\n]{1,500}\|\s*test\s*\|\s*t/s\s*\|", re.MULTILINE)
_PROMPT = re.compile(r"pp(\d{1,9})( @ d\d{1,9})?")
_RATE = re.compile(r"([\d.]{1,20})\s*±\s*([\d.]{1,20})")
_MOST = 1 << 31
_MOST_ROWS = 1_000_000
_LONGEST_NAME = 200


def recognises(source: Source) -> bool:
    """Whether the file has the head of one of both tables."""
    return any(head.search(source.text) is not None for head in (_BATCHED, _BENCH))


def read(source: Source, writer: RecordingWriter, options: Options) -> None:
    """Write each row as a published time; CurvescopeError without one."""
    del options  # no option of a profile has a meaning for a table
    rows: list[dict[str, Any]] = []
    with source.open() as stream:
        for row in _rows(lines_of(stream)):
            rows.append(row)
            if len(rows) > _MOST_ROWS:
                raise CurvescopeError(
                    f"it has more than {_MOST_ROWS:,} rows, and no benchmark prints so many."
                )
    if not rows:
        raise CurvescopeError(
            "its table has no row on an axis: run `llama-batched-bench -npl 1,2,4,8`, or "
            "`llama-bench -p 1,2,4,8`."
        )
    repeats: dict[tuple[str, int], int] = {}
    for step, row in enumerate(rows):
        key = (row["problem"], row["batch"])
        repeats[key] = repeats.get(key, -1) + 1
        row |= {
            "step": step,
            "round": repeats[key],
            "index": 0,
            "mode": "published",
            "profiled": False,
        }
    writer.write("steps", columns_of(rows))
    writer.update(
        recording_type="table", noise=None, batches=sorted({row["batch"] for row in rows})
    )


def _rows(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    head: list[str] = []
    for line in lines:
        if not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if _BATCHED.match(line.lstrip()) or _BENCH.match(line.lstrip()):
            head = cells
        elif head and len(cells) == len(head):
            row = dict(zip(head, cells, strict=True))
            yield from _batched(row) if "T_TG s" in row else _prompt(row)


def _batched(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A row of `llama-batched-bench`: its prefill, and one step of its decode."""
    prompt, steps, batch = (whole(row.get(name), _MOST) for name in ("PP", "TG", "B"))
    for problem, name, count in (
        (f"prefill, prompts of {prompt} tokens", "T_PP s", 1),
        (f"decode, after prompts of {prompt} tokens", "T_TG s", steps),
    ):
        seconds = parse_number(row.get(name, ""))
        if prompt is not None and batch and count and seconds and seconds < 1e6:
            yield {
                "problem": problem,
                "batch": batch,
                "duration_ns": max(1, round(1e9 * seconds / count)),
            }


def _prompt(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A row of `llama-bench` with a prompt, over its tokens."""
    test, rate = _PROMPT.fullmatch(row.get("test", "")), _RATE.fullmatch(row.get("t/s", ""))
    if test is None or rate is None:
        return
    tokens, per_s, spread = whole(test[1], _MOST), parse_number(rate[1]), parse_number(rate[2])
    if not tokens or not per_s or spread is None or tokens / per_s > 1e6:
        return
    named = [
        text for name, text in row.items() if name not in ("test", "t/s", "size", "params") and text
    ]
    problem = f"{', '.join(named)}, prompt{test[2] or ''}"[:_LONGEST_NAME]
    times = {
        "duration_ns": max(1, round(1e9 * tokens / per_s)),
        "relative_spread": spread / per_s or None,
    }
    yield {"problem": problem, "batch": tokens, **times}
