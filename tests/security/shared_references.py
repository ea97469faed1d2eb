"""Hostile profiles whose parts refer to each other: small files that unfold to very much, joins of
equal ids, and names that reach a terminal. One function makes each.
"""

import contextlib
import json
import sqlite3
import struct
import tempfile

from ..profiling.readers.made_profiles import PROFILES
from ..server_logs import vllm_start
from .hostile_files import (
    KERNELS,
    MIB,
    SCRATCH,
    event,
    export,
    exported,
    message,
    named_files,
    packed,
    steps,
    timed,
    trace,
    varint,
    xspace,
)

MANY = 20_000


# Pickles, written by hand: to make such a value is as long as to read it.
def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def entries(**values):
    """A dictionary of values that are pickled already."""
    return b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u"


def doubled_lists(depth, first=0):
    """Lists that each hold the one before twice; the memo numbers them from `first`."""
    made = b"]\x94"
    for index in range(first, first + depth):
        made = b"](" + made + b"h" + bytes([index]) + b"e\x94"
    return made


def doubled_tuples(depth):
    """Tuples that each hold the one before twice."""
    pairs = (b"h" + bytes([index]) + b"h" + bytes([index]) + b"\x86\x94" for index in range(depth))
    return b")\x94" + b"".join(pairs)


ONE, EMPTY = b"K\x01", b"]"


def allocation(**changes):
    known = {"action": text("alloc"), "size": ONE, "addr": ONE, "frames": EMPTY, "time_us": ONE}
    return entries(**{**known, **changes})


def frame(**changes):
    return entries(**{"filename": text("x.py"), "name": text("f"), "line": ONE, **changes})


def snapshot(*events, **others):
    segment = entries(device=b"K\0", address=ONE, total_size=ONE, stream=b"K\0", blocks=EMPTY)
    traces = b"](](" + b"".join(events) + b"ee"
    return (
        b"\x80\x04"
        + entries(segments=b"](" + segment + b"e", device_traces=traces, **others)
        + b"."
    )


def shared_stacks():
    first = allocation(frames=b"](" + frame() + b"\x94e")
    return snapshot(first, *[allocation(frames=b"](" + b"h\0" * 200 + b"e")] * 8_000)


SNAPSHOTS = {
    "a key of tuples that share each other, 2^45 in all": lambda: snapshot(
        allocation(), x=b"}(" + doubled_tuples(45) + b"K\0u"
    ),
    "a file name of lists that share each other, 2^36 in all": lambda: snapshot(
        allocation(frames=b"](" + frame(filename=doubled_lists(36)) + b"e")
    ),
    "a function's name of tuples that share each other": lambda: snapshot(
        allocation(frames=b"](" + frame(name=doubled_tuples(45)) + b"e")
    ),
    "an action of tuples that share each other": lambda: snapshot(
        allocation(action=doubled_tuples(45))
    ),
    "two sizes of equal lists, 2^32 comparisons": lambda: snapshot(
        allocation(size=doubled_lists(32)), allocation(size=doubled_lists(32, 33))
    ),
    "an object named by lists that share each other": lambda: (
        b"\x80\x04" + entries(segments=doubled_lists(40) + text("x") + b"\x93") + b"."
    ),
    "a stack that holds itself": lambda: snapshot(allocation(frames=b"]\x94(h\0e")),
    "8,000 stacks of one frame, 200 times each": shared_stacks,
}


# SQLite
def cell(key, row, page):
    """A cell of a leaf whose row goes on at a page."""
    size = 4096
    least = (size - 12) * 32 // 255 - 23
    local = least + (len(row) - least) % (size - 4)
    local = local if local <= size - 35 else least
    return (
        varint_of_sqlite(len(row)) + varint_of_sqlite(key) + row[:local] + struct.pack(">I", page)
    )


def varint_of_sqlite(number):
    out = [number & 127]
    while number := number >> 7:
        out.insert(0, number & 127 | 128)
    return bytes(out)


def page_of(kind, cells, last=None):
    """A page of a table: its cells, and of an inner page the last child."""
    size = 4096
    page, at, pointers = bytearray(size), size, b""
    for each in cells:
        at -= len(each)
        page[at : at + len(each)] = each
        pointers += struct.pack(">H", at)
    head = struct.pack(">BHHHB", kind, 0, len(cells), at, 0)
    head += b"" if last is None else struct.pack(">I", last)
    page[: len(head)] = head
    page[len(head) : len(head) + len(pointers)] = pointers
    return bytes(page)


LEAF, INNER = 13, 5


