"""The PyTorch profiler's JSON: real files against queries on their text, and each
spelling by hand.
"""

import gzip
import json
from collections import Counter

import pytest

from curvescope.analysis.decompose.breakdown import break_down, break_down_recording
from curvescope.analysis.decompose.kernel_times import device_work
from curvescope.analysis.decompose.terms import IDLE
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution import steps
from curvescope.profiling.readers import import_profile, source
from curvescope.profiling.readers.sweep_import import import_sweep
from curvescope.profiling.recording.operators import TensorArgument, Value, decode_arguments
from curvescope.profiling.recording.store import open_recording

from .made_profiles import PROFILES, imported, lost, of_events, rows

RESNET = PROFILES / "kineto_resnet50_w0_a.pt.trace.json.gz"
ALEXNET = PROFILES / "hta_alexnet_trace.json.gz"
COUNTERS = PROFILES / "hta_cupti_profiler_trace.json.gz"


def events_of(path):
    return [
        e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e["ph"] == "X"
    ]


@pytest.fixture
def resnet(imported_profile):
    return open_recording(imported_profile(RESNET.name))


def covered_us(intervals):
    """Time in which at least one of the (start, end) runs."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


@pytest.mark.first_rows(2)
@pytest.mark.parametrize("path", [ALEXNET, COUNTERS, RESNET], ids=lambda p: p.name[:12])
def test_counts_and_times_are_those_of_the_file(path, imported_profile):
    recording = open_recording(imported_profile(path.name))
    events = events_of(path)
    category = Counter(e["cat"].lower() for e in events)
    kernels, memory = recording.frame("kernels"), recording.frame("memory")
    device_kernels = [e for e in events if e["cat"] in ("Kernel", "kernel")]
    assert len(kernels) == len(device_kernels)
    assert kernels["duration_ns"].sum() == 1000 * sum(e["dur"] for e in device_kernels)
    assert (memory["kind"] == "memcpy").sum() == category["memcpy"] + category["gpu_memcpy"]
    assert (memory["kind"] == "memset").sum() == category["memset"] + category["gpu_memset"]
    assert len(recording.frame("api_calls")) == category["runtime"] + category["cuda_runtime"]
    assert (
        recording.meta["lost"].get("counter_ranges", {}).get("count", 0)
        == category["cuda_profiler_range"]
    )
    if len(kernels):
        blocks = sum(e["args"]["grid"][0] * e["args"]["block"][0] for e in device_kernels)
        assert (kernels["grid_x"].astype("int64") * kernels["block_x"]).sum() == blocks
        assert kernels["registers_per_thread"].sum() == sum(
            e["args"]["registers per thread"] for e in device_kernels
        )


def test_convolutions_without_strides_have_the_work_of_resnet50(resnet):
    """torch 1.9 wrote no strides; the first layer needs no gradient of its image."""
    kernels = resnet.frame("kernels")
    flops = kernels["flops"].groupby([kernels["step"], kernels["op"]]).sum()
    forward, backward = (
        flops.xs(op, level="op") for op in ("aten::conv2d", "CudnnConvolutionBackward")
    )
    first = 2 * 32 * 64 * 112 * 112 * 3 * 7 * 7
    assert len(forward) == 6
    # 4.09 GFLOP of products per image, by the paper's table (He et al. 2016, 3.8 with other strides
    # in v1).
    assert set(forward) == {2 * 32 * 4_087_136_256}
    assert (backward == 2 * forward - first).all()


@pytest.mark.slow
def test_breakdown_is_the_device_time_of_the_file(resnet):
    events = events_of(RESNET)
    launched = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"] == "Runtime"}
    marks = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("ProfilerStep#")
    )
    busy_us = []
    for start, end in marks:
        work = [e for e in events if e["cat"] in ("Kernel", "Memcpy", "Memset")]
        inside = [e for e in work if start <= launched[e["args"]["correlation"]] < end]
        busy_us.append(covered_us((e["ts"], e["ts"] + e["dur"]) for e in inside))
    breakdown = break_down(resnet.frame("steps"), device_work(resnet), "kernel")
    seen_ms = sum(row.time_ms for row in breakdown.rows if row.label != IDLE)
    assert seen_ms == pytest.approx(sum(busy_us) / len(busy_us) / 1e3, rel=1e-3)
    assert breakdown.batch == 32
    assert breakdown.overhead_ms is None
    assert breakdown.n_timed == 0
    assert sum(row.time_ms for row in breakdown.rows) == pytest.approx(breakdown.time_ms, rel=1e-9)


def test_steps_hold_all_work_launched_in_them(resnet):
    steps, kernels = resnet.frame("steps"), resnet.frame("kernels")
    assert len(steps) == 6
    assert steps["profiled"].all()
    assert set(steps["mode"]) == {"training"}
    ends = steps["start_ns"] + steps["duration_ns"]
    assert (steps["start_ns"].iloc[1:].to_numpy() >= ends.iloc[:-1].to_numpy()).all()
    assert kernels["step"].notna().all()
    assert "device_work_cut_by_steps" not in resnet.meta["lost"]


def test_phases_and_operators_join(resnet):
    kernels = resnet.frame("kernels")
    assert kernels["op"].notna().all()
    phase_of = kernels.groupby("op")["phase"].agg(lambda phases: set(phases.dropna()))
    assert phase_of["aten::conv2d"] == {"forward"}
    assert phase_of["CudnnConvolutionBackward"] == {"backward"}
    assert (kernels["phase"] == "optimizer").any()


def test_nothing_of_the_machine_is_copied(resnet):
    private = [b"/home/", b"yangu", b"anaconda"]
    assert b"/home/yangu" in gzip.decompress(RESNET.read_bytes())
    for table in ("steps", "kernels", "memory", "api_calls", "ranges"):
        frame = resnet.frame(table)
        text = " ".join(
            str(v) for c in frame.select_dtypes(exclude="number") for v in frame[c].unique()
        ).encode()
        assert not [word for word in private if word in text]
    assert not [
        word
        for word in [*private, RESNET.name.encode()]
        if word in json.dumps(resnet.meta).encode()
    ]


def event(cat, name, ts, dur, tid=7, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": ts,
        "dur": dur,
        "pid": 1,
        "tid": tid,
        "args": args,
    }


def on_gpu(cat, name, ts, dur, correlation, **args):
    return event(
        cat, name, ts, dur, "stream 9", device=0, stream=9, correlation=correlation, **args
    )


PLANTED = [
    event("user_annotation", "ProfilerStep#3", 1000.5, 100),
    event("python_function", "nn.Module: Conv2d_0", 1005, 20),
    event("python_function", "/home/someone/net.py(3): forward", 1005, 20),
    event(
        "cpu_op",
        "aten::conv2d",
        1006,
        10,
        **{"Sequence number": 4, "Fwd thread id": 0, "Input Dims": [[6, 3, 8, 8]]},
    ),
    event("cuda_runtime", "cudaLaunchKernel", 1008.25, 2, correlation=11),
    event("cpu_op", "Backward0", 1050, 10, 8, **{"Sequence number": 4, "Fwd thread id": 1}),
    event("cuda_runtime", "cudaLaunchKernel", 1052, 2, 8, correlation=12),
    event("cuda_runtime", "cudaLaunchKernel", 1080, 2, correlation=13),
    on_gpu("kernel", "conv", 1020.125, 30.25, 11, grid=[2, 3, 4], block=[32, 1, 1]),
    on_gpu("kernel", "grad", 1090, 40, 12),
    on_gpu("kernel", "stray", 1130, 1, 13),
    on_gpu("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1001, 5, 99, bytes=64),
    {"ph": "X", "cat": "kernel", "name": "without time"},
]


def test_joins_by_time_correlation_and_sequence_number(tmp_path):
    recording = of_events(PLANTED, tmp_path)
    conv, grad, stray = recording.arrow("kernels").to_pylist()
    assert (conv["start_ns"], conv["duration_ns"], conv["grid_z"]) == (1_020_125, 30_250, 4)
    assert (conv["layer"], conv["phase"], conv["op"]) == ("Conv2d_0", "forward", "aten::conv2d")
    assert (grad["layer"], grad["phase"], grad["op"]) == ("Conv2d_0", "backward", "Backward0")
    assert (stray["layer"], stray["phase"], stray["op"], stray["registers_per_thread"]) == (
        None,
        None,
        None,
        None,
    )
    (copy,) = recording.arrow("memory").to_pylist()
    assert (copy["memcpy_kind"], copy["bytes"], copy["step"]) == ("HtoD", 64, 0)
    (step,) = recording.arrow("steps").to_pylist()
    assert (step["batch"], step["start_ns"], step["duration_ns"]) == (6, 1_000_500, 130_500)
    found = ("events_unreadable", "device_work_without_launch", "device_work_without_operator")
    assert lost(recording) == dict.fromkeys(found, 1)


def test_the_ends_of_64_bits_are_ids_like_others(tmp_path):
    """Found by fuzzing: the least id of all, less the least of the launches', wrapped around to a
    place in a table.
    """
    far = [on_gpu("kernel", "far", 1040, 1, number) for number in (-(2**63), 2**63 - 1)]
    recording = of_events([*PLANTED, *far], tmp_path)
    found = rows(recording, "kernels", "name", "correlation_id", "op", "phase")[-2:]
    assert sorted(found) == [("far", number, None, None) for number in (-(2**63), 2**63 - 1)]


def test_batch_is_missing_when_nothing_gives_it_and_can_be_given(tmp_path):
    untold = [e for e in PLANTED if e["name"] != "aten::conv2d"]
    recording = of_events(untold, tmp_path)
    assert recording.frame("steps")["batch"].isna().all()
    assert break_down(recording.frame("steps"), device_work(recording), "kernel").batch is None
    assert "backward_without_forward" in recording.meta["lost"]
    given = imported(tmp_path / "profile", tmp_path, batch=5)
    assert given.meta["batches"] == [5]


BAD = {
    "cut gzip": (gzip.compress(b'{"traceEvents": []}' * 99)[:-12], "cut off"),
    "broken gzip": (b"\x1f\x8b\x08\x00" + b"x" * 40, "damaged"),
    "empty": (b"", "empty"),
    "empty gzip": (gzip.compress(b""), "empty"),
    "broken JSON": (b'{"traceEvents": [{"ph": "X"', "broken JSON"),
    "not UTF-8": (b'{"traceEvents": ["\xff\xfe"]}', "broken JSON"),
    "no trace": (b'{"a": 1}', "no profile"),
    "no list": (b'{"traceEvents": 3}', "no list"),
    "other trace": (
        b'{"traceEvents": [{"ph": "X", "cat": "Op", "name": "x", "ts": 1, "dur": 1}]}',
        "no event",
    ),
    "execution trace": (
        b'{"nodes": [{"name": "[pytorch|profiler|execution_trace|thread]"}]}',
        "`export_chrome_trace`",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_with_a_remedy(what, tmp_path, refusal_of):
    content, words = BAD[what]
    (tmp_path / "p").write_bytes(content)
    assert words in refusal_of("import", tmp_path / "p", "-o", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_absent_file_and_taken_folder_are_refused(tmp_path):
    with pytest.raises(CurvescopeError, match="cannot be read"):
        import_profile(tmp_path / "none", tmp_path / "r")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(CurvescopeError, match="is not empty"):
        import_profile(ALEXNET, tmp_path / "full")


@pytest.mark.slow
def test_command_imports_and_breakdown_says_what_is_not_known(tmp_path, document_of, text_of):
    target = str(tmp_path / "r")
    assert "8772 kernels" in text_of("import", RESNET, "-o", target)
    out = " ".join(text_of("breakdown", target, "--by", "phase").split())
    assert "an unknown profiling overhead" in out
    assert "every step was profiled" in out
    assert document_of("breakdown", target)["overhead_ms"] is None


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "UNPACKED_FREE_BYTES", 1 << 20)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (8 << 20) + b"]}"))
    with pytest.raises(CurvescopeError, match="unpacked"):
        import_profile(bomb, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_operators_with_their_arguments(tmp_path):
    """Two steps of a trace with shapes, strides and scalars: the outermost operators of one of them
    are rows.
    """
    step = [
        event("user_annotation", "ProfilerStep#0", 0, 100),
        operator(
            "aten::conv2d",
            10,
            40,
            [[2, 3, 8, 8], [4, 3, 3, 3], [], [], []],
            ["float", "float", "", *SCALARS],
        ),
        operator("aten::convolution", 15, 30, [[2, 3, 8, 8]], ["float"]),
        operator("aten::relu_", 60, 5, [[2, 4, 6, 6]], ["float"], [[144, 1, 24, 4]]),
        operator("aten::relu_", 70, 7, [[2, 4, 6, 6]], ["float"], [[144, 1, 24, 4]]),
    ]
    later = [{**event, "ts": event["ts"] + 200} for event in step]
    later[0] = {**later[0], "name": "ProfilerStep#1", "dur": 120}
    recording = of_events(step + later, tmp_path)
    assert rows(recording, "operators", "batch", "op", "calls", "duration_ns", "kernels") == [
        (2, "aten::conv2d", 1, 40_000, "aten::convolution | aten::conv2d"),
        (2, "aten::relu_", 2, 12_000, "aten::relu_"),
    ]
    conv, relu = (
        decode_arguments(arguments) for (arguments,) in rows(recording, "operators", "arguments")
    )
    assert conv == (
        TensorArgument((2, 3, 8, 8), "float"),
        TensorArgument((4, 3, 3, 3), "float"),
        None,
        Value((1, 1)),
        Value(0.5),
    )
    assert relu == (TensorArgument((2, 4, 6, 6), "float", (144, 1, 24, 4)),)


def test_files_of_one_batch_size_give_one_step_of_operators(tmp_path):
    step = [
        event("user_annotation", "ProfilerStep#0", 0, 100),
        operator("aten::linear", 10, 40, [[2, 3]], ["float"]),
    ]
    paths = [tmp_path / f"{name}.json" for name in "ab"]
    for path in paths:
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": step}))
    merged = open_recording(import_sweep(paths, tmp_path / "r").path)
    assert merged.count_rows("steps") == 2
    assert merged.arrow("operators").select(["batch", "op"]).to_pylist() == [
        {"batch": 2, "op": "aten::linear"}
    ]


SCALARS = ["ScalarList", "Scalar"]


def operator(name, start_us, duration_us, shapes, types, strides=()):
    concrete = [{"ScalarList": "[1, 1]", "Scalar": "0.5"}.get(kind, "") for kind in types]
    known = {
        "Input Dims": shapes,
        "Input type": types,
        "Concrete Inputs": concrete,
        "Input Strides": list(strides),
    }
    return event("cpu_op", name, start_us, duration_us, **known)


@pytest.mark.slow
def test_a_trace_gives_the_rows_that_the_same_events_give_in_process(tmp_path):
    torch = pytest.importorskip("torch")
    from curvescope.profiling.attribution.events import kernel_rows
    from curvescope.profiling.collect.torch_step import split_events

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2)
    )
    with (
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, acc_events=True
        ) as profiler,
        torch.profiler.record_function("curvescope.step"),
    ):
        model(torch.ones(2, 3, 8, 8)).masked_fill(
            torch.ones(2, 2, dtype=torch.bool), float("-inf")
        ).sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    results = profiler.profiler.kineto_results
    expected = kernel_rows(split_events(results).host).operators
    same = ("op", "arguments", "calls", "phase", "position")
    found = rows(imported(tmp_path / "trace.json", tmp_path), "operators", *same)
    assert len(found) > 10
    assert found == [tuple(row[name] for name in same) for row in expected]


def test_a_host_only_trace_of_a_gpu_program_has_no_kernels_and_says_so(tmp_path):
    done = import_profile(PROFILES / "hta_rank_non_gpu.json.gz", tmp_path / "run")
    assert (done.rows["kernels"], done.rows["steps"]) == (0, 1)
    assert "no event of the GPU" in done.missing["device_events"]


def test_an_annotation_of_another_process_does_not_make_two_programs(tmp_path):
    done = import_profile(PROFILES / "hta_triton_example.json.gz", tmp_path / "run")
    assert (done.rows["kernels"], done.steps_from) == (1, "marks")


def test_a_hexadecimal_stream_is_read_and_an_unreadable_one_costs_only_itself(tmp_path):
    recording = imported(PROFILES / "hta_amd_mi250_kineto.json.gz", tmp_path)
    assert recording.count_rows("api_calls") == 21
    assert recording.frame("kernels")["op"].notna().all()
    odd = [({"stream": "0x7"}, 32), ({}, "many")]
    trace = [on_gpu("kernel", "gemm", 10, 5, 1, **{"registers per thread": n}) for _, n in odd]
    for each, (args, _) in zip(trace, odd, strict=True):
        each["args"] |= args
    assert rows(of_events(trace, tmp_path), "kernels", "stream", "registers_per_thread") == [
        (7, 32),
        (9, None),
    ]


def test_work_of_other_makers_devices_joins_its_calls_and_has_its_queue_as_stream(tmp_path):
    """As Kineto's plugin for XPU writes it: `xpu_runtime` calls, queues instead of streams, M for
    the host's memory.
    """

    def on_xpu(cat, name, ts, dur, correlation, **args):
        return event(cat, name, ts, dur, 0, correlation=correlation, device=0, **args) | {"pid": 0}

    trace = [
        event("cpu_op", "aten::addmm", 10, 50),
        event("xpu_runtime", "urEnqueueUSMMemcpy", 12, 2, correlation=4130),
        event("xpu_runtime", "urEnqueueKernelLaunch", 20, 2, correlation=4131),
        {
            **event("mtia_runtime", "recordEvent", 65, 1, correlation=9),
            "pid": 17,
        },  # the device, not a process
        event("xpu_sync", "zeEventHostSynchronize", 70, 5, correlation=4132),
        on_xpu(
            "gpu_memcpy",
            "Memcpy M2D (Memory -> Device)",
            16,
            3,
            4130,
            bytes=64,
            **{"sycl queue": 64},
        ),
        on_xpu("kernel", "gemm_kernel", 30, 8.96, 4131, **{"sycl queue": 64}),
        {
            **on_xpu("kernel", "other plugin", 50, 1, 4131),
            "tid": 5,
            "pid": 2,
            "args": {"correlation": 4131},
        },
    ]
    recording = of_events(trace, tmp_path, deviceProperties=[])
    gemm, other = recording.arrow("kernels").to_pylist()
    assert (gemm["device"], gemm["stream"], gemm["op"], gemm["duration_ns"]) == (
        0,
        64,
        "aten::addmm",
        8960,
    )
    assert (other["device"], other["stream"], other["op"]) == (2, 5, "aten::addmm")
    (copy,) = recording.arrow("memory").to_pylist()
    assert (copy["memcpy_kind"], copy["stream"]) == ("HtoD", 64)
    assert recording.count_rows("api_calls") == 3
    assert not recording.meta["lost"]


def test_kernels_of_graphs_have_the_graph(tmp_path):
    events = [on_gpu("kernel", name, at, 1, 3, **more) for name, at, more in (
        ("replayed", 1000, {"graph id": 4}), ("alone", 1010, {"graph id": 0}), ("old", 1020, {}))]  # fmt: skip  # noqa: E501
    graphs = rows(of_events(events, tmp_path), "kernels", "name", "graph_id")
    assert graphs == [("replayed", 4), ("alone", None), ("old", None)]


def test_collectives_have_their_message_and_group(imported_profile):
    """The all-gather of the B200 trace: 25,136 elements of BFloat16 from each of 8 ranks."""
    kernels = open_recording(imported_profile("tl_b200_eager.json.gz")).frame("kernels")
    (row,) = kernels[kernels["collective"].notna()].to_dict("records")
    assert (row["collective"], row["group_size"], row["message_bytes"]) == (
        "AllGather",
        8,
        2 * 8 * 25_136,
    )
    assert row["communicator"] == "3 [0, 1, 2, 3, 4, 5, 6, 7]"
    assert kernels["message_bytes"].count() == 1


@pytest.mark.parametrize("tells_rank", [False, True])
def test_a_trace_on_demand_names_the_rank_that_it_lacks(tells_rank, tmp_path):
    trace = [
        on_gpu("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 1, 5, 1)
    ]
    document = {"distributedInfo": {"rank": 3, "world_size": 8}} if tells_rank else {}
    assert ("rank" in of_events(trace, tmp_path, **document).meta.get("missing", {})) == (
        not tells_rank
    )


def test_operators_of_a_cpu_count_once_and_repeat(tmp_path):
    """Stretches of own time were counted as calls, operators called kernels, and 100 equal steps
    were none.
    """
    events = []
    for step in range(100):
        at = 1000 * step
        spans = [
            ("aten::linear", 0, 100),
            ("aten::t", 10, 5),
            ("aten::addmm", 20, 70),
            ("aten::mse_loss", 110, 50),
        ]
        spans += [
            ("autograd::engine::evaluate_function: AddmmBackward0", 200, 90),
            ("AddmmBackward0", 210, 70),
        ]
        spans += [("aten::mm", 220, 10), ("aten::mm", 240, 10)]
        for name, begin, length in spans:
            times = {
                "ts": at + begin,
                "dur": length + (400 if step == 0 and name == "aten::mse_loss" else 0),
            }
            if step == 0 and begin >= 200:
                times["ts"] += 400
            events.append(
                {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, **times, "args": {}}
            )
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    done = import_profile(path, tmp_path / "run")
    recording = open_recording(done.path)
    assert done.rows["kernels"] == 100 * 7  # the node and the engine's call around it are one
    assert (recording.work, recording.count_rows("steps"), done.steps_from) == (
        "operator",
        100,
        steps.REPETITION,
    )
    rows = {row.label: row for row in break_down_recording(recording, "kernel").rows}
    assert (rows["aten::linear"].calls, rows["AddmmBackward0"].calls, rows["aten::mm"].calls) == (
        1,
        1,
        2,
    )


def test_calls_of_an_operator_of_the_host_are_its_own(tmp_path):
    """A product with two operators inside, which cut its own time into three: one call, not five;
    as many of it as the trace has.
    """
    trace = [
        part
        for at in range(0, 400, 100)
        for part in (
            event("cpu_op", "aten::linear", at, 80),
            event("cpu_op", "aten::t", at + 10, 10),
            event("cpu_op", "aten::addmm", at + 30, 40),
        )
    ]
    recording = of_events(trace, tmp_path)
    breakdown = break_down_recording(recording, "op")
    (row,) = breakdown.groups
    assert (row.label, row.calls) == ("aten::linear", 4 / max(breakdown.n_profiled, 1))
