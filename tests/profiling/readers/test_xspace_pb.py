"""XSpaces of JAX and TensorFlow: the same kernels as a plain loop over the messages finds."""

import gzip
import tracemalloc

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import import_profile
from curvescope.profiling.readers.source import Source
from curvescope.profiling.readers.tensorflow_json import _steps_of_devices
from curvescope.profiling.readers.xspace_pb import _message_type
from curvescope.profiling.recording.store import open_recording

from .made_profiles import PROFILES

ATTENTION = PROFILES / "tl_jax08_attention.xplane.pb"


def read(path, target):
    recording = open_recording(import_profile(path, target).path)
    return recording, recording.frame("kernels")


def test_kernels_of_a_real_xspace_are_those_of_its_streams(tmp_path):
    recording, kernels = read(ATTENTION, tmp_path / "run")
    expected = []
    for plane in _message_type("XSpace").FromString(ATTENTION.read_bytes()).planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        names = {entry.key: entry.value.name.decode() for entry in plane.event_metadata}
        for line in plane.lines:
            if "Stream #" in line.name:
                for event in line.events:
                    start = line.timestamp_ns + round(event.offset_ps / 1000)
                    end = line.timestamp_ns + round((event.offset_ps + event.duration_ps) / 1000)
                    expected.append((names[event.metadata_id], start, end - start))
    moved = recording.frame("memory")
    found = list(zip(kernels["name"], kernels["start_ns"], kernels["duration_ns"], strict=True))
    assert len(found) == 105
    assert set(found) <= set(expected)
    assert len(found) + len(moved) == len(expected)
    assert recording.meta["profiler"] == {"name": "JAX"}


def space(*planes, displayed=()):
    """An XSpace of planes, each a name and its lines: a name and events of name, offset and
    duration in ps, facts.

    `displayed` has short names of events, by their names.
    """
    made = _message_type("XSpace")()
    for name, lines in planes:
        plane = made.planes.add(name=name)
        names, facts = {}, {}
        for number, (line_name, events) in enumerate(lines):
            line = plane.lines.add(id=number, name=line_name, timestamp_ns=1_000_000)
            for event_name, offset_ps, duration_ps, given in events:
                key = names.setdefault(event_name, len(names) + 1)
                event = line.events.add(
                    metadata_id=key, offset_ps=offset_ps, duration_ps=duration_ps
                )
                for fact, value in given.items():
                    stat = event.stats.add(metadata_id=facts.setdefault(fact, len(facts) + 1))
                    setattr(stat, "int64_value" if isinstance(value, int) else "str_value", value)
        for table, known in ((plane.event_metadata, names), (plane.stat_metadata, facts)):
            for text, key in known.items():
                entry = table.add(key=key)
                entry.value.name = text.encode()
                if text in dict(displayed):
                    entry.value.display_name = dict(displayed)[text].encode()
    return made.SerializeToString()


def test_layers_steps_and_picoseconds_of_a_made_xspace(tmp_path):
    scope = b"jit(f)/transpose(jvp(dense))/dot_general"
    kernel = {"name": scope, "hlo_op": b"dot.1", "correlation_id": 7}
    device = ("/device:GPU:0", [("Stream #3(Compute)", [("gemm", 2_000_600, 1_000_900, kernel)])])
    host_line = [
        ("train", 0, 9_000_000, {"step_num": 5}),
        ("launch", 1_000_000, 1000, {"correlation_id": 7}),
    ]
    (tmp_path / "x.xplane.pb").write_bytes(space(("/host:CPU", [("main", host_line)]), device))
    recording, kernels = read(tmp_path / "x.xplane.pb", tmp_path / "run")
    row = kernels.iloc[0]
    assert (row["name"], row["layer"], row["phase"], row["stream"]) == (
        "gemm",
        "dense",
        "backward",
        3,
    )
    # 2,000.6 to 3,001.5 ns after the line's start; halves go to the even nanosecond.
    assert (row["start_ns"], row["duration_ns"]) == (1_002_001, 1001)
    assert (recording.meta["steps_from"], recording.count_rows("steps")) == ("marks", 1)