def inner_page(children):
    """An inner page of children, each a page and its greatest key."""
    cells = [struct.pack(">I", page) + varint_of_sqlite(key) for page, key in children[:-1]]
    return page_of(INNER, cells, children[-1][0])


class Pages:
    """A database to which pages are added by hand."""

    def __init__(self, data):
        self.data = bytearray(data)

    def add(self, page):
        """The number of a new page."""
        self.data += page.ljust(4096, b"\0")
        return len(self.data) // 4096

    def replace(self, number, page):
        self.data[(number - 1) * 4096 : number * 4096] = page

    def finish(self):
        struct.pack_into(">I", self.data, 28, len(self.data) // 4096)
        return bytes(self.data)


def root_of(data, table):
    with tempfile.NamedTemporaryFile(suffix=".sqlite", dir=SCRATCH) as file:
        file.write(data)
        file.flush()
        with contextlib.closing(sqlite3.connect(file.name)) as database:
            asked = "SELECT rootpage FROM sqlite_master WHERE name = ?"
            return database.execute(asked, (table,)).fetchone()[0]


def shared_names(count=6_000, size=1_000_000):
    """Names of kernels whose long ends are the same pages."""
    data = export((f"UPDATE {KERNELS} SET demangledName = rowid, shortName = rowid",))
    pages = Pages(data)
    kind = varint_of_sqlite(2 * size + 13)  # of a text; the id is the row's number, and so null
    row = bytes([len(kind) + 2, 0]) + kind + b"n" * size
    first = len(pages.data) // 4096 + 1
    inline = len(cell(1, row, first)) - len(varint_of_sqlite(len(row))) - 1 - 4
    rest = row[inline:]
    blocks = [rest[at : at + 4092] for at in range(0, len(rest), 4092)]
    for number, block in enumerate(blocks, first + 1):
        following = number if number < first + len(blocks) else 0
        pages.add(struct.pack(">I", following) + block)
    each = max(1, 4000 // (len(cell(count, row, first)) + 2))
    children = []
    for low in range(1, count + 1, each):
        keys = range(low, min(low + each, count + 1))
        leaf = page_of(LEAF, [cell(key, row, first) for key in keys])
        children.append((pages.add(leaf), keys[-1]))
    while len(children) > 300:
        groups = [children[at : at + 300] for at in range(0, len(children), 300)]
        children = [(pages.add(inner_page(group)), group[-1][1]) for group in groups]
    pages.replace(root_of(data, "StringIds"), inner_page(children))
    return pages.finish()


def repeated_pages(table=KERNELS, depth=6):
    """A table whose inner pages name one child 300 times, at each of some levels."""
    pages = Pages(exported())
    root = root_of(exported(), table)
    child = pages.add(bytes(pages.data[(root - 1) * 4096 : root * 4096]))
    for _ in range(depth):
        page = inner_page([(child, key) for key in range(1, 301)])
        child = pages.add(page)
    pages.replace(root, page)
    return pages.finish()


ONE_CALL = f"UPDATE {KERNELS} SET correlationId = 7"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"


def doubled(table, times):
    return [f"INSERT INTO {table} SELECT * FROM {table}"] * times


DATABASES = {
    "6,000 names that share 1 MB": shared_names,
    "pages that name one child 300 times, six deep": repeated_pages,
    "kernels and calls of one correlation id": lambda: export(
        (
            ONE_CALL,
            f"UPDATE {RUNTIME} SET correlationId = 7",
            *doubled(KERNELS, 6),
            *doubled(RUNTIME, 3),
        )
    ),
    "300 names of each number": lambda: export(
        (
            "ALTER TABLE StringIds RENAME TO s0",
            "CREATE TABLE StringIds (id INTEGER, value TEXT)",
            *(f"INSERT INTO StringIds SELECT id, value || '{n}' FROM s0" for n in range(300)),
        )
    ),
    "names that are bytes": lambda: export(
        ("UPDATE StringIds SET value = x'ff00fe1b5d' || value",)
    ),
    "100,000 kernels of one name of 60 kB": lambda: export(
        (
            "UPDATE StringIds SET value = hex(zeroblob(30000))",
            *doubled(KERNELS, 6),
        )
    ),
    "ids below 0": lambda: export(
        (
            f"UPDATE {KERNELS} SET demangledName = -9223372036854775808, shortName = -1, "
            "deviceId = -1, streamId = 9223372036854775807, globalPid = -1",
        )
    ),
    "tables without rows": lambda: export(
        tuple(f"DELETE FROM {table}" for table in (KERNELS, RUNTIME, "StringIds"))
    ),
}


# XSpaces
def plane(name, content):
    return message(1, message(2, name) + content)


def known(number, name, more=b""):
    return message(4, message(1, number) + message(2, message(2, name) + more))


def line_of(events, name=b"Stream #1(Compute)"):
    return message(3, message(1, 1) + message(2, name) + message(3, 0) + events)


def event_of(number=1, more=b""):
    return message(4, message(1, number) + message(2, 1000) + message(3, 5000) + more)


GPU = b"/device:GPU:0"


def many_lines(count):
    """Lines without events, packed; only the heads of what holds them tell how many there are."""
    head = message(2, GPU) + line_of(event_of() * 3) + known(1, b"k")
    size = len(head) + 4 * count
    begin = varint(1 << 3 | 2) + varint(size) + head
    return packed((begin, 1), (b"\x1a\x02\x08\x00" * 100_000, count // 100_000))


def many_facts():
    facts = b"".join(message(5, message(1, n) + message(4, 1)) for n in range(10_000))
    names = b"".join(
        message(5, message(1, n) + message(2, message(2, b"s%d" % n))) for n in range(10_000)
    )
    return plane(GPU, known(1, b"k", facts) + names + line_of(event_of() * 50_000))


def module_of(*computations):
    return message(1, message(2, b"") + b"".join(message(3, each) for each in computations))


def computation(number, *instructions):
    return message(5, number) + b"".join(message(2, each) for each in instructions)


def instruction(name, opcode, more=b""):
    return message(1, name) + message(2, opcode) + more


def metadata_plane(module):
    named = message(5, message(1, 9) + message(2, message(2, b"Hlo Proto")))
    stored = message(5, message(1, 9) + message(6, module))
    return plane(b"/host:metadata", named + known(1, b"jit_f(1)", stored))


def called_often():
    adds = [instruction(b"i", b"add")] * 10_000
    fusion = message(11, b"kCustom") + message(38, b"\x01" * 200_000)
    module = module_of(computation(1, *adds), computation(2, instruction(b"j", b"fusion", fusion)))
    return plane(GPU, line_of(event_of() * 3) + known(1, b"k")) + metadata_plane(module)


SPACES = {
    "60 M lines without events in 233 kB": lambda: many_lines(60_000_000),
    "4 M lines without events": lambda: plane(
        GPU, line_of(event_of() * 3) + known(1, b"k") + b"\x1a\x02\x08\x00" * 4_000_000
    ),
    "3 M planes": lambda: xspace(timed(1000, 5000) * 3) + b"\x0a\x02\x12\x00" * 3_000_000,
    "an event of 4 M facts": lambda: plane(
        GPU, line_of(event_of(more=b"\x22\x02\x08\x01" * 4_000_000)) + known(1, b"k")
    ),
    "10,000 facts of 50,000 events": many_facts,
    "50,000 events of one name of 1 MB": lambda: plane(
        GPU, line_of(event_of() * 50_000) + known(1, b"n" * MIB)
    ),
    "a fusion that calls one computation 200,000 times": called_often,
    "a module of 300,000 instructions": lambda: (
        plane(GPU, line_of(event_of() * 3) + known(1, b"k"))
        + metadata_plane(module_of(computation(1, *[b"\x0a\x00"] * 300_000)))
    ),
    "names that are no UTF-8": lambda: plane(
        GPU, line_of(event_of() * 3, b"Stream #1\x1b[2J\xff") + known(1, b"[/x]\x1b]0;\xe2\x80\xae")
    ),
}


# Logs
def slots(count, then):
    launched = [
        f"srv  {n // 60}.{n % 60:02d}.000.000 I slot launch_slot_: id {n} | task {n} | processing "
        "task\n"
        for n in range(count)
    ]
    return "".join(launched) + then


SLOT_TIMES = (
    "slot print_timing: id  1 | task 1 | \n       eval time =    1000.00 ms /   100 tokens\n"
)
RATE = (
    "INFO 11-28 20:00:00 [loggers.py:100] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg "
    "generation throughput: 100.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: "
    "1.0%\n"
)
LOGS = {
    "llama.cpp, 20,000 slots": lambda: slots(MANY, SLOT_TIMES),
    "llama.cpp, 20,000 slots, and the times of each": lambda: slots(
        MANY,
        "".join(
            f"slot print_timing: id  {n} | task {n} | \n"
            "       eval time =    1000.00 ms /   100 tokens\n"
            for n in range(MANY)
        ),
    ),
    "vLLM, sizes of a graph without an end": lambda: (
        vllm_start() + RATE * 50 + ("cudagraph_capture_sizes=[" + "1, " * 2600 + "x ") * 2100
    ),
    "vLLM, 60,000 processes that write": lambda: "".join(
        f"(EngineCore_DP{n % 99_999} pid={n}) {RATE}" for n in range(60_000)
    ),
    "a line of 1 M equal signs": lambda: "=" * MIB,
    "1 M empty lines": lambda: "x" + "\n" * MIB,
    "vLLM, a line of 200 MB": lambda: packed((RATE.encode() * 50, 1), (b"a" * MIB, 200)),
}


# Traces of PyTorch
def call(at, name, number, **more):
    return event("cuda_runtime", name, at, 1, 1, 1, correlation=number, **more)


def step_of(length):
    return event("user_annotation", "ProfilerStep#0", 0, length, 1, 1)


def kernel_of(at, length, number, **more):
    return event("kernel", "k", at, length, correlation=number, device=0, stream=7, **more)


def captures_and_replays(count, launches):
    """Captures of some launches, which all may be what a replay of as many kernels repeats."""
    events, number = [step_of(1e7)], 1
    for n in range(count):
        names = ["cudaStreamBeginCapture", *["cudaLaunchKernel"] * launches, "cudaStreamEndCapture"]
        events += [call(10 * n + at, name, number + at) for at, name in enumerate(names)]
        number += len(names)
    for n in range(count):
        at = 10 * (count + n)
        events.append(call(at, "cudaGraphLaunch", number))
        more = [{"graph id": n, "graph node id": node + 1} for node in range(launches)]
        events += [kernel_of(at + 2 + node, 1, number, **each) for node, each in enumerate(more)]
        number += 1
    return trace(events)


def equal_ids():
    launch = [call(n, "cudaLaunchKernel", 5, **{"External id": 7}) for n in range(MANY)]
    operators = [event("cpu_op", "aten::mm", n, 1, 1, 1, **{"External id": 7}) for n in range(MANY)]
    return trace(
        [step_of(1e6), *launch, *operators, *(kernel_of(2 * n, 1, 5) for n in range(MANY))]
    )


def long_layer():
    """Kernels that one layer with a long name launched."""
    layer = event("user_annotation", "layer:" + "m." * 30_000, 0, 1e6, 1, 1)
    launched = [call(10 * n + 1, "cudaLaunchKernel", n) for n in range(MANY)]
    return trace(
        [step_of(1e6), layer, *launched, *(kernel_of(10 * n + 2, 5, n) for n in range(MANY))]
    )


def circle_of_functions():
    functions = [
        event(
            "python_function",
            f"f.py({n}): g",
            n * 0.001,
            2000 - n * 0.002,
            1,
            1,
            **{"Python id": n, "Python parent id": (n + 1) % 50_000},
        )
        for n in range(50_000)
    ]
    return trace(steps() + functions)


TRACES = {
    "a step whose mark is a word of 60 kB": lambda: trace(
        steps() + [event("user_annotation", f"step[DECODE {'a' * 60_000}]", 5, 600, 1, 1)] * 200
    ),
    "6,000 captures and 6,000 replays": lambda: captures_and_replays(6_000, 1),
    "1,000 captures of 20 launches and 1,000 replays": lambda: captures_and_replays(1_000, 20),
    "calls, operators and kernels of one id": equal_ids,
    "20,000 kernels of a layer with a name of 60 kB": long_layer,
    "functions whose callers are a circle": circle_of_functions,
    "20,000 operators at the same time": lambda: trace(
        steps()
        + [event("cpu_op", "aten::mm", 10, 100, 1, 1, **{"External id": n}) for n in range(20_000)]
    ),
    "60,000 kernels within each other": lambda: trace(
        [step_of(1e7)]
        + [
            event("kernel", "k", n, 5e6 - 2 * n, 0, n % 3, correlation=n, device=0, stream=n % 3)
            for n in range(60_000)
        ]
    ),
    "40,000 ranges across each other": lambda: trace(
        steps() + [event("user_annotation", f"r{n}", n * 0.01, 400, 1, 1) for n in range(40_000)]
    ),
    "20,000 steps within each other": lambda: trace(
        [
            event("user_annotation", f"ProfilerStep#{n}", n * 0.001, 2e4 - n * 0.002, 1, 1)
            for n in range(MANY)
        ]
        + [kernel_of(n, 1, n) for n in range(1_000)]
    ),
    "3,000 layers with names of 900 parts": lambda: trace(
        [step_of(1e6)]
        + [
            event("user_annotation", f"layer:{'m.' * 900}{n}", 100 * n, 90, 1, 1)
            for n in range(3_000)
        ]
        + [call(100 * n + 1, "cudaLaunchKernel", n) for n in range(3_000)]
        + [kernel_of(100 * n + 2, 50, n) for n in range(3_000)]
    ),
}


# Names that would reach a terminal, a page or a program.
NAMES = {
    "escapes": "\x1b]0;x\x07\x1b[31m\x9b31m",
    "other directions of writing": "\u202eabc\u2066\u200f",
    "a zero": "a\0b",
    "markup of a terminal's library": "[bold red]x[/bold red][/nope][link=http://e/]y",
    "format strings": "%s%n{0.__class__}{x!r:>99999999}",
    "Markdown": "`x` | [a](javascript:alert(1)) <img src=x onerror=alert(1)>",
    "a path upwards": "../../../../etc/passwd",
    "invisible letters": "ok" + "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all"),
    "line ends": "a\nTotal 0 ms\n\rcurvescope: run rm -rf ~",
    "5,000 accents": "a" + "\u0301" * 5000,
    "half a character": "\ud83d",
    "placeholders": "<!--DATA--><!--SCRIPT-->${1}{{x}}",
    "the end of a script": "\"'</script><svg/onload=alert(1)>\u2028",
}


def trace_named(name):
    """A trace in which everything has this name."""
    ranges = [
        event("user_annotation", f"layer:{name}", 0, 800, 1, 1),
        event("python_function", f"nn.Module: {name}_0", 5, 700, 1, 1, **{"Python module id": 0}),
    ]
    device = {"id": 0, "name": name, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    return trace(
        steps(kernel=f"k {name}", operator=f"aten::{name}") + ranges,
        deviceProperties=[{**device, "totalGlobalMem": 1 << 33}],
        distributedInfo={"backend": name, "rank": 0, "world_size": 2},
    )


# What `ranks` looks for in the first bytes of a trace.
RANKS = {
    "20,000 heads of a job without an end": lambda: (
        '{"schemaVersion":1,' + '"distributedInfo":{"a":1 ' * MANY + ',"traceEvents":[]}'
    ),
    "a rank of 5,000 digits": lambda: trace(steps()).replace(
        '{"schemaVersion"', '{"distributedInfo":{"rank":' + "9" * 5000 + '},"schemaVersion"', 1
    ),
}


def damaged_report(share):
    """A report of Nsight Compute, cut off."""
    import gzip

    data = gzip.decompress((PROFILES / "averyclapp_a10g.ncu-rep.gz").read_bytes())
    return data[: int(len(data) * share)]


TABLES = {
    "llama.cpp, 20,000 rows without a number": lambda: (
        "| model | size | params | backend | threads | n_batch | test | t/s |\n"
        "|---|---|---|---|---|---|---|---|\n"
        + "".join(
            f"| m{n} | 1 GiB | 1 B | CPU | 2 | {n} | pp{n} | nan ± inf |\n" for n in range(MANY)
        )
    ),
    "results of a benchmark, 60,000 runs": lambda: "\n".join(
        json.dumps(
            {
                "request_throughput": 5,
                "total_output_tokens": 100,
                "total_input_tokens": 50,
                "completed": 10,
                "max_concurrency": n % 1000 + 1,
                "mean_tpot_ms": 10.5 + n % 7,
                "mean_itl_ms": 10,
                "mean_ttft_ms": 3,
            }
        )
        for n in range(60_000)
    ),
    "results of a benchmark, numbers of no range": lambda: json.dumps(
        {
            "request_throughput": 1e308,
            "total_output_tokens": 2**63,
            "max_concurrency": -1,
            "completed": 2**70,
            "mean_tpot_ms": float("nan"),
            "backend": "[/x]",
        }
    ),
    "a report of Nsight Compute, cut off": lambda: damaged_report(1 / 3),
}

SHARED_FILES = {
    **named_files("memory snapshot", ".pickle", SNAPSHOTS),
    **named_files("Nsight Systems", ".sqlite", DATABASES),
    **named_files("XSpace", ".xplane.pb", SPACES),
    **named_files("text", ".log", LOGS),
    **named_files("text", ".txt", TABLES),
    **named_files("PyTorch", ".json", TRACES),
    **named_files(
        "names",
        ".json",
        {kind: lambda name=name: trace_named(name) for kind, name in NAMES.items()},
    ),
    **named_files("ranks", ".json", RANKS),
}
