"""Recordings that somebody tampered with: a refusal names the file and the entry, and a store is
listed in any case.
"""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvescope.analysis.decompose.statistics import ALL_STEPS, STATISTICS
from curvescope.analysis.render.documents import json_text
from curvescope.base.errors import CurvescopeError
from curvescope.base.limits import META_BYTES, PART_FREE_ROWS, VARIABLE
from curvescope.profiling.readers import import_profile, pytorch_json
from curvescope.profiling.recording.export import export_parquet
from curvescope.profiling.recording.parquet_pages import _read_head, count_unpacked_bytes
from curvescope.profiling.recording.store import open_recording

from ..curvescope.recordings import write_planted
from ..tables import ask_each


@pytest.fixture
def store(tmp_path):
    """A folder with a whole recording `a`."""
    write_planted(tmp_path / "a")
    return tmp_path


def tamper(store, name="b", **entries):
    """A copy of the recording's `recording.json`, with other entries."""
    meta = json.loads((store / "a" / "recording.json").read_text())
    (store / name).mkdir()
    (store / name / "recording.json").write_text(json.dumps({**meta, **entries}))
    return store / name


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"network": 5}, "`network`: expected text or null, got a whole number (network is 5)"),
        ({"batches": 7}, "`batches`: expected a list or null, got a whole number"),
        ({"batches": [1, "x"]}, "`batches[1]`: expected a whole number, got text"),
        ({"batches": [0]}, "`batches[0]`: expected a whole number >= 1"),
        ({"batches": [2**70]}, "`batches[0]`: expected a whole number <= 1099511627776"),
        ({"device": "x"}, "`device`: expected an object or null, got text"),
        (
            {"device": {"sm_count": "x"}},
            "`device.sm_count`: expected a whole number or null, got text",
        ),
        (
            {"lost": {"x": {"count": -1, "sentence": ""}}},
            "`lost[...].count`: expected a whole number >= 0",
        ),
        ({"lost": {"x": {}}}, "`lost[...]`: object missing required field count"),
        ({"protocol": [1]}, "`protocol`: expected an object or null, got a list"),
        (
            {"protocol": {"statistic": "x" * 70_000}},
            "`protocol.statistic`: expected text matching regex",
        ),
        (
            {"ceilings": {"flops_per_s": 1e308}},
            "`ceilings.flops_per_s`: expected a number <= 1e+30",
        ),
        ({"layer_classes": {"fc6": None}}, "`layer_classes[...]`: expected text, got null"),
        ({"unmeasured": [{}]}, "`unmeasured[0]`: object missing required field batch"),
        ({"axis": {"name": "../x"}}, "`axis.name`: expected text matching regex"),
        ({"experiments": [{"number": 0}]}, "`experiments[0]`: object missing required field"),
        ({"status": "\x1b[2Jowned"}, "`status`: expected text matching regex"),
        ({"schema_version": -5}, "`schema_version`: expected a whole number >= 1"),
    ],
)
def test_an_entry_of_another_type_is_refused_by_name(entries, said, store, refusal_of):
    path = tamper(store, **entries)
    with pytest.raises(CurvescopeError) as refused:
        open_recording(path)
    assert str(refused.value).startswith(f"{path}/recording.json is damaged or edited: {said}")
    assert len(str(refused.value)) < 500
    assert "recording.json is damaged" in refusal_of("explain", path)


BROKEN = {
    "deep": lambda file: file.write_text(
        '{"format": "curvescope recording", "x": ' + "[" * 100_000 + "]" * 100_000
    ),
    "brackets": lambda file: file.write_text("[" * 99_999),
    "no number": lambda file: file.write_text('{"rounds": NaN}'),
    "digits": lambda file: file.write_text('{"rounds": ' + "9" * 5000 + "}"),
    "pipe": lambda file: os.mkfifo(file),
    "large": lambda file: file.write_text(" " * (META_BYTES + 1)),
    "binary": lambda file: file.write_bytes(b"\xff\xfe\x00"),
}


def test_half_a_character_is_read_as_one_that_documents_can_have(store):
    meta = open_recording(tamper(store, network="al\ud800ex", device=None)).meta
    assert meta["network"] == "al?ex"
    assert "al?ex" in json_text(meta)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("gone", ["device", "library"])