def test_the_host_of_a_tpu_and_the_calls_of_its_module(tmp_path):
    """Neither functions of Python nor steps were read."""
    at = [20_000_000_000 * number for number in range(4)]
    device = [
        ("XLA Modules", [("jit_f(7)", start, 5_000_000_000, {}) for start in at]),
        ("XLA Ops", [("dot.1", start, 5_000_000_000, {"hlo_op": b"dot.1"}) for start in at]),
    ]
    python = [
        ("$train.py:29 update", start - 14_000_000_000, 13_000_000_000, {}) for start in at[1:]
    ]
    python += [("$builtins len", at[1] - 1_000_000, 1000, {})]
    main = [("PjitFunction(f)", start - 900_000_000, 800_000_000, {}) for start in at[1:]]
    planes = (("/host:CPU", [("python", python), ("main", main)]), ("/device:TPU:0", device))
    (tmp_path / "x.xplane.pb").write_bytes(space(*planes))
    recording, kernels = read(tmp_path / "x.xplane.pb", tmp_path / "run")
    assert (recording.meta["steps_from"], kernels["step"].tolist()) == ("marks", [0, 1, 2, 3])
    functions = recording.arrow("functions", ["name", "duration_ns"]).to_pylist()
    assert functions == 3 * [{"name": "train.py(29): update", "duration_ns": 13_000_000}]
    assert recording.arrow("ranges")["name"].to_pylist().count("PjitFunction(f)") == 3


def test_lines_of_a_device_name_scopes_and_steps(tmp_path):
    """The short name of a scope, e.g. MatMul, hid its path; steps of a device were not read."""
    scope = "model/transformer/layer_5/MatMul"
    lines = [
        ("Steps", [("0", 0, 5_000_000, {}), ("1", 5_000_000, 5_000_000, {})]),
        ("TensorFlow Ops", [(scope, 1_000_000, 2_000_000, {}), (scope, 6_000_000, 2_000_000, {})]),
        (
            "Stream #3",
            [("gemm", at, 1_000_000, {"correlation_id": at}) for at in (1_500_000, 6_500_000)],
        ),
    ]
    launches = [
        ("launch", at, 1000, {"correlation_id": at + 1_400_000}) for at in (100_000, 5_100_000)
    ]
    planes = (("/host:CPU", [("main", launches)]), ("/device:GPU:0", lines))
    (tmp_path / "x.xplane.pb").write_bytes(space(*planes, displayed=[(scope, "MatMul")]))
    recording, kernels = read(tmp_path / "x.xplane.pb", tmp_path / "run")
    assert kernels["layer"].tolist() == ["model/transformer/layer_5"] * 2
    assert kernels["step"].tolist() == [0, 1]
    assert recording.arrow("steps", ["start_ns", "duration_ns"]).to_pylist() == [
        {"start_ns": 1_000_000, "duration_ns": 5000},
        {"start_ns": 1_005_000, "duration_ns": 5000},
    ]
    assert "layers" not in recording.meta["missing"]


def test_a_small_gzip_file_takes_little_memory(tmp_path):
    """One read of all that an XSpace may have took 2 GiB for any gzip file."""
    (tmp_path / "x.pb.gz").write_bytes(gzip.compress(b"\n\x0f\x12\x0d/host:nothing"))
    tracemalloc.start()
    with Source(tmp_path / "x.pb.gz") as source, source.open() as stream:
        assert source.read_all(1 << 31) == stream.read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.mark.parametrize("cut", [200, 5000])
def test_a_damaged_xspace_is_refused(cut, tmp_path):
    (tmp_path / "x.xplane.pb").write_bytes(ATTENTION.read_bytes()[:-cut])
    with pytest.raises(CurvescopeError, match="damaged XSpace"):
        read(tmp_path / "x.xplane.pb", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_gpus_of_tensorflow_have_a_step_each(tmp_path):
    """BERT on two GPUs, whose steps follow each other: the second alone was the program's step."""
    path = PROFILES / "xprof_bert_gpus.xplane.pb.gz"
    space = _message_type("XSpace").FromString(gzip.decompress(path.read_bytes()))
    lines = [line for plane in space.planes for line in plane.lines if line.name == "Steps"]
    expected = sorted(
        (line.timestamp_ns + round(event.offset_ps / 1000), round(event.duration_ps / 1000))
        for line in lines
        for event in line.events
    )
    recording, kernels = read(path, tmp_path / "run")
    steps = recording.frame("steps")
    found = list(zip(steps["start_ns"], steps["duration_ns"], strict=True))
    assert len(expected) == 2
    assert all(
        abs(one - other) <= 1
        for pair, wanted in zip(found, expected, strict=True)
        for one, other in zip(pair, wanted, strict=True)
    )
    assert kernels["step"].value_counts().tolist() == [665, 665]
    assert kernels["layer"].str.startswith(("replica_4", "replica_6")).all()


def test_steps_of_devices_beside_each_other_are_those_of_one():
    def step(device, start, end):
        return {"start_ns": start, "end_ns": end, "thread": device, "thread_key": device}

    beside = [step(-2, 0, 10), step(-3, 1, 9), step(-2, 20, 30)]
    assert [row["start_ns"] for row in _steps_of_devices(beside)] == [0, 20]
    after = _steps_of_devices([step(-3, 10, 20), step(-2, 0, 10)])
    assert [(row["start_ns"], row["thread"]) for row in after] == [(0, -2), (10, -2)]
