"""TensorFlow 1 timelines, TensorFlow 2 and JAX traces: the shared one against its own JSON, the
others by hand.
"""

import gzip
import json
from pathlib import Path

import pytest

from curvescope.profiling.recording.store import NO_STEP, open_recording

from .made_profiles import PROFILES, imported, of_events, rows

TIMELINE = PROFILES / "dleebrown_anna_timeline_01.json.gz"
JAX_ON_CPU = Path(__file__).parents[2] / "data" / "jax" / "jax_cpu.trace.json.gz"


def process(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def thread(pid, tid, name):
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def ran(pid, tid, name, ts, dur, /, **args):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": args}


def test_a_timeline_of_a_cpu_has_every_operator(tmp_path):
    recording = imported(TIMELINE, tmp_path)
    events = [
        e
        for e in json.loads(gzip.decompress(TIMELINE.read_bytes()))["traceEvents"]
        if e["ph"] == "X"
    ]
    kernels = recording.frame("kernels")
    assert len(kernels) == len(events) == 201
    assert kernels["duration_ns"].sum() == 1000 * sum(event["dur"] for event in events)
    conv = kernels[(kernels["op"] == "Conv2D") & (kernels["layer"] == "CONV1_LAYER")]
    in_file = [
        e for e in events if e["name"] == "Conv2D" and e["args"]["name"].startswith("CONV1_LAYER")
    ]
    assert conv["duration_ns"].tolist() == [1000 * event["dur"] for event in in_file]
    assert recording.meta["steps_from"] == NO_STEP
    assert len(recording.frame("steps")) == 1
    assert "device" in recording.meta["missing"]


GRADIENT = "gradients/conv1/Conv2D_grad/Conv2DBackpropFilter"
TF1 = [
    process(1, "/job:localhost/replica:0/task:0/device:CPU:0 Compute"),
    process(3, "/job:localhost/replica:0/task:0/device:GPU:0 Compute"),
    process(5, "/device:GPU:0/stream:13 Compute"),
    process(7, "/device:GPU:0/stream:all Compute"),
    ran(1, 0, "Conv2D", 100, 5, name="conv1/Conv2D", op="Conv2D"),
]
for pid in (5, 7):
    TF1 += [
        ran(pid, 0, "Conv2D", 110, 20, name="conv1/Conv2D:Conv2D", op="Conv2D"),
        ran(pid, 0, "Conv2DBackpropFilter", 140, 30, name=GRADIENT, op="Conv2DBackpropFilter"),
        ran(pid, 0, "ApplyAdam", 180, 3, name="Adam/update_conv1/ApplyAdam", op="ApplyAdam"),
        ran(pid, 0, "MEMCPYHtoD", 105, 2, name="edge_5_input", op="MEMCPYHtoD"),
    ]


def test_gpu_events_stand_twice_and_count_once(tmp_path):
    recording = of_events(TF1, tmp_path)
    assert rows(recording, "kernels", "layer", "phase", "op", "stream") == [
        ("conv1", "forward", "Conv2D", 13),
        ("conv1", "backward", "Conv2DBackpropFilter", 13),
        ("Adam/update_conv1", "optimizer", "ApplyAdam", 13),
    ]
    assert recording.frame("memory")["memcpy_kind"].tolist() == ["HtoD"]
    assert recording.arrow("steps").to_pylist()[0]["mode"] == "training"


def test_of_one_line_for_all_streams_that_line_is_taken(tmp_path):
    recording = of_events([event for event in TF1 if event["pid"] != 5], tmp_path)
    assert len(recording.frame("kernels")) == 3


DETAILS = "regs:32 static_shared:64 dynamic_shared:0 grid:4,2,1 block:256,1,1 occ_pct:100"
TF2 = [
    process(1, "/device:GPU:0"),
    process(9, "/host:CPU"),
    thread(1, 14, "Stream #14(Compute)"),
    thread(1, 15, "Stream #15(MemcpyH2D)"),
    thread(1, 20, "TensorFlow Ops"),
    thread(1, 21, "XLA Modules"),
    ran(9, 77, "train", 1000, 100, step_num="5", group_id="0"),
    ran(9, 77, "train", 1200, 100, step_num="6", group_id="1"),
    ran(9, 77, "cuLaunchKernel", 1010, 2, correlation_id="31"),
    ran(9, 77, "cuLaunchKernel", 1210.5, 2, correlation_id="32"),
    ran(
        1,
        14,
        "sgemm",
        1020,
        30.25,
        correlation_id="31",
        kernel_details=DETAILS,
        tf_op="model/dense/MatMul:MatMul",
    ),
    ran(
        1,
        14,
        "sgemm_t",
        1310,
        50,
        correlation_id="32",
        tf_op="gradient_tape/model/dense/MatMul/MatMul_1:MatMul",
    ),
    ran(
        1,
        15,
        "MemcpyH2D",
        1001,
        4,
        memcpy_details="kind_src:pageable kind_dst:device size:4096 dest:0 async:1",
    ),
    ran(1, 20, "MatMul", 1020, 30.25),
    {},
]


def test_only_streams_are_kernels_and_steps_are_the_hosts(tmp_path):
    recording = of_events(TF2, tmp_path)
    first, second = recording.arrow("kernels").to_pylist()
    assert (first["layer"], first["phase"], first["step"]) == ("model/dense", "forward", 0)
    assert (second["layer"], second["phase"], second["step"]) == ("model/dense", "backward", 1)
    shape = ("grid_y", "block_x", "shared_memory_bytes", "duration_ns")
    assert [first[name] for name in shape] == [2, 256, 64, 30_250]
    (copy,) = recording.arrow("memory").to_pylist()
    assert (copy["bytes"], copy["memcpy_kind"], copy["step"]) == (4096, "HtoD", 0)
    # Launched in the second step, its work reaches past the host's mark.
    steps = rows(recording, "steps", "start_ns", "duration_ns")
    assert steps == [(1_000_000, 100_000), (1_200_000, 160_000)]
    assert recording.meta["steps_from"] == "marks"


SCOPES = ("jvp(Net)/Dense_0/dot_general", "transpose(jvp(Net))/Dense_0/dot_general", "sub")
JAX = [process(1, "/device:GPU:0"), process(9, "/host:CPU"), thread(1, 13, "Stream #13(Compute)")]
for i, scope in enumerate(SCOPES):
    facts = {
        "hlo_module": "jit_step",
        "hlo_op": f"fusion.{i}",
        "name": f"jit(step)/jit(main)/{scope}",
    }
    JAX.append(ran(1, 13, f"fusion_{i}", 100 * i, 10, **facts))


def test_jax_scopes_are_layers_without_their_transformations(tmp_path):
    assert rows(of_events(JAX, tmp_path), "kernels", "layer", "phase", "source") == [
        ("Net/Dense_0", "forward", "jax"),
        ("Net/Dense_0", "backward", "jax"),
        (None, None, "jax"),
    ]


def test_kernels_that_name_no_scope_have_that_of_the_line_of_their_device(tmp_path):
    """An XSpace of a GPU has the scopes in a line of each device only."""
    events = json.loads(json.dumps(JAX))
    streamed = [event for event in events if event["ph"] == "X"]
    events.append(thread(1, 20, "TensorFlow Ops"))
    for event in streamed:
        path = event["args"].pop("name")
        events.append(ran(1, 20, path, event["ts"] - 1, event["dur"] + 2))
    events += [ran(1, 13, "alone", 900, 10), ran(9, 20, "jit(other)/Dense_9/add", 895, 30)]
    expected = [("Net/Dense_0", "forward"), ("Net/Dense_0", "backward"), (None, None), (None, None)]
    assert rows(of_events(events, tmp_path), "kernels", "layer", "phase") == expected


def test_without_a_device_instructions_on_the_host_are_kernels(tmp_path):
    instruction = ran(9, 3, "dot.3", 10, 5, hlo_module="jit_f", hlo_op="dot.3")
    recording = of_events([process(9, "/host:CPU"), instruction, ran(9, 3, "x", 10, 9)], tmp_path)
    assert rows(recording, "kernels", "name", "device", "duration_ns") == [("dot.3", None, 5000)]


@pytest.mark.parametrize(
    "event",
    [
        ran(1, 14, "k", float("nan"), 1),
        ran(1, 14, "k", 1e300, 1),
        ran(1, 14, None, 1, 1),
        ran(1, [], "k", 1, 1),
    ],
)
def test_events_without_a_time_or_name_are_counted(event, tmp_path):
    recording = of_events([*TF2, event], tmp_path)
    assert recording.meta["lost"]["events_unreadable"]["count"] == 1
    assert len(recording.frame("kernels")) == 2


def test_a_trace_of_nothing_that_ran_is_refused(tmp_path, refusal_of):
    (tmp_path / "p").write_text(json.dumps({"traceEvents": TF2[:2]}))
    assert "no operator or kernel" in refusal_of("import", tmp_path / "p", "-o", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_word_of_a_megabyte_takes_no_time_squared(tmp_path):
    """Found by fuzzing: a word of 70,000 letters among the details of a kernel took
    half a minute.
    """
    events = json.loads(json.dumps(TF2))
    kernel = next(event for event in events if "kernel_details" in event.get("args", {}))
    kernel["args"]["kernel_details"] = "x" * 1_000_000 + " grid:2,3,4"
    assert 4 in of_events(events, tmp_path).frame("kernels")["grid_z"].tolist()


@pytest.mark.slow
def test_jax_on_a_cpu_has_its_instructions_by_step(tmp_path, refusal_of, text_of):
    """As `jax.profiler.trace` wrote it; found by use: `explain` of steps without a batch size was a
    traceback.
    """
    said = text_of("import", JAX_ON_CPU, "-o", tmp_path / "r")
    assert "no event of a device" in said
    assert "no operator names a scope" in said
    recording = open_recording(tmp_path / "r")
    events = json.loads(gzip.decompress(JAX_ON_CPU.read_bytes()))["traceEvents"]
    ran_ns = [round(e["dur"] * 1000) for e in events if "hlo_op" in e.get("args", {})]
    kernels = recording.frame("kernels")
    assert kernels["duration_ns"].tolist() == ran_ns
    assert kernels["step"].value_counts().to_dict() == dict.fromkeys(range(5), 10)
    assert recording.meta["profiler"] == {"name": "JAX"}
    # Waits are calls, and no launches that instructions of the host could lack.
    assert recording.frame("api_calls")["name"].tolist() == ["block_until_ready"] * 5
    assert "device_work_without_launch" not in recording.meta["lost"]
    assert "dot.1" in text_of("breakdown", tmp_path / "r", "--by", "kernel")
    assert "A step takes 0.1764 ms" in text_of("explain", tmp_path / "r")
    assert "names no batch size" in refusal_of("explain", tmp_path / "r", "--at", "8")
