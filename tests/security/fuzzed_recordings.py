"""Damaged recordings, each decided by a number, and the commands that read them, held to limits of
memory and time.

Run alone it reads as many as asked for, each in a process of its own:

    python -m tests.security.fuzzed_recordings --count 2000 [--first 0]
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from curvescope import agents
from curvescope.base.errors import CurvescopeError
from curvescope.cli import _main

from ..curvescope.recordings import write_planted
from ..shared import ROOT
from .apart import run_apart

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory
JUNK = [
    None,
    "x",
    "",
    -1,
    0,
    1,
    1.5,
    True,
    [],
    {},
    [1],
    [[1, 2]],
    {"a": 1},
    "../../x",
    1e308,
    2**70,
]
JUNK += ["x" * 70_000, ["x"], [None], "\x1b[2J", 2**62, "=1+1", -(2**63), 1e-300]
JUNK_TEXT = [
    "[" * 100_000,
    "NaN",
    "-Infinity",
    '"\\ud800"',
    "1e999",
    "9" * 5000,
    "",
    "{",
    '{"a":1,"a":2}',
    "\x00",
]
JUNK_CELLS = [
    None,
    -1,
    0,
    1,
    2**31,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    1.5,
    float("nan"),
    float("inf"),
    "x",
    "",
]
JUNK_CELLS += ["x" * 70_000, "[" * 5000, "<" * 5000, "a." * 3000, "\x00\x1b[2J", True, [1], b"\xff"]

COMMANDS = [
    "explain R",
    "explain R --json",
    "explain R --of memory",
    "explain R --pair 4,8",
    "breakdown R",
    "breakdown R --by kernel",
    "breakdown R --by op --json",
    "breakdown R --by phase",
    "report R -o new.html",
    "report R other -o new.html",
    "export R -o new.json",
    "export R --csv -o new",
    "export R --parquet -o new",
    "scale read .",
    "scale read . --json",
    "runs .",
    "runs . --json",
    "compare --steps R",
    "compare --steps R other --json",
    "compare R other",
    *(
        "compare other R --by kernel",
        "roofline R",
        "roofline R --by layer --json",
        "explain R --as-env",
    ),
    "mcp list_recordings .",
    "mcp verdict R",
    "mcp breakdown R",
    "mcp compare R",
    "mcp roofline R",
]


@cache
def seeds():
    """Folders of whole recordings, in a folder that stays as long as the process."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    owner = os.getpid()
    import atexit

    atexit.register(lambda: owner == os.getpid() and shutil.rmtree(folder, ignore_errors=True))
    write_planted(folder / "planted")
    for path in ("tests/data/causes/Convolution", "examples/recordings/alexnet-cpu"):
        shutil.copytree(ROOT / path, folder / Path(path).name)
    assert (
        _quietly("diagnose alexnet --card gtx1080 --batch 4..16 -o", str(folder / "modelled")) == 0
    )
    return sorted(folder.iterdir())


def damage(number, target):
    """Write a damaged recording, decided by the number; return the command to run on it."""
    random = Random(f"recording {number}")
    shutil.copytree(random.choice(seeds()), target)
    command = random.choice(COMMANDS)
    for _ in range(random.choice((1, 1, 2, 5))):
        kind = random.random()
        if kind < 0.5:
            _damage_values(target / "recording.json", random)
        elif kind < 0.6:
            _damage_text(target / "recording.json", random)
        elif parts := [part for part in sorted(target.glob("*/*.parquet")) if part.is_file()]:
            (_damage_part if kind < 0.9 else _damage_file)(random.choice(parts), random)
    return command


def _damage_values(path, random):
    """Other values, or none, anywhere in the document."""
    try:
        document = json.loads(path.read_text())
    except (ValueError, RecursionError):
        return
    place = document
    while isinstance(place, (dict, list)) and place:
        key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], (dict, list)) and place[key] and random.random() < 0.7:
            place = place[key]
            continue
        if random.random() < 0.85:
            place[key] = deepcopy(random.choice(JUNK))
        else:
            del place[key]
        break
    path.write_text(json.dumps(document))


def _damage_text(path, random):
    text = path.read_text(errors="replace")
    at = random.randrange(len(text) + 1)
    path.write_text(
        text[:at] + random.choice(JUNK_TEXT) + text[at + random.choice((0, 1, 40)) :],
        errors="replace",
    )


