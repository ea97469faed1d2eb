"""Damaged chunk files, each decided by a number: made small, then cut, changed, and given numbers
that no collector writes, with checksums that fit.

Run alone it reads as many as asked for, each in a process of its own:

    python -m tests.security.fuzzed_chunks --count 500 [--first 0]
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from random import Random

import numpy as np

from curvescope.profiling.collect import chunks as C
from curvescope.profiling.collect.chunk_tables import _COLUMNS, _TEXTS
from curvescope.profiling.collect.shared_memory import _chunk

from .apart import run_apart
from .fuzzed_recordings import JUNK, SCRATCH, _quietly
from .linked_recordings import HEAD

COMMANDS = ("import R", "explain R", "breakdown R --by kernel", "export --parquet R -o new")
NUMBERS = (0, 1, 2, 7, 255, 4096, 2**16, 2**20, 2**27, 2**31, 2**32 - 1, 2**40, 2**62, 2**63)
PATTERNS = (None, "(?P<layer>.+)", "(?P<layer>(a+)+)$", "(", "(?P<layer>(?=a)a)", "(?P<x>a)", 5)
NAMES = ["", "(name not recorded)", "layer:a", "k\x1b[2J[/x]", "a" * 60 + "!", "nvtx_dropped"]
NAMES += ["cupti.status", "9" * 5000, "no_such_loss", "thread", "category"]
NAMES += list(dict.fromkeys((*_COLUMNS, *(c for names in _COLUMNS.values() for c in names))))
NAMES += ["name", "what", "key", "value"]


def strings(texts=NAMES):
    data = b"".join(len(t.encode()).to_bytes(4, "little") + t.encode() for t in texts)
    return C.STRINGS, 0, data


def table(name, random, rows=3, junk=False):
    """A chunk of a table of small numbers; with junk, one of its headers says something else."""
    columns = [*_TEXTS.get(name, ()), *_COLUMNS[name]]
    if junk and random.random() < 0.3:
        random.shuffle(columns)
        columns = columns[: random.randrange(len(columns) + 1)]
    head, heads, data = np.zeros(1, C._TABLE_HEADER), np.zeros(len(columns), C._COLUMN_HEADER), b""
    head["name"], head["rows"], head["columns"] = NAMES.index(name), rows, len(columns)
    for place, column in enumerate(columns):
        base = random.randrange(1000) if column not in ("name", "what", "key", "value") else 2
        width = random.choice((0, 1, 8))
        heads[place]["name"], heads[place]["width"] = NAMES.index(column), width
        heads[place]["base"] = base
        values = [random.randrange(3) for _ in range(rows if width else 0)]
        stored = b"".join(value.to_bytes(width, "little") for value in values)
        data += stored.ljust((rows * width + 7) // 8 * 8, b"\0")
    for _ in range(random.choice((1, 1, 3)) if junk else 0):
        which = random.choice((head, heads)) if len(heads) else head
        row, field = random.randrange(len(which)), random.choice(which.dtype.names)
        most = 1 << (8 * which.dtype[field].itemsize)
        which[row][field] = random.choice(NUMBERS) % most
    return C.TABLE, 0, head.tobytes() + heads.tobytes() + data


def events(random, junk=False):
    made = np.zeros(20, C.EVENT)
    made["kind"], made["name"] = np.tile([C.PUSH, C.POP], 10), 2
    made["time_ns"], made["range"] = np.arange(20) * 1000 + 10**9, np.arange(20) // 2
    about = np.zeros(1, C.EVENTS_HEADER)
    about["ring"], about["thread"] = 1, 7
    for _ in range(random.choice((1, 4)) if junk else 0):
        which = random.choice((made, made, about))
        field = random.choice(which.dtype.names)
        kind = which.dtype[field]
        value = random.choice(NUMBERS) % (1 << (8 * kind.itemsize))
        rows = slice(None) if random.random() < 0.5 else slice(0, 1)
        which[field][rows] = np.array([value], np.uint64).astype(kind)
    return C.EVENTS, 0, about.tobytes() + made.tobytes()


def write_damaged(number, folder):
    """Write a cut recording `R` with damaged chunk files; return the command to read it with."""
    random = Random(f"chunks {number}")
    kept = folder / "R" / "chunks"
    kept.mkdir(parents=True)
    head = {**HEAD, "recording_type": "profile", "recorder": "cupti"}
    (folder / "R" / "recording.json").write_text(json.dumps(head))
    options = {"batch": None, "range_pattern": random.choice((None, None, *PATTERNS))}
    (kept / "options").write_text(json.dumps(options))
    for name in random.sample(("1-5.chunks", "2-6.chunks"), random.choice((1, 2))):
        (kept / name).write_bytes(_chunk_file(random))
    for name, document in (("1.json", WINDOW), ("ends", END), ("options", options)):
        if random.random() < 0.5:
            (kept / name).write_bytes(_changed_json(document, random))
    if random.random() < 0.5:
        about = {"version": 1, "process": 1, "thread": 1, "source": "x", "mark": None}
        lines = b"\n".join(random.choice((b"%d" % n, b"x", b"9" * 30)) for n in range(5))
        (kept / "1.marks").write_bytes(_changed_json(about, random) + b"\n" + lines + b"\n")
    if random.random() < 0.1:
        _no_file(kept / random.choice(("options", "ends", "1.json", "9-9.chunks")), random)
    return random.choice(COMMANDS)


WINDOW = {
    "version": 2,
    "process": 3,
    "thread": 3,
    "window_ns": [0, 900],
    "clock_offset_ns": 0,
    "boundaries": [[10, "training", 4], [500, "optimizer", None]],
    "cpu_threads": 2,
    "layer_classes": {"a": "Conv"},
    "events": [["aten::relu", 20, 30, 3, 0, 0, 1, []]],
}
END = [
    {"process": 1, "started_ns": 5, "ended": "exit", "begun": 10, "dropped": 0}
    | {"unwritten": 0, "unsaid": 0, "gpu_buffers": 0}
]


def _chunk_file(random):
    pieces = [strings(), events(random, junk=random.random() < 0.5)]
    for name in _COLUMNS:
        if random.random() < 0.5:
            pieces.append(table(name, random, junk=random.random() < 0.3))
    numbers = np.zeros(2, C.NUMBER)
    numbers["what"], numbers["name"] = NAMES.index("thread"), random.choice((2, 10**9))
    pieces.append((C.NUMBERS, 0, numbers.tobytes()))
    pieces.append((C.LOST, 0, np.array([random.choice(NUMBERS) % 2**63] * 3, "<u8").tobytes()))
    if random.random() < 0.3:
        random.shuffle(pieces)
    process, first = random.choice((1, 1, 1, 2**40, -1)), random.choice((0, 0, 0, 5, 2**40))
    data = b"".join(_chunk(kind, process, first, payload) for kind, _, payload in pieces)
    return _changed_bytes(data, random) if random.random() < 0.3 else data


def _changed_bytes(data, random):
    changed = bytearray(data)
    for _ in range(random.choice((1, 5, 30))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed[: random.choice((len(changed), random.randrange(len(changed))))])


def _changed_json(document, random):
    """A document with junk in place of one of its values, or cut off."""
    document = json.loads(json.dumps(document))
    place = document
    while isinstance(place, (dict, list)) and place:
        key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], (dict, list)) or random.random() < 0.3:
            place[key] = random.choice(JUNK)
            break
        place = place[key]
    data = json.dumps(document).encode()
    return data if random.random() < 0.8 else data[: random.randrange(len(data))]


def _no_file(path, random):
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    if random.random() < 0.5:
        os.mkfifo(path)
    else:
        path.symlink_to(random.choice(("/dev/zero", "/etc/passwd", "missing", ".")))


def read(number, folder):
    """Read one with one command; anything but an answer or a refusal escapes."""
    command = write_damaged(number, folder)
    os.chdir(folder)
    code = _quietly(command)
    said = _quietly.said
    assert code in (0, 1, 2), f"{command}: exit code {code}"
    assert "Traceback" not in said, said
    assert code == 0 or 20 < len(said) < 4000, f"{command}: {said[:500]}"
    if code and command == "import R":
        assert (folder / "R" / "chunks").is_dir(), f"what could not be read is gone: {said}"
        assert "once there is room" not in said, said


def read_apart(number):
    """`read` in a folder of its own, within limits of memory and time; see `Spent`."""

    def work():
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            read(number, Path(folder))

    return run_apart(work)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    wrong = 0
    for number in range(args.first, args.first + args.count):
        spent = read_apart(number)
        if spent.wrong is not None:
            wrong += 1
            print(f"input {number}: {spent.wrong}", file=sys.stderr, flush=True)
    print(f"{args.count} folders of chunk files, {wrong} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
