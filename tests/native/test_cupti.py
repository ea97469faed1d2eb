"""The collector under a program whose GPU and libcupti are test doubles: records into tables.

What these tests show of CUPTI is its protocol, as NVIDIA's headers describe it, or as an H100
showed it.
"""

import numpy as np
import pytest

from ..tables import ask_each
from .fake_gpu import LAYOUTS, TOOLKITS, structs

# Every field that native/src/record_reader.cpp reads.
READ_FIELDS = {
    "kernel": "name start end deviceId contextId streamId correlationId gridX gridY gridZ blockX "
    "blockY blockZ "
    "registersPerThread staticSharedMemory dynamicSharedMemory graphId",
    "memcpy": "copyKind start end bytes deviceId contextId streamId correlationId graphId",
    "memcpy_peer": "start end bytes deviceId contextId streamId correlationId graphId",
    "memset": "start end bytes deviceId contextId streamId correlationId graphId",
    "memory": "memoryOperationType memoryKind timestamp bytes address deviceId streamId "
    "correlationId",
    "api": "cbid start end threadId correlationId returnValue",
    "synchronization": "type start end contextId streamId correlationId",
    "device": "id name computeCapabilityMajor computeCapabilityMinor numMultiprocessors "
    "globalMemorySize "
    "globalMemoryBandwidth l2CacheSize coreClockRate maxSharedMemoryPerMultiprocessor "
    "maxRegistersPerMultiprocessor "
    "maxWarpsPerMultiprocessor",
    "context": "contextId deviceId nullStreamId",
    "environment": "deviceId timestamp environmentKind data",
    "overhead": "overheadKind start end",
}
NOT_IN_11_0 = {("memcpy", "graphId"), ("memcpy_peer", "graphId"), ("memset", "graphId")}


@ask_each("toolkit", TOOLKITS)
def test_in_every_toolkit_each_field_lies_where_the_reader_takes_it(toolkit):
    built_against = structs("12.9")
    for kind, fields in READ_FIELDS.items():
        here = LAYOUTS["structs"][structs(toolkit)[kind]]["fields"]
        there = LAYOUTS["structs"][built_against[kind]]["fields"]
        for name in fields.split():
            if toolkit == "11.0" and (kind, name) in NOT_IN_11_0:
                assert name not in here
            else:
                assert here[name] == there[name], (kind, name)


ONE_OF_EACH = """
    import os, sys, threading
    gpu = FakeGpu({toolkit!r})
    assert gpu.start() == 0
    me = threading.get_native_id()
    t = gpu.now()
    gpu.device(0, "Test Double H100")
    gpu.call(gpu.LAUNCH_KERNEL, t, t + 2_000, me, 1)
    gpu.kernel("_Z4axpyPfS_i", t + 3_000, t + 4_500, 1, device=0, context=1, stream=7, grid=(40, 2, 1),
               block=(256, 1, 1), registers_per_thread=32, static_shared_bytes=1024, dynamic_shared_bytes=512)
    gpu.call(gpu.MEMCPY_ASYNC, t + 5_000, t + 6_000, me, 2)
    gpu.copy(1, 4096, t + 6_000, t + 7_000, 2, stream=7, source=1, destination=3)
    gpu.copy(0, 8192, t + 6_000, t + 7_000, 3, stream=7, peer=1)
    gpu.set(100, t + 8_000, t + 8_100, 4, stream=7, graph=9)
    gpu.allocation(0xffff_8000_0000_0000, 1 << 20, t + 9_000, 5)
    gpu.allocation(0xffff_8000_0000_0000, 1 << 20, t + 9_500, 6, release=1)
    gpu.call(gpu.STREAM_SYNCHRONIZE, t + 10_000, t + 20_000, me, 7, returned=719)
    gpu.wait(3, t + 10_100, t + 19_900, 7, 7)
    gpu.overhead(2 << 16, t, t + 50)
    gpu.environment(0, 1, t, 1980, 2619, 4)
    gpu.environment(0, 2, t, 61)
    gpu.environment(0, 3, t, 350_500, 700_000)
    gpu.call(gpu.GET_DEVICE, t, t + 10, me, 99)
    gpu.call(gpu.GRAPH_LAUNCH, t + 21_000, t + 22_000, me, 8)
    gpu.kernel("in_graph", t + 23_000, t + 24_000, 8, stream=7, graph=9)
    gpu.kernel("in_graph", t + 24_000, t + 25_000, 8, stream=7, graph=9)
"""  # noqa: E501


