"""Nsight Systems exports: the shared files against SQL on them, and every schema and oddity by
hand.
"""

import gzip
import json
import re
import sqlite3
from functools import partial

import pytest

from curvescope.analysis.decompose.breakdown import break_down
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import sqlite_tables

from .made_profiles import PROFILES, imported, lost, query, rows
from .nsys_export import (
    AUTOGRAD,
    GLOBAL_PID,
    KERNEL_COLUMNS,
    STRINGS,
    graph_node,
    kernel,
    launch,
    push_pop,
    tid,
    wait,
    write_export,
)

CLOVERLEAF = PROFILES / "pipit_cloverleaf.sqlite.gz"
WEATHERBENCH = PROFILES / "frasertajima_weatherbench2.sqlite.gz"


def test_cloverleaf_is_what_sql_says_it_is(tmp_path):
    recording = imported(CLOVERLEAF, tmp_path)
    kernels, launches = recording.frame("kernels"), recording.frame("api_calls")
    sql = (
        "SELECT s.value, count(*), sum(k.end - k.start), sum(k.gridX * k.blockX) FROM "
        "CUPTI_ACTIVITY_KIND_KERNEL k "
    )
    by_name = query(
        CLOVERLEAF, tmp_path, sql + "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
    )
    assert len(by_name) == 102
    found = kernels.assign(threads=kernels["grid_x"].astype("int64") * kernels["block_x"]).groupby(
        "name"
    )
    assert by_name == [
        (name, len(rows), rows["duration_ns"].sum(), rows["threads"].sum())
        for name, rows in sorted(found)
    ]
    sql = "SELECT count(*), sum(bytes), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    memory = recording.frame("memory")
    assert [(len(memory), memory["bytes"].sum(), memory["duration_ns"].sum())] == query(
        CLOVERLEAF, tmp_path, sql
    )
    sql = (
        "SELECT s.value, count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds s ON s.id = "
        "nameId GROUP BY 1"
    )
    calls = query(CLOVERLEAF, tmp_path, sql)
    assert sorted(launches.groupby("name").size().items()) == [
        (re.sub(r"_v\d+$", "", name), n) for name, n in calls
    ]
    assert set(recording.meta["missing"]) == {"ranges"}
    assert recording.meta["device"]["name"] == "NVIDIA A100-SXM4-80GB"
    assert recording.meta["profiler"]["version"] == "2024.5.1.113"


def test_cloverleaf_has_its_time_steps_by_repetition(tmp_path):
    recording = imported(CLOVERLEAF, tmp_path)
    assert recording.meta["steps_from"] == "repetition of the kernel sequence"
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    inside = kernels[kernels["step"].notna()]
    assert inside.groupby("step").size().nunique() == 1
    assert inside.groupby("step")["name"].agg(tuple).nunique() == 1
    rows = break_down(steps, partial(recording.pieces, "kernels"), "kernel").rows
    seen_ms = sum(row.time_ms for row in rows if row.label != "idle")
    first, last = (
        int(steps["start_ns"].min()),
        int((steps["start_ns"] + steps["duration_ns"]).max()),
    )
    sql = (
        f"SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start >= {first} AND end "
        f"<= {last}"
    )
    ((busy,),) = query(CLOVERLEAF, tmp_path, sql)
    assert inside["duration_ns"].sum() == busy
    assert seen_ms == pytest.approx(
        busy / len(steps) / 1e6, rel=0.02
    )  # the mean of the central half of the steps


def test_an_export_without_kernels_is_not_an_export_of_no_time(tmp_path):
    recording = imported(WEATHERBENCH, tmp_path)
    assert recording.parts("kernels") == []
    assert "GPU activity was not recorded" in recording.meta["missing"]["kernels"]
    assert recording.frame("steps").empty
    assert recording.frame("memory")[["kind", "bytes", "duration_ns"]].values.tolist() == [
        ["memset", 4608, 1472]
    ]


