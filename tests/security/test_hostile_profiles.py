"""Profiles that ask for all memory, for hours, or to be waited for: refused in seconds, with the
way to insist.
"""

import json
import os
import sqlite3
import time
import tracemalloc

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.readers import import_profile

from ..profiling.readers.nsys_export import kernel, write_export


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def xspace(event, count):
    """An XSpace of one stream with many events of the same bytes."""
    known = field(4, b"\x08\x00" + field(2, field(2, b"k")))
    line = b"\x08\x01" + field(2, b"Stream #1(Compute)") + field(4, event) * count
    return field(1, field(2, b"/device:GPU:0") + field(3, line) + known)


def computed_column(path):
    write_export(path, kernels=[kernel(1, 5, 6)])
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE StringIds RENAME TO former")
        value = "value TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000)))"
        database.execute(f"CREATE TABLE StringIds (id INTEGER PRIMARY KEY, text TEXT, {value})")
        database.execute("INSERT INTO StringIds (id, text) SELECT id, value FROM former")


def long_default(path):
    write_export(path, kernels=[kernel(1, 5, 6)])
    with sqlite3.connect(path) as database:
        database.execute(
            f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN note TEXT DEFAULT '{'x' * 500_000}'"
        )


def view_of_kernels(path):
    write_export(path, kernels=[kernel(1, 5, 6)])
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO real")
        database.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM real")


HOSTILE = {
    "pipe": (os.mkfifo, "it is no regular file but a pipe"),
    "device": (
        lambda path: path.symlink_to("/dev/zero"),
        "it is no regular file but a pipe, device",
    ),
    "file of the kernel": (lambda path: path.symlink_to("/proc/kmsg"), "it is empty"),
    "computed column": (computed_column, "column value of table StringIds is computed"),
    "long default": (
        long_default,
        "column note of table CUPTI_ACTIVITY_KIND_KERNEL is computed, or has a default",
    ),
    "view": (view_of_kernels, "CUPTI_ACTIVITY_KIND_KERNEL is a view"),
    "two lists": (
        lambda path: path.write_text(
            '{"traceEvents": [{"ph": "X", "name": "x"}], "traceEvents": []}'
        ),
        "it has two lists `traceEvents`",
    ),
    "empty events": (
        lambda path: path.write_bytes(xspace(b"", 2_000_000)),
        "2,000,000 messages without a field",
    ),
    "short events": (
        lambda path: path.write_bytes(xspace(b"\x10\x01", 600_000)),
        "600,000 events in 2,400,",
    ),
}


def test_a_profile_whose_kernels_all_lack_a_time_is_read_and_explained(tmp_path, text_of, capsys):
    """Their durations are longer than any column holds."""
    marks = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": n * 1000, "dur": 900, "pid": 1,
              "tid": 1} for n in range(3)]  # fmt: skip
    launches = [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": n * 1000 + 1, "dur": 5, "pid": 1,
                 "tid": 1, "args": {"correlation": n}} for n in range(3)]  # fmt: skip
    kernels = [{"ph": "X", "cat": "kernel", "name": "k", "ts": n * 1000, "dur": 2**53, "pid": 0, "tid": 7,
                "args": {"device": 0, "stream": 7, "correlation": n}} for n in range(3)]  # fmt: skip
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": marks + launches + kernels}))
    text_of("import", trace, "-o", tmp_path / "r")
    assert main(["explain", str(tmp_path / "r")]) in (0, 2)
    assert "What to do" not in capsys.readouterr().out


LONG = ("empty events", "computed column")  # they take four seconds and more


@pytest.mark.first_rows(4)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name in LONG))
        for name, case in HOSTILE.items()
    ],
)
def test_a_profile_out_of_proportion_is_refused(make, said, tmp_path):
    make(tmp_path / "p")
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(CurvescopeError) as refused:
            import_profile(tmp_path / "p", tmp_path / "r")
        assert tracemalloc.get_traced_memory()[1] < 1 << 30
    finally:
        tracemalloc.stop()
    assert said in str(refused.value)
    assert time.process_time() - began < 10
    assert not (tmp_path / "r").exists()
