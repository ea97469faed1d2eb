"""Damaged profiles, made from the real ones: small seeds of every format, and damage drawn from a
number.

Run alone it feeds each reader as many inputs as asked for, on one process per reader:

    python -m tests.profiling.readers.fuzzing --count 100000 [READER …]
"""

import argparse
import gzip
import json
import pickle
import sqlite3
import sys
import tempfile
import time
import warnings
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from random import Random
from unittest.mock import patch

from curvescope.base.errors import CurvescopeError
from curvescope.profiling import readers
from curvescope.profiling.readers.xspace_pb import _message_type
from curvescope.profiling.recording.lost import loss
from curvescope.profiling.recording.schema import TABLES, conform

from ...server_logs import iteration, llama_log, sglang_log, vllm_start
from .made_profiles import PROFILES
from .nsys_export import AUTOGRAD, push_pop, wait, write_export
from .test_llama_bench import BATCHED, EXPERTS
from .test_memory_snapshot import snapshot
from .test_ncu_csv import RAW
from .test_nsys_sqlite import TWO_STEPS
from .test_nvprof import LAUNCH_METRICS, TEXT_METRICS, TEXT_TRACE
from .test_pytorch_json import PLANTED
from .test_serving_results import guidellm, lines, vllm
from .test_speedscope_json import MAIN, WAITING, flame_graph
from .test_tensorflow_json import JAX, TF1, TF2

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory
JUNK_TEXT = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\x00",
    b"\xff\xfe",
    b"NaN",
    b"-",
    b"1e999",
]
JUNK_TEXT += [
    b"99999999999999999999",
    b"-1",
    b"null",
    b"[[[[",
    b"==1== ",
    b"x" * 70_000,
    b"\xf0\x9f\x98\x80",
    b"0.0.0",
]
JUNK_VALUES = [
    None,
    -1,
    0,
    1,
    2**31,
    2**63 - 1,
    -(2**63),
    1.5,
    float("inf"),
    "",
    "x",
    "x" * 70_000,
    b"\x00\xff",
    b"",
]
JUNK_VALUES += ["step 1", "{'op': [}", "a, seq = 99999999999999999999", 2**62, "/home/x/y"]
JUNK_JSON = [
    *(value for value in JUNK_VALUES if not isinstance(value, bytes)),
    [],
    [[1]],
    {},
    {"a": 1},
    True,
]
JUNK_JSON += [1e300, 2**70, float("nan")]