def test_a_modelled_recording_that_does_not_say_of_what_is_refused(
    gone, tmp_path, command, refusal_of
):
    """Found by fuzzing."""
    command("diagnose", "alexnet", "--card", "gtx1080", "-o", "m", cwd=tmp_path, code=0)
    meta = tmp_path / "m" / "recording.json"
    entries = json.loads(meta.read_text())
    del entries[gone]
    meta.write_text(json.dumps(entries))
    assert "does not say of which GPU and library" in refusal_of("explain", tmp_path / "m")


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_a_broken_recording_is_listed_beside_the_whole_ones(
    damage, store, document_of, refusal_of, text_of
):
    (store / "b").mkdir()
    damage(store / "b" / "recording.json")
    whole, broken = document_of("runs", store)["recordings"]
    assert (whole["status"], whole["unreadable"]) == ("complete", None)
    assert broken["status"] == "unreadable"
    assert "recording.json" in broken["unreadable"]
    assert "\n" not in broken["unreadable"]
    # A long path is wrapped.
    assert f"Unreadable:{store}/b/recording.json" in "".join(text_of("runs", store).split())
    assert "recording.json" in refusal_of("explain", store / "b")


def test_an_entry_of_another_type_is_listed_too(store, document_of):
    tamper(store, device="x")
    *_, broken = document_of("runs", store)["recordings"]
    assert "`device`: expected an object or null" in broken["unreadable"]


def test_a_limit_is_raised_by_the_environment(store, monkeypatch):
    (store / "b").mkdir()
    meta = (store / "a" / "recording.json").read_text()
    (store / "b" / "recording.json").write_text(meta + " " * META_BYTES)
    with pytest.raises(CurvescopeError, match="set CURVESCOPE_LIMITS=10 in the environment"):
        open_recording(store / "b")
    monkeypatch.setenv(VARIABLE, "2")
    assert open_recording(store / "b").complete
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(
        CurvescopeError, match="CURVESCOPE_LIMITS is 'much': set it to a whole number"
    ):
        open_recording(store / "b")


def change(recording, table, column, values):
    """Replace values of a column in all rows of the first part of a table."""
    part = recording / table / "00000.parquet"
    rows = pq.read_table(part)
    made = pa.array([values(index, value) for index, value in enumerate(rows[column].to_pylist())])
    pq.write_table(rows.set_column(rows.column_names.index(column), column, made), part)


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        (
            "steps",
            "duration_ns",
            -1,
            "steps.duration_ns is -1 in row 3, and can be 1 to 1,125,899,906,842,624",
        ),
        ("steps", "duration_ns", 0, "steps.duration_ns is 0 in row 3"),
        ("steps", "duration_ns", 2**63 - 1, "steps.duration_ns is 9223372036854775807 in row 3"),
        ("steps", "batch", 0, "steps.batch is 0 in row 3, and can be 1 to"),
        ("steps", "batch", -4, "steps.batch is -4 in row 3"),
        ("kernels", "duration_ns", -(10**9), "kernels.duration_ns is -1000000000 in row 3"),
        ("kernels", "duration_ns", 2**62, "kernels.duration_ns is 4611686018427387904 in row 3"),
        ("kernels", "start_ns", 2**63 - 1, "kernels.start_ns is 9223372036854775807 in row 3"),
        ("kernels", "flops", -1, "kernels.flops is -1 in row 3"),
        ("kernels", "tensor_pipe_use", float("nan"), "kernels.tensor_pipe_use is nan in row 3"),
        ("kernels", "tensor_pipe_use", float("inf"), "kernels.tensor_pipe_use is inf in row 3"),
    ],
)
def test_a_number_that_nothing_reaches_is_refused_by_row(
    table, column, value, said, store, refusal_of
):
    change(store / "a", table, column, lambda row, old: value if row == 3 else old)
    with pytest.raises(CurvescopeError) as refused:
        open_recording(store / "a").frame(table)
    assert f"{store}/a/{table}/00000.parquet is damaged" in str(refused.value)
    assert said in str(refused.value)
    if column not in ("flops", "tensor_pipe_use"):
        assert said in refusal_of("breakdown", store / "a")


def test_times_whose_sum_nothing_reaches_are_refused(store):
    change(store / "a", "kernels", "duration_ns", lambda *_: 2**49)
    with pytest.raises(
        CurvescopeError, match=r"kernels\.duration_ns adds up to .* ns, which nothing reaches"
    ):
        open_recording(store / "a").frame("kernels")