TWO_STEPS = {
    "ranges": [
        push_pop("batch_size=16", 0, 5),
        *[push_pop(f"iteration {i}", 1000 * i + 10, 1000 * i + 900) for i in (0, 1)],
        *[push_pop("forward", 1000 * i + 20, 1000 * i + 400) for i in (0, 1)],
        *[push_pop("encoder", 1000 * i + 30, 1000 * i + 300) for i in (0, 1)],
        *[push_pop("fc1", 1000 * i + 40, 1000 * i + 200) for i in (0, 1)],
        *[
            push_pop(f"aten::addmm, seq = {7 + i}, op_id = 3", 1000 * i + 50, 1000 * i + 100)
            for i in (0, 1)
        ],
        *[
            push_pop(f"AddmmBackward0, seq = {7 + i}", 1000 * i + 500, 1000 * i + 600, AUTOGRAD)
            for i in (0, 1)
        ],
        *[
            push_pop("torch::autograd::AccumulateGrad", 1000 * i + 610, 1000 * i + 650, AUTOGRAD)
            for i in (0, 1)
        ],
        *[push_pop("optimizer.step", 1000 * i + 700, 1000 * i + 800) for i in (0, 1)],
        {"eventType": 34, "text": "checkpoint", "start": 1950, "globalTid": tid(1)},
        {
            "eventType": 60,
            "text": "epoch",
            "start": 0,
            "end": 2000,
            "globalTid": tid(1),
            "endGlobalTid": tid(2),
        },
        {"eventType": 75, "text": "NCCL", "domainId": 5, "globalTid": tid(1)},
        push_pop("ncclAllReduce", 1720, 1760, domainId=5),
        push_pop("left open", 1990, None),
    ],
    "launches": [
        *[launch(10 * i + 1, 1000 * i + 60) for i in (0, 1)],
        *[launch(10 * i + 2, 1000 * i + 250) for i in (0, 1)],
        *[launch(10 * i + 3, 1000 * i + 520, AUTOGRAD) for i in (0, 1)],
        *[launch(10 * i + 4, 1000 * i + 620, AUTOGRAD) for i in (0, 1)],
        *[launch(10 * i + 5, 1000 * i + 730) for i in (0, 1)],
    ],
    "kernels": [
        *[kernel(10 * i + 1, 1000 * i + 70, 1000 * i + 240) for i in (0, 1)],
        *[kernel(10 * i + 2, 1000 * i + 260, 1000 * i + 290, demangledName=4) for i in (0, 1)],
        *[kernel(10 * i + 3, 1000 * i + 530, 1000 * i + 700, demangledName=6) for i in (0, 1)],
        *[kernel(10 * i + 4, 1000 * i + 700, 1000 * i + 710, demangledName=6) for i in (0, 1)],
        *[kernel(10 * i + 5, 1000 * i + 740, 1000 * i + 950, demangledName=4) for i in (0, 1)],
    ],
    "copies": [
        {
            "start": 15,
            "end": 18,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7,
            "correlationId": 99,
            "bytes": 64,
        }
        | {"copyKind": 1, "globalPid": GLOBAL_PID}
    ],
}


def test_work_that_was_not_recorded_is_not_idle_time(tmp_path, refusal_of, text_of):
    """Found by use: launches and step marks of a run under WSL 2 broke down into 100 % idle."""
    ranges, launches = [push_pop("step 1", 0, 90)], [launch(1, 20)]
    path = write_export(tmp_path / "p", ranges=ranges, launches=launches)
    said = text_of("import", path, "-o", tmp_path / "r")
    assert "GPU activity was not recorded" in said
    assert "Next:" not in said
    assert "nothing to break down" in refusal_of("breakdown", tmp_path / "r")