def _damage_part(part, random):
    """Other values in some rows of a column, another type, or no such column."""
    try:
        rows = pq.read_table(part)
    except (pa.ArrowException, OSError):
        return
    if not rows.num_columns:
        return
    place = random.randrange(rows.num_columns)
    name, values = rows.column_names[place], rows.column(place).to_pylist()
    kind = random.random()
    if kind < 0.1:
        rows = rows.drop_columns([name])
    elif kind < 0.15:
        rows = rows.append_column("surplus", pa.nulls(rows.num_rows))
    elif kind < 0.2:
        rows = pa.concat_tables([rows] * random.choice((2, 50)))
    elif kind < 0.25:
        rows = rows.slice(0, random.choice((0, 1, 2)))
    else:
        junk = random.choice(JUNK_CELLS)
        every = random.choice((1, 1, 2, 7) if len(str(junk)) * len(values) < 1 << 26 else (1000,))
        values = [junk if index % every == 0 else value for index, value in enumerate(values)]
        try:
            column = pa.array(values, rows.schema.field(place).type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            column = pa.array(
                [junk if index % every == 0 else None for index in range(len(values))]
            )
        rows = rows.set_column(place, name, column)
    pq.write_table(rows, part)


def _damage_file(part, random):
    kind, data = random.random(), bytearray(part.read_bytes())
    if kind < 0.3:
        part.with_name("00777.parquet").write_bytes(data)
    elif kind < 0.4:
        part.unlink()
    elif kind < 0.5:
        part.unlink()
        os.mkfifo(part)
    elif kind < 0.6:
        part.write_bytes(data[: random.randrange(len(data))])
    else:
        for _ in range(random.choice((1, 5, 30))):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        part.write_bytes(data)


def _quietly(words, *more):
    """Run a command without its output; whatever it raises passes."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        try:
            code = _main([*words.split(), *more])
        except SystemExit as exited:
            code = exited.code
    _quietly.out, _quietly.said = out.getvalue(), said.getvalue()
    return code


def answer(words):
    """Ask a tool of the MCP server; a refusal is an answer."""
    import anyio
    from mcp.server.mcpserver.exceptions import ToolError

    async def here(command, *options, paths):
        if _quietly(" ".join((command, *options, "--json", "--", *map(str, paths)))) not in (0, 1):
            raise CurvescopeError(_quietly.said)
        return json.loads(_quietly.out)

    tool, path = words
    names = (
        ("base", "other")
        if tool == "compare"
        else ("folder" if tool == "list_recordings" else "recording",)
    )
    arguments = dict(zip(names, (path, "other"), strict=False))
    with contextlib.suppress(CurvescopeError, ToolError):
        return anyio.run(agents.make_server(ask=here).call_tool, tool, arguments)


def read(number, folder):
    """Read one damaged recording with one command; anything but an answer or a refusal escapes."""
    shutil.copytree(seeds()[-1], folder / "other")
    command = damage(number, folder / "R")
    os.chdir(folder)
    words = command.split()
    if words[0] == "mcp":
        answer(words[1:])
        return command
    code = _quietly(command)
    assert code in (0, 1, 2), f"{command}: exit code {code}"
    assert code == 0 or 20 < len(_quietly.said) < 4000 or words[0] in ("compare",), (
        f"{command}: {_quietly.said[:500]}"
    )
    return command


def read_apart(number):
    """`read` in a folder of its own, held to limits of memory and time; returns what it took, see
    `Spent`.
    """

    def work():
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            read(number, Path(folder))

    return run_apart(work)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--keep-going", action="store_true", help="list every input that went wrong"
    )
    args = parser.parse_args()
    seeds()
    began, slowest, largest, wrong = time.monotonic(), (0.0, 0), (0, 0), {}
    for number in range(args.first, args.first + args.count):
        spent = read_apart(number)
        slowest = max(slowest, (spent.cpu_s, number))
        largest = max(largest, (spent.peak_bytes, number))
        if spent.wrong is not None:
            wrong[number] = spent.wrong
            print(f"input {number}: {spent.wrong}", file=sys.stderr, flush=True)
            if not args.keep_going:
                break
    print(
        f"{args.count} recordings, {len(wrong)} went wrong; {time.monotonic() - began:.0f} s; most "
        f"CPU time {slowest[0]:.1f} s (input {slowest[1]}), most memory {largest[0] >> 20} MiB "
        f"(input {largest[1]})"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