@pytest.mark.parametrize("command", ["breakdown", "explain"])
def test_a_copied_part_is_refused(command, store, refusal_of):
    steps, kernels = (store / "a" / table / "00000.parquet" for table in ("steps", "kernels"))
    shutil.copy(steps, steps.with_name("00001.parquet"))
    assert "steps holds step 0 2 times: a part was copied" in refusal_of(command, store / "a")
    steps.with_name("00001.parquet").unlink()
    shutil.copy(kernels, kernels.with_name("00001.parquet"))
    assert f"00001.parquet is a copy of {kernels}" in refusal_of(command, store / "a")


FIRST_IN_THREADS = """
import json, sys, threading
from pathlib import Path
from curvescope.profiling.recording.entries import check_entries
sys.setswitchinterval(1e-6)
meta, begin, checked = json.loads(Path(sys.argv[1]).read_text()), threading.Barrier(16), []
def check():
    begin.wait()
    check_entries(meta)
    checked.append(True)
threads = [threading.Thread(target=check) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(checked) == 16
"""


def test_recordings_are_opened_in_threads(store):
    """msgspec looks at the types of entries at the first use, and crashes where two threads do so
    at once.
    """
    command = [sys.executable, "-c", FIRST_IN_THREADS, str(store / "a" / "recording.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("statistic", [name for name in STATISTICS if name != ALL_STEPS])
def test_every_statistic_that_a_step_can_have_is_read(statistic, store):
    assert open_recording(tamper(store, protocol={"statistic": statistic})).statistic == statistic


READING = ["breakdown", "export --perfetto", "export --csv", "export --parquet"]


@pytest.mark.parametrize("command", READING)
def test_a_pipe_in_place_of_a_part_is_refused(command, store, refusal_of):
    os.mkfifo(store / "a" / "kernels" / "00001.parquet")
    words = [store / "a", *(("-o", store / "new") if "export" in command else ())]
    assert "00001.parquet: it is no regular file" in refusal_of(*command.split(), *words)


@pytest.mark.parametrize("command", READING)
def test_a_value_of_a_part_is_not_repeated_in_full(command, store, refusal_of):
    """Arrow's message has the text that is no number."""
    change(store / "a", "kernels", "start_ns", lambda *_: "x" * 70_000)
    words = [store / "a", *(("-o", store / "new") if "export" in command else ())]
    said = refusal_of(*command.split(), *words)
    assert "is damaged or not from Curvescope" in said
    assert len(said) < 1000


def bomb(path, rows, name):
    """A part of so many equal kernels, in little memory."""
    count = min(rows, 1 << 20)
    columns = {
        "name": pa.array([name]).dictionary_encode().take(pa.array(np.zeros(count, np.int64)))
    }
    columns |= {
        "source": pa.array(["cupti"]).dictionary_encode().take(pa.array(np.zeros(count, np.int64)))
    }
    columns |= {
        column: pa.array(np.ones(count, np.int64)) for column in ("duration_ns", "step", "start_ns")
    }
    table = pa.table(columns)
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(rows // count):
            writer.write_table(table)


@pytest.mark.parametrize(
    ("rows", "name", "said"),
    [
        (4 << 20, "k", r"4,194,304 rows in [\d,]+ bytes"),
        (1 << 17, "k" * 65_536, r"[\d,]+ bytes of text in [\d,]+;"),
    ],
)
def test_a_part_out_of_proportion_is_refused(rows, name, said, store, refusal_of):
    bomb(store / "a" / "kernels" / "00001.parquet", rows, name)
    before = pa.total_allocated_bytes()
    with pytest.raises(CurvescopeError, match=f"kernels/00001.parquet: it has {said}"):
        open_recording(store / "a").arrow("kernels")
    assert pa.total_allocated_bytes() - before < 1 << 28
    if rows > 1 << 20:
        assert "CURVESCOPE_LIMITS=10" in refusal_of("breakdown", store / "a")


@pytest.mark.slow
def test_many_parts_out_of_proportion_together_are_refused(store):
    for number in range(1, 5):
        bomb(store / "a" / "kernels" / f"{number:05d}.parquet", PART_FREE_ROWS, "k" * number)
    with pytest.raises(CurvescopeError, match=r"a/kernels: it has 8,\d+,\d+ rows in"):
        open_recording(store / "a").arrow("kernels")


def write_lying(path, rows, groups):
    """A part of `kernels` with names of a megabyte, packed to little, whose footer says that its
    groups hold next to nothing.
    """
    names = pa.table({"name": pa.array(["n" * (1 << 20)] * rows)})
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, names.schema, **options) as writer:
        for _ in range(groups):
            writer.write_table(names)
    data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    for group in range(groups):
        said = varint(2 * metadata.row_group(group).total_byte_size)
        # field 2 of a group, then field 3, its number of rows
        at = data.find(b"\x16" + said + b"\x16" + varint(2 * rows), len(data) - 4000)
        assert at > 0
        data[at + 1 : at + 1 + len(said)] = b"\x82" + b"\x80" * (len(said) - 2) + b"\0"
    path.write_bytes(data)


def varint(number):
    """A number in the compact protocol of Thrift."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


@pytest.mark.first_rows(2)
@pytest.mark.parametrize("command", READING)
def test_a_footer_that_lies_about_its_pages_is_not_believed(command, store, refusal_of):
    part = store / "a" / "kernels" / "00001.parquet"
    write_lying(part, rows=100, groups=3)
    assert pq.read_metadata(part).row_group(0).total_byte_size == 1
    before = pa.total_allocated_bytes()
    words = [store / "a", *(("-o", store / "new") if "export" in command else ())]
    assert "it has 314,57" in (said := refusal_of(*command.split(), *words)), said
    assert "unpacked bytes in" in said
    assert pa.total_allocated_bytes() - before < 1 << 28


def test_the_pages_of_a_part_say_what_its_footer_says(store):
    part = store / "a" / "kernels" / "00000.parquet"
    with pa.OSFile(os.fsencode(part)) as source:
        metadata = pq.read_metadata(part)
        said = sum(metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups))
        # The footer counts the heads of the pages too.
        assert 0.5 * said < count_unpacked_bytes(source, metadata) <= said


def test_only_the_pages_of_columns_that_are_read_are_looked_at(store):
    """A part of forty columns has as many heads; what is not read is not unpacked."""
    part = store / "a" / "kernels" / "00000.parquet"
    with pa.OSFile(os.fsencode(part)) as source:
        metadata = pq.read_metadata(part)
        every = count_unpacked_bytes(source, metadata)
        each = [count_unpacked_bytes(source, metadata, [name]) for name in metadata.schema.names]
    assert len(each) > 1
    assert min(each) > 0
    assert sum(each) == every


@ask_each("data", [b"", b"\x15", b"\xff" * 40, b"\x1c" * 99, b"\x15\0\x15\x01\0", b"\0"])
def test_what_is_no_head_of_a_page_is_refused(data):
    with pytest.raises(ValueError, match="head of a page"):
        _read_head(data)


def test_a_folder_whose_name_is_no_text_is_read(tmp_path, text_of):
    folder = tmp_path / os.fsdecode(b"R\xfc")
    write_planted(folder)
    assert "ms" in text_of("breakdown", folder)
    export_parquet(open_recording(folder), tmp_path / os.fsdecode(b"new\xfc"))
    assert (tmp_path / os.fsdecode(b"new\xfc") / "kernels.parquet").is_file()


@pytest.mark.parametrize("fails", ["an entry that does not fit", "no memory"])
def test_an_import_that_fails_leaves_nothing(fails, tmp_path, monkeypatch):
    trace = tmp_path / "trace.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 5, "pid": 0, "tid": 7}
    kernel["args"] = {"correlation": 1, "device": 0, "stream": 7}
    trace.write_text(json.dumps({"traceEvents": [kernel]}))
    if fails == "no memory":
        says, error = "reading it takes more memory than there is", MemoryError()
    else:
        says, error = (
            "`device.name`: expected text",
            CurvescopeError("`device.name`: expected text"),
        )

    def end(*_):
        raise error

    monkeypatch.setattr(pytorch_json, "read", end)
    with pytest.raises(CurvescopeError) as raised:
        import_profile(trace, tmp_path / "R")
    assert not (tmp_path / "R").exists()
    assert str(raised.value).startswith(f"{trace}: {says}")