@pytest.mark.parametrize("version", KERNEL_COLUMNS)
def test_kernels_join_launches_ranges_and_backward_in_every_schema(version, tmp_path):
    recording = imported(write_export(tmp_path / "p", version, **TWO_STEPS), tmp_path)
    placements = {row["start_ns"]: row for row in recording.arrow("kernels").to_pylist()}
    placed = {
        start: (row["layer"], row["phase"], row["op"], row["step"])
        for start, row in placements.items()
    }
    assert placed == {
        70: ("encoder/fc1", "forward", "aten::addmm", 0),
        260: ("encoder", "forward", None, 0),
        530: ("encoder/fc1", "backward", "AddmmBackward0", 0),
        700: ("encoder/fc1", "backward", "torch::autograd::AccumulateGrad", 0),
        740: (None, "optimizer", None, 0),
        1070: ("encoder/fc1", "forward", "aten::addmm", 1),
        1260: ("encoder", "forward", None, 1),
        1530: ("encoder/fc1", "backward", "AddmmBackward0", 1),
        1700: ("encoder/fc1", "backward", "torch::autograd::AccumulateGrad", 1),
        1740: (None, "optimizer", "ncclAllReduce", 1),
    }
    first = placements[70]
    assert (first["name"], first["duration_ns"], first["grid_y"], first["block_x"]) == (
        "sgemm<128>",
        170,
        3,
        64,
    )
    assert (first["shared_memory_bytes"], first["process"], first["device"], first["stream"]) == (
        1040,
        4321,
        0,
        7,
    )
    steps = rows(recording, "steps", "start_ns", "duration_ns", "mode")
    # A step reaches to the end of the work launched in it, not of its range on the host.
    assert steps == [(10, 940, "training"), (1010, 940, "training")]
    assert recording.meta["steps_from"] == "marks"
    assert lost(recording) == {"device_work_without_launch": 1, "ranges_unclosed": 1}
    kinds = {row["name"]: row["kind"] for row in recording.arrow("ranges").to_pylist()}
    assert (kinds["checkpoint"], kinds["epoch"], kinds["fc1"]) == ("mark", "start_end", "push_pop")
    (copy,) = recording.arrow("memory").to_pylist()
    assert (copy["memcpy_kind"], copy["bytes"], copy["step"]) == ("HtoD", 64, 0)
    assert recording.meta["device"]["sm_count"] == 80
    assert "secret" not in json.dumps(recording.meta)


def test_a_range_pattern_replaces_the_habits(tmp_path):
    path = write_export(tmp_path / "p", **TWO_STEPS)
    recording = imported(
        path, tmp_path, batch=4, range_pattern=r"^(?P<layer>fc\d+)|(?P<step>epoch)"
    )
    assert recording.meta["batches"] == [4]
    assert set(recording.frame("kernels")["layer"].dropna()) == {"fc1"}
    assert recording.frame("kernels")["phase"].isna().all()
    assert len(recording.frame("steps")) == 1
    for pattern in ("(", "no groups"):
        with pytest.raises(CurvescopeError, match="range-pattern"):
            imported(path, tmp_path, range_pattern=pattern)


def test_batch_size_comes_from_shapes_or_names(tmp_path):
    conv = "aten::conv2d, seq = 1, sizes = [[24, 3, 8, 8], [4, 3, 3, 3]]"
    shaped = [push_pop("step 1", 0, 900), push_pop(conv, 10, 100)]
    recording = imported(
        write_export(tmp_path / "p", ranges=shaped, kernels=[kernel(1, 20, 90)]), tmp_path
    )
    assert recording.meta["batches"] == [24]
    named = [
        push_pop("step 1", 0, 900),
        push_pop("batch size: 8", 10, 20),
        push_pop("step 2", 900, 1000),
    ]
    write_export(tmp_path / "q", ranges=named, kernels=[kernel(1, 20, 90)])
    recording = imported(tmp_path / "q", tmp_path)
    assert recording.meta["batches"] == [8]
    assert lost(recording)["steps_without_batch"] == 1  # the other one's


def test_text_by_id_and_unknown_ids(tmp_path):
    ranges = [push_pop(None, 0, 100, textId=20), push_pop(None, 200, 300, textId=999)]
    kernels = [kernel(1, 50, 60), kernel(2, 250, 260, demangledName=12345)]
    work = {"ranges": ranges, "kernels": kernels, "launches": [launch(1, 10), launch(2, 210)]}
    path = write_export(tmp_path / "p", **work, strings=STRINGS | {20: "layer:conv1"})
    assert rows(imported(path, tmp_path), "kernels", "layer", "name") == [
        ("conv1", "sgemm<128>"),
        ("", "?"),
    ]


def test_processes_are_kept_apart(tmp_path):
    other = (1 << 48) | 777 << 24
    ranges = [push_pop("a", 0, 100), push_pop("b", 0, 100) | {"globalTid": other | 778}]
    launches = [launch(1, 10), launch(1, 10) | {"globalTid": other | 778}]
    kernels = [kernel(1, 20, 30), kernel(1, 20, 40, globalPid=other)]
    recording = imported(
        write_export(tmp_path / "p", ranges=ranges, launches=launches, kernels=kernels), tmp_path
    )
    assert rows(recording, "kernels", "process", "layer") == [(4321, "a"), (777, "b")]