def unpacked(name):
    data = (PROFILES / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def first_events(name, count):
    document = json.loads(unpacked(name))
    document["traceEvents"] = document["traceEvents"][:count]
    return json.dumps(document).encode()


def trace_of(events):
    return json.dumps({"traceEvents": events}).encode()


def first_lines(name, count):
    return b"\n".join(unpacked(name).split(b"\n")[:count])


def first_rows(name, keep):
    """A SQLite profile with the first rows of each table, and of the strings those they name."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(unpacked(name))
        file.flush()
        database = sqlite3.connect(file.name)
        tables = [
            t for (t,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            if table.startswith("ENUM"):
                database.execute(f"DROP TABLE {table}")
            elif table not in ("StringIds", "StringTable", "sqlite_sequence"):
                database.execute(
                    f"DELETE FROM {table} WHERE rowid NOT IN (SELECT rowid FROM {table} LIMIT "
                    f"{keep})"
                )
        strings = next(t for t in ("StringIds", "StringTable") if t in tables)
        others = [t for t in tables if t != strings and not t.startswith("ENUM")]
        rows = [row for table in others for row in database.execute(f"SELECT * FROM {table}")]
        database.execute("CREATE TEMP TABLE named (id INTEGER PRIMARY KEY)")
        numbers = {(value,) for row in rows for value in row if isinstance(value, int)}
        database.executemany("INSERT INTO named VALUES (?)", numbers)
        database.execute(
            f"DELETE FROM {strings} WHERE rowid > {keep} AND rowid NOT IN (SELECT id FROM named)"
        )
        database.commit()
        # a hundred tables take a page each: what is damaged should matter
        database.execute("PRAGMA page_size = 1024")
        database.execute("VACUUM")
        database.close()
        return Path(file.name).read_bytes()


# What makes each seed: it takes a while, and a test asks for few.
SEEDS = {
    "nsys_sqlite": [
        lambda: first_rows("pipit_cloverleaf.sqlite.gz", 12),
        lambda: _written(_export_with_ranges),
    ],
    "nvprof_sqlite": [
        lambda: first_rows("josiahdavis_lm_net_17ed.sql.gz", 24),
        lambda: first_rows("syed-ahmed_tf_out.nvvp.gz", 8),
    ],
    "ncu_csv": [lambda: first_lines("averyclapp_metrics_long.csv", 12), RAW.encode],
    "nvprof_text": [
        lambda: first_lines("magus_gtx1080ti_convolutionFFT2D_trace.csv", 14),
        lambda: first_lines("magus_gtx950_convolutionFFT2D_metrics.csv.gz", 70),
        *(text.encode for text in (TEXT_TRACE, TEXT_METRICS, LAUNCH_METRICS)),
    ],
    "server_log": [
        lambda: (vllm_start() + iteration(0, 5, 9) + iteration(1, 5, 9, 1, 60)).encode(),
        lambda: sglang_log([9, 9, 9], lambda _: 9, 32, prompts=[(1, 400)]).encode(),
        lambda: llama_log([1, 2], lambda _: 9, per_phase=2, joined=False).encode(),
        lambda: llama_log([1, 2], lambda _: 9, per_phase=2, joined=True).encode(),
    ],
    "serving_results": [
        lambda: json.dumps(guidellm((1, 4))).encode(),
        lambda: lines(map(vllm, (1, 2, 4))).encode(),
    ],
    "llama_bench": [BATCHED.read_bytes, EXPERTS.encode],
    "speedscope_json": [lambda: json.dumps(flame_graph(WAITING, MAIN)).encode()],
    "tensorflow_json": [
        lambda: first_events("dleebrown_anna_timeline_01.json.gz", 24),
        *(partial(trace_of, events) for events in (TF1, TF2, JAX)),
    ],
    "memory_snapshot": [lambda: pickle.dumps(snapshot())],
    "xspace_pb": [lambda: _first_of_lines("tl_jax08_attention.xplane.pb", 4)],
    "time_table": [
        lambda: b"problem,batch,time_ms\na,1,2\na,2,3\nb,4,5 ms\n",
        lambda: (
            b"> | M | main (us) | tok/s |\n> |---|---|---|\n> | 8 | 24.5 | 3 |\n> | 9 | OOM | 4 |\n"
        ),
        json.dumps({"batch": [1, 2], "ms": [2.0, 3.0]}).encode,
    ],
    "pytorch_json": [
        lambda: first_events("hta_alexnet_trace.json.gz", 30),
        partial(trace_of, PLANTED),
    ],
}


@cache
def seeds(reader):
    """The seeds of a reader, each made once."""
    return [make() for make in SEEDS[reader]]


def _written(write, **options):
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        return write(Path(folder) / "profile", **options).read_bytes()


def _export_with_ranges(path):
    """Has what the shared one lacks: NVTX, named by text and by id, in two threads and with its
    domain.
    """
    ranges = [
        *TWO_STEPS["ranges"],
        push_pop(None, 1100, 1500, AUTOGRAD, textId=4, domainId=5, color=0xFF00FF00),
    ]
    return write_export(path, **{**TWO_STEPS, "ranges": ranges}, waits=[wait(2, 3, 7), wait(4, 1)])


def _first_of_lines(name, count):
    """An XSpace with the first events of each line, and what they name."""
    space = _message_type("XSpace").FromString(unpacked(name))
    for plane in space.planes:
        for line in plane.lines:
            del line.events[count:]
        used = {event.metadata_id for line in plane.lines for event in line.events}
        kept = [entry for entry in plane.event_metadata if entry.key in used]
        del plane.event_metadata[:]
        plane.event_metadata.extend(kept)
    return space.SerializeToString()


class Sink:
    """A writer that checks what it is given and keeps nothing."""

    def __init__(self, path, meta):
        self.path, self.rows = path, 0

    def next_part(self, table):
        return "0"

    def write(self, table, data, part=None):
        import pyarrow as pa

        checked = conform(
            TABLES[table], data if isinstance(data, pa.Table) else pa.table(dict(data))
        )
        self.rows += checked.num_rows
        if table == "kernels":
            durations = [d for d in checked["duration_ns"].to_pylist() if d is not None]
            assert all(0 <= duration < 2**63 for duration in durations)

    def update(self, **meta):
        json.dumps(meta, allow_nan=False)

    def check(self):
        pass

    def count_lost(self, name, count, sentence=None):
        assert isinstance(count, int)
        assert count >= 0
        assert sentence or loss(name).sentence

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def damage(reader, number):
    """An input: a seed with some damage, decided by the number alone."""
    random = Random(f"{reader} {number}")
    data = random.choice(seeds(reader))
    if reader.endswith("_sqlite") and random.random() < 0.8:
        return _damage_rows(data, random)
    if reader.endswith("_json") and random.random() < 0.6:
        return _damage_values(data, random)
    if reader == "xspace_pb" and random.random() < 0.6:
        return _damage_messages(data, random)
    for _ in range(random.choice((1, 1, 2, 5))):
        at, length = random.randrange(len(data) + 1), random.choice((1, 1, 4, 40))
        kind = random.random()
        if kind < 0.1:
            data = data[:at]
        elif kind < 0.3:
            data = data[:at] + data[at + length :]
        elif kind < 0.5:
            data = data[:at] + random.choice(JUNK_TEXT) + data[at:]
        elif kind < 0.7:
            data = data[:at] + random.choice(JUNK_TEXT) + data[at + length :]
        elif kind < 0.8:
            data = data[:at] + data[max(0, at - length) :]
        else:
            data = (
                data[:at]
                + bytes(random.randrange(256) for _ in range(length))
                + data[at + length :]
            )
    return gzip.compress(data, 1)[: random.choice((None, -9))] if random.random() < 0.03 else data


def _damage_rows(data, random):
    with tempfile.NamedTemporaryFile(suffix=".sqlite", dir=SCRATCH) as file:
        file.write(data)
        file.flush()
        database = sqlite3.connect(file.name)
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = MEMORY")
        tables = [
            t for (t,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for _ in range(random.choice((1, 2, 6))):
            table = random.choice([t for t in tables if t != "sqlite_sequence"])
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            rows = [r for (r,) in database.execute(f"SELECT rowid FROM {table} LIMIT 50")]
            what = f'"{random.choice(columns)}"'
            where = (
                f" WHERE rowid = {random.choice(rows)}" if rows and random.random() < 0.8 else ""
            )
            try:
                if random.random() < 0.85:
                    database.execute(
                        f"UPDATE {table} SET {what} = ?{where}", (random.choice(JUNK_VALUES),)
                    )
                elif random.random() < 0.5:
                    database.execute(f"ALTER TABLE {table} DROP COLUMN {what}")
                else:
                    database.execute(f"DELETE FROM {table}{where}")
            except sqlite3.Error:
                continue
        database.commit()
        database.close()
        return Path(file.name).read_bytes()


def _damage_values(data, random):
    """Other values, or none, anywhere in a JSON document."""
    document = json.loads(data)
    for _ in range(random.choice((1, 2, 6))):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = random.choice(keys)
            if isinstance(place[key], (dict, list)) and random.random() < 0.9:
                place = place[key]
                continue
            if random.random() < 0.9:
                place[key] = deepcopy(random.choice(JUNK_JSON))
            else:
                del place[key]
            break
    return json.dumps(document).encode()


def _damage_messages(data, random):
    """Other values in some fields of an XSpace, or fields without a value; it can still
    be decoded.
    """
    space = _message_type("XSpace").FromString(data)
    for _ in range(random.choice((1, 2, 6))):
        message = space
        while True:
            inner = [value for field, value in message.ListFields() if field.message_type]
            inner = [
                one for value in inner for one in (value if hasattr(value, "add") else [value])
            ]
            if not inner or (message is not space and random.random() < 0.3):
                break
            message = random.choice(inner)
        fields = [field for field in message.DESCRIPTOR.fields if not field.message_type]
        if not fields or random.random() < 0.1:
            message.Clear()
            continue
        field = random.choice(fields)
        junk = {
            "string": "x" * random.choice((0, 1, 5000)),
            "bytes": random.choice((b"", b"\xff\x00", b"Stream #9")),
        }
        number = random.choice((0, 1, 7, 2**31, 2**63 - 1))
        signed = number * random.choice((1, -1))
        kinds = {1: float(number), 3: signed, 4: number, 9: junk["string"], 12: junk["bytes"]}
        setattr(message, field.name, kinds[field.type])
    return space.SerializeToString()


def feed(reader, number, path):
    """Import one damaged input; returns whether it was read."""
    return feed_bytes(damage(reader, number), path)


def feed_bytes(data, path):
    """Import an input; returns whether it was read. Anything but a refusal escapes."""
    path.write_bytes(data)
    try:
        with (
            patch.object(readers, "RecordingWriter", Sink),
            patch.object(readers, "describe_import", lambda _: None),
        ):
            readers.import_profile(path, path.with_name("target"))
    except CurvescopeError as error:
        refusal = str(error)
    else:
        return True
    assert 20 < len(refusal) < 2000
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reader", nargs="*", default=list(readers.READERS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("error")
    for reader in args.reader:
        began, read, slowest = time.monotonic(), 0, (0.0, 0)
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            for number in range(args.first, args.first + args.count):
                start = time.monotonic()
                try:
                    read += feed(reader, number, Path(folder) / "profile")
                except BaseException:
                    print(f"{reader}: input {number} escaped", file=sys.stderr)
                    raise
                slowest = max(slowest, (time.monotonic() - start, number))
        elapsed = time.monotonic() - began
        print(
            f"{reader}: {args.count} inputs, {read} read, the rest refused, none escaped; "
            f"{elapsed:.0f} s, slowest {slowest[0]:.2f} s (input {slowest[1]})",
            flush=True,
        )


if __name__ == "__main__":
    main()