def rows(recording, table):
    return sorted(recording.arrow(table).to_pylist(), key=lambda row: row["start_ns"] or 0)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("toolkit", ["11.0", "11.4", "11.8", "12.4", "12.9", "13.0", "13.5"])
def test_records_of_every_generation_become_rows(record_fake, toolkit):
    code, recording = record_fake(ONE_OF_EACH.format(toolkit=toolkit))
    assert code == 0
    axpy, first, second = rows(recording, "kernels")
    origin = axpy["start_ns"] - 3_000
    assert axpy == axpy | {
        "name": "axpy(float*, float*, int)",
        "duration_ns": 1_500,
        "device": 0,
        "stream": 7,
        "correlation_id": 1,
        "grid_x": 40,
        "grid_y": 2,
        "grid_z": 1,
        "block_x": 256,
        "registers_per_thread": 32,
        "shared_memory_bytes": 1536,
        "graph_id": None,
        "source": "cupti",
    }
    assert [k["graph_id"] for k in (first, second)] == [9, 9]
    copy, peer, set_, allocate, free = rows(recording, "memory")
    # transfers do not tell theirs before 11.1; the column is not in `memory`
    graphs = toolkit != "11.0"
    assert graphs or set_["kind"] == "memset"
    assert (copy["kind"], copy["memcpy_kind"], copy["bytes"], copy["duration_ns"]) == (
        "memcpy",
        "HtoD",
        4096,
        1000,
    )
    assert copy["host_memory"] == "pageable"
    assert (peer["memcpy_kind"], peer["host_memory"], peer["bytes"]) == ("PtoP", None, 8192)
    assert set_["host_memory"] is None
    assert (set_["kind"], set_["bytes"], set_["duration_ns"]) == ("memset", 100, 100)
    assert (allocate["kind"], free["kind"]) == ("allocate", "free")
    assert allocate["address"] == 0xFFFF_8000_0000_0000 - (1 << 64)
    assert allocate["duration_ns"] is None
    launch, copying, synchronize, graph = rows(recording, "api_calls")
    assert launch["start_ns"] == origin
    assert (launch["name"], copying["name"], graph["name"]) == (
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaGraphLaunch",
    )
    assert (synchronize["waits_for"], synchronize["stream"], synchronize["return_value"]) == (
        "stream",
        7,
        719,
    )
    assert launch["waits_for"] is None
    speed, temperature, power = sorted(
        rows(recording, "clocks"), key=lambda r: (r["power_w"] or 0, r["temperature_c"] or 0)
    )
    assert (speed["sm_clock_hz"], speed["memory_clock_hz"]) == (1_980_000_000, 2_619_000_000)
    assert speed["throttle_reasons"] == "sw_power_cap"
    assert (temperature["temperature_c"], temperature["throttle_reasons"]) == (61.0, None)
    assert power["power_w"] == 350.5
    (collector,) = recording.meta["collectors"]
    assert collector["cupti_status"] == "recording"
    assert collector["overhead_ns"] == {"cupti_instrumentation": 50}
    assert recording.meta["device"]["name"] == "Test Double H100"
    assert recording.meta["device"]["memory_bytes_per_s"] == 3_352_320_000_000
    # Two transfers and two memory events were emitted without a call.
    lost = {name: entry["count"] for name, entry in recording.meta["lost"].items()}
    assert lost == {"device_work_without_launch": 2}


def columns(recording):
    """All rows, without what differs from run to run."""
    own = ("start_ns", "process", "thread")
    return {
        table: [
            {key: value for key, value in row.items() if key not in own}
            for row in rows(recording, table)
        ]
        for table in ("kernels", "memory", "api_calls", "clocks")
    }


@pytest.mark.slow
@pytest.mark.parametrize("toolkit", ["11.0", "12.9", "13.5"])
def test_buffers_kept_as_they_came_replay_into_the_same_rows(record_fake, tmp_path, toolkit):
    kept = tmp_path / "kept"
    _, first = record_fake(ONE_OF_EACH.format(toolkit=toolkit), CURVESCOPE_RAW_BUFFERS=str(kept))
    (file,) = kept.iterdir()
    _, again = record_fake(
        f"""
        gpu = FakeGpu({toolkit!r})
        gpu.cupti.fake_set_record_bytes(10, 1)  # the double's own walk would not find the records
        gpu.start()
        assert gpu.replay({str(file)!r}) == 19
        """,
        CURVESCOPE_RAW_BUFFERS="",
    )
    assert columns(again) == columns(first)
    starts = [
        [row["start_ns"] for row in rows(recording, "kernels")] for recording in (first, again)
    ]
    assert np.ptp(np.subtract(*starts)) == 0
    assert again.meta["device"] == first.meta["device"]
    assert file.stat().st_size < 100_000