@pytest.mark.parametrize("marked", [True, False], ids=["marked steps", "no steps"])
def test_rows_before_a_second_process_say_theirs_too(tmp_path, monkeypatch, marked):
    monkeypatch.setattr(sqlite_tables, "BATCH_ROWS", 1)
    other = {"globalPid": (1 << 48) | 777 << 24}
    kernels = [kernel(i, 10 * i, 10 * i + 5, **(other if i == 3 else {})) for i in (1, 2, 3)]
    launches, ranges = [launch(1, 5), launch(2, 6)], [push_pop("step 1", 0, 100)] if marked else []
    recording = imported(
        write_export(tmp_path / "p", ranges=ranges, launches=launches, kernels=kernels), tmp_path
    )
    found = [
        [process for (process,) in rows(recording, name, "process")]
        for name in ("kernels", "api_calls", "ranges")
    ]
    assert found == [[4321, 4321, 777], [4321, 4321], [4321] * marked]
    assert lost(recording)["device_work_without_launch"] == 1


def test_times_that_are_none_are_no_times(tmp_path):
    """Found by fuzzing: the least number of all, made positive, is negative still, and passed for a
    time.
    """
    far = (1 << 63) - 1
    times = [
        (0, 0),
        (500, 400),
        (-far, far),
        (None, 7),
        (-far - 1, 500),
        (100, far),
        (100, 100),
        (100, 130),
    ]
    kernels = [kernel(number, *time) for number, time in enumerate(times)]
    recording = imported(write_export(tmp_path / "p", kernels=kernels), tmp_path)
    assert rows(recording, "kernels", "duration_ns") == [(None,)] * 6 + [(0,), (30,)]
    assert lost(recording) == {"without_time": 5, "negative_durations": 1}
    assert rows(recording, "steps", "start_ns", "duration_ns") == [(100, 30)]
    assert recording.meta["device_time_in_steps"] == 1
    recording = imported(write_export(tmp_path / "none", kernels=kernels[:6]), tmp_path)
    assert (recording.count_rows("kernels"), recording.count_rows("steps")) == (6, 0)


def test_ids_of_all_64_bits_join(tmp_path):
    big = (1 << 63) - 2
    ranges, launches = [push_pop("a", 0, 100)], [launch(big, 10), launch(-big, 20)]
    kernels = [kernel(big, 30, 40), kernel(-big, 40, 50), kernel(3, 50, 60)]
    path = write_export(tmp_path / "p", ranges=ranges, launches=launches, kernels=kernels)
    assert rows(imported(path, tmp_path), "kernels", "layer") == [("a",), ("a",), (None,)]


def test_names_lose_homes_and_their_excess(tmp_path):
    ranges = [
        push_pop("/home/somebody/project/net.py:12 forward", 0, 10),
        push_pop("x" * (1 << 20), 20, 30),
    ]
    recording = imported(
        write_export(tmp_path / "p", ranges=ranges, kernels=[kernel(1, 5, 6)]), tmp_path
    )
    short, long = sorted(recording.frame("ranges")["name"], key=len)
    assert short == "net.py:12 forward"
    assert len(long) == 4096


def make_view(path):
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start FROM n"
    )
    database.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")


