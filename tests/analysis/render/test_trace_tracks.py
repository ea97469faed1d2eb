"""Layers, operators, idle time with its place and counters in a trace, and several ranks in one."""

import json

import pytest

from curvescope.analysis.decompose.kernel_times import device_work, kernel_times
from curvescope.analysis.decompose.terms import IDLE
from curvescope.analysis.render.trace_tracks import tracks
from curvescope.cli import main
from curvescope.profiling.recording.store import RecordingWriter, open_recording

# two kernels of conv1, one of fc after a gap of 30 ns, which overlaps with a copy's stream
KERNELS = {
    "name": ["a", "b", "c", "d"],
    "start_ns": [110, 130, 180, 185],
    "duration_ns": [20, 20, 10, 10],
    "step": [0] * 4,
    "layer": ["conv1", "conv1", "fc", "fc"],
    "phase": ["forward"] * 4,
    "op": ["aten::conv2d", "aten::add", "aten::linear", "aten::linear"],
    "device": [0] * 4,
    "stream": [7, 7, 7, 8],
    "source": ["cupti"] * 4,
}


def record(path, rank=None):
    meta = {
        "recording_type": "profile",
        **({} if rank is None else {"distributed": {"rank": rank, "world_size": 2}}),
    }
    with RecordingWriter(path, meta) as writer:
        writer.write("kernels", KERNELS)
        step = {
            "step": [0],
            "round": [0],
            "index": [0],
            "mode": ["forward"],
            "start_ns": [100],
            "duration_ns": [120],
        }
        writer.write("steps", {**step, "profiled": [True], "peak_memory_bytes": [5_000_000]})
        writer.write(
            "clocks",
            {
                "start_ns": [100, 150],
                "device": [0, 0],
                "sm_clock_hz": [10**9, None],
                "power_w": [None, 70.0],
            },
        )
    return path


def test_layers_hold_their_operators_and_idle_time_has_a_place(tmp_path):
    found = [
        (one.track, one.name, one.start_ns, one.duration_ns)
        for one in tracks(open_recording(record(tmp_path / "run")))
    ]
    layers = [one for one in found if one[0].startswith("stream")]
    assert sorted(layers, key=lambda one: (one[0], one[2], -one[3])) == [
        ("stream 7", "conv1 forward", 110, 40),
        ("stream 7", "aten::conv2d", 110, 20),
        ("stream 7", "aten::add", 130, 20),
        ("stream 7", "fc forward", 180, 10),
        ("stream 7", "aten::linear", 180, 10),
        ("stream 8", "fc forward", 185, 10),
        ("stream 8", "aten::linear", 185, 10),
    ]
    assert [one[1:] for one in found if one[0] == "no kernel runs"] == [
        ("idle in conv1 forward", 100, 10),
        ("idle in fc forward", 150, 30),
        ("idle at the end of the step", 195, 25),
    ]


def test_counters_stand_beside_them(tmp_path):
    values = {
        one.name: one.value
        for one in tracks(open_recording(record(tmp_path / "run")))
        if one.duration_ns is None
    }
    assert values == {
        "clock, MHz, device 0": 1000.0,
        "power, W, device 0": 70.0,
        "peak memory, MB": 5.0,
    }


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "name",
    ["tl_mi300_ddp_resnet18.json.gz", "nsysai_h100_2gpu_1s.sqlite.gz", "tl_b200_eager.json.gz"],
)
def test_the_idle_time_of_a_real_profile_is_that_of_its_breakdown(name, imported_profile):
    recording = open_recording(imported_profile(name))
    idle_ns = sum(one.duration_ns for one in tracks(recording) if one.process == IDLE)
    times = kernel_times(
        device_work(recording), recording.frame("steps"), ["layer", "phase", "name"], []
    )
    assert idle_ns == times.loc[times["name"] == IDLE, "exclusive_ns"].sum() > 0


def test_ranks_share_a_trace(tmp_path, refusal_of):
    runs = [str(record(tmp_path / f"rank{rank}", rank)) for rank in (0, 1)]
    assert main(["export", *runs, "--perfetto", "-o", str(tmp_path / "trace.json")]) == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    of_rank = {"device 0", "layers of device 0", "idle", "counters", "steps"}
    assert named == {f"rank {rank}: {name}" for rank in (0, 1) for name in of_rank}
    assert "add --perfetto" in refusal_of("export", *runs, "--csv")