@pytest.mark.slow
def test_of_many_buffers_the_first_are_kept(record_fake, tmp_path):
    kept = tmp_path / "kept"
    code, recording = record_fake(
        "gpu = FakeGpu()\ngpu.start()\ngpu.emit_many(1, 200_000)", CURVESCOPE_RAW_BUFFERS=str(kept)
    )
    (file,) = kept.iterdir()
    assert code == 0
    assert 8 << 20 < file.stat().st_size < 17 << 20
    assert recording.arrow("kernels").num_rows == 200_000


def test_times_are_moved_to_the_monotonic_clock_and_the_error_is_said(record_fake):
    _, recording = record_fake(
        """
        import time
        gpu = FakeGpu()
        gpu.start()
        before, real, after = time.monotonic_ns(), gpu.now(), time.monotonic_ns()
        gpu.kernel("k", real, real + 10, 1)
        print(before, after, file=open(__file__ + ".said", "w"))
        """,
        # so that CUPTI's clock is not the host's
        FAKE_CUPTI_FAIL="cuptiActivityRegisterTimestampCallback=27",
    )
    (kernel,) = rows(recording, "kernels")
    (collector,) = recording.meta["collectors"]
    before, after = map(int, (recording.path.parent / "program.py.said").read_text().split())
    error_ns = collector["clock_error_ns"]
    # However long a busy machine lets the collector wait between two clocks.
    assert 0 < error_ns < 10**10
    assert before - error_ns <= kernel["start_ns"] <= after + error_ns
    assert collector["cupti_refused"] == ["timestamps: CUPTI_ERROR_UNKNOWN (27)"]


@pytest.mark.slow
def test_kernels_get_layer_class_and_phase_of_the_annotation_open_at_their_launch(
    record_fake, text_of
):
    _, recording = record_fake(
        """
        import threading, torch, curvescope
        from torch import nn
        gpu = FakeGpu()
        gpu.start()
        number = iter(range(1, 1000))

        class Launching(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, name):
                ctx.label = name
                launch(gpu, name + "_forward", next(number), threading.get_native_id())
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                launch(gpu, ctx.label + "_backward", next(number), threading.get_native_id())
                return grad * 2, None

        class Layer(nn.Module):
            def __init__(self, name): super().__init__(); self.name = name
            def forward(self, x): return Launching.apply(x, self.name)

        model = nn.Sequential(Layer("a"), nn.Sequential(Layer("b")))
        with curvescope.annotate(model):
            model(torch.ones(2, requires_grad=True)).sum().backward()
        launch(gpu, "outside", next(number), threading.get_native_id())
        """
    )
    found = {k["name"]: (k["layer"], k["phase"]) for k in rows(recording, "kernels")}
    assert found == {
        "a_forward": ("0", "forward"),
        "b_forward": ("1.0", "forward"),
        "b_backward": ("1.0", "backward"),
        "a_backward": ("0", "backward"),
        "outside": (None, None),
    }
    assert recording.meta["layer_classes"] == {"0": "Layer", "1": "Sequential", "1.0": "Layer"}
    assert "0 (Layer) forward" in text_of("breakdown", recording.path)


def test_a_launch_by_the_driver_joins_and_one_unseen_is_counted(record_fake):
    _, recording = record_fake(
        """
        import threading
        gpu = FakeGpu()
        gpu.start()
        t = gpu.now()
        gpu.call(gpu.CU_LAUNCH_KERNEL, t, t + 5, threading.get_native_id(), 5, driver=1)
        gpu.call(gpu.CU_CTX_GET_CURRENT, t, t + 5, threading.get_native_id(), 6, driver=1)
        gpu.kernel("k", t + 10, t + 20, 5)
        gpu.kernel("k", t + 30, t + 40, 77)
        """
    )
    assert [row["name"] for row in rows(recording, "api_calls")] == ["cuLaunchKernel"]
    assert recording.meta["lost"]["device_work_without_launch"]["count"] == 1


def test_a_kernel_without_times_is_kept_and_counted(record_fake):
    _, recording = record_fake(
        """
        gpu = FakeGpu()
        gpu.start()
        gpu.kernel("unfinished", gpu.now(), 0, 1)
        gpu.kernel("untimed", 0, 0, 2)
        """
    )
    untimed, unfinished = rows(recording, "kernels")
    assert (untimed["start_ns"], untimed["duration_ns"]) == (None, None)
    assert unfinished["start_ns"] is not None
    assert unfinished["duration_ns"] is None
    assert recording.meta["lost"]["without_time"]["count"] == 2