def make_written(path):
    write_export(path, kernels=[kernel(1, 5, 6)])
    path.with_name(path.name + "-wal").write_bytes(b"x" * 64)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: sqlite3.connect(path).execute("CREATE TABLE people (name TEXT)"),
            "none of Nsight Systems",
        ),
        (make_view, "none of Nsight Systems"),
        (lambda path: write_export(path, kernels=[kernel(1, "yesterday", 7)]), "wrong type"),
        (
            lambda path: path.write_bytes(gzip.decompress(CLOVERLEAF.read_bytes())[:200_000]),
            "damaged SQLite database",
        ),
        (lambda path: path.write_bytes(CLOVERLEAF.read_bytes()[:5000]), "cut off"),
        (make_written, "still writing"),
    ],
)
def test_bad_databases_are_refused_with_a_remedy(make, message, tmp_path, refusal_of):
    make(tmp_path / "p")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert message in refusal_of("import", tmp_path / "p", "-o", tmp_path / "r")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_locked_database_is_read_all_the_same(tmp_path):
    path = write_export(tmp_path / "p", kernels=[kernel(1, 5, 6)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = MEMORY")
    other.execute("BEGIN EXCLUSIVE")
    assert len(imported(path, tmp_path).frame("kernels")) == 1
    other.execute("ROLLBACK")
    other.close()


def test_kernels_of_a_graph_have_the_layers_under_which_their_nodes_were_captured(tmp_path):
    """Nodes 11 and 12 are captured in two threads, 21 and 22 are their clones; nobody saw the
    capture of 31.
    """
    ranges = [
        push_pop("layer:fc1", 10, 20),
        push_pop("layer:fc2", 10, 20, AUTOGRAD),
        push_pop("layer:all", 40, 50),
    ]
    nodes = [graph_node(11, 12), graph_node(12, 12, AUTOGRAD), graph_node(21, 30, original=11)]
    nodes += [graph_node(22, 30, original=12), graph_node(32, 30, original=31)]
    replayed = [
        kernel(1, 60 + i, 61 + i, graphId=5, graphNodeId=node)
        for i, node in enumerate((21, 22, 32))
    ]
    work = {"launches": [launch(1, 42)], "kernels": [*replayed, kernel(1, 70, 71)], "nodes": nodes}
    recording = imported(write_export(tmp_path / "p.sqlite", ranges=ranges, **work), tmp_path)
    placed = [("fc1", 21), ("fc2", 22), ("all", 32), ("all", None)]
    assert rows(recording, "kernels", "layer", "graph_node_id") == placed
    assert lost(recording)["graph_work_without_capture"] == 1


@pytest.mark.parametrize(
    ("count", "layers"), [(250, {"Compute"}), (100, {f"Compute {i}" for i in range(100)})]
)
def test_a_number_that_counts_calls_is_no_part_of_a_layer_and_one_of_layers_is(
    count, layers, tmp_path
):
    """A model has a hundred layers at most, so that of hundreds of numbers, each seen once, each
    counts a call.
    """
    ranges = [push_pop(f"Compute {i}", 100 * i, 100 * i + 90) for i in range(count)]
    work = {
        "launches": [launch(i + 1, 100 * i + 10) for i in range(count)],
        "kernels": [kernel(i + 1, 100 * i + 20, 100 * i + 80) for i in range(count)],
    }
    recording = imported(
        write_export(tmp_path / "p", ranges=ranges, **work), tmp_path, steps="whole"
    )
    assert set(recording.frame("kernels")["layer"]) == layers
    assert recording.frame("ranges")["name"].nunique() == count  # the ranges keep their names


def test_a_name_of_the_linker_is_demangled_and_a_long_one_kept(tmp_path):
    """PyTorch's kernels have names of 5,000 characters, which differ at their ends."""
    long = [f"void f<{'std::integral_constant<int, 1>, ' * 150}{end}>()" for end in "ab"]
    strings = {1: "_ZN2at6kernelIfLi4EEEvPT_", 2: long[0], 4: long[1], 3: "cudaLaunchKernel"}
    kernels = [
        kernel(i, 10 * i, 10 * i + 5, demangledName=name) for i, name in enumerate((1, 2, 4))
    ]
    names = imported(
        write_export(tmp_path / "p", kernels=kernels, strings=strings), tmp_path
    ).frame("kernels")["name"]
    assert set(names) == {"void at::kernel<float, 4>(float*)", *long}


def test_each_kind_of_wait_joins_its_call_in_its_process(tmp_path):
    calls = [launch(number, 100 * number) for number in range(1, 7)]
    waits = [
        wait(1, 1, event=5),
        wait(2, 2, stream=13),
        wait(3, 3, stream=7),
        wait(4, 4),
        wait(5, 99),
    ]
    waits.append(wait(6, 3, process=GLOBAL_PID + (1 << 24)))  # of another process
    path = write_export(tmp_path / "e", kernels=[kernel(1, 120, 150)], launches=calls, waits=waits)
    recording = imported(path, tmp_path)
    expected = [
        ("event", None),
        ("stream_event", 13),
        ("stream", 7),
        ("context", None),
        (None, None),
        (None, None),
    ]
    assert rows(recording, "api_calls", "waits_for", "stream") == expected


def test_a_device_synchronisation_of_a_real_export_waits_for_the_context(tmp_path):
    """Nsight Systems 2024.5 writes the type of an event for cudaDeviceSynchronize, without an
    event.
    """
    recording = imported(CLOVERLEAF, tmp_path)
    calls = rows(recording, "api_calls", "name", "waits_for")
    assert {(name == "cudaDeviceSynchronize", waits) for name, waits in calls} == {
        (True, "context"),
        (False, None),
    }
