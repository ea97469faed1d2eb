"""Records of real devices, replayed: `tests/data/h100` and the like, as the GPU campaign leaves
them, by their card.

What is absent is skipped by name. The same checks run on a folder that the campaign's own packer
makes of the test doubles' records and of profiles recorded by others, so that they are known to
work before a device was there.
"""

import csv
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.kernel_times import device_work, kernel_times
from curvescope.profiling.attribution.cupti_names import HOST_MEMORY
from curvescope.profiling.collect.chunks import read_chunks
from curvescope.profiling.hardware.devices import get_device
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ..shared import load_script

DATA = Path(__file__).parents[1] / "data"
_OF_DEVICE = "# Records of a real device"
REAL = [
    path.parent
    for path in sorted(DATA.glob("*/README.md"))
    if path.read_text().startswith(_OF_DEVICE)
]
CARDS = pytest.mark.parametrize("real", REAL or [DATA / "h100"], ids=lambda path: path.name)


def need(folder, name):
    if not (folder / name).exists():
        pytest.skip(f"{folder.name}/{name} is not there: no such device has been recorded yet")
    return folder / name


# Raw buffers of a process, and its recordings: of the whole process, or of its blocks.
RAW = {
    "raw_buffers": ("collector",),
    "program_raw_buffers": ("program",),
    "driver_raw_buffers": ("driver",),
    "blocks_raw_buffers": ("block-1", "block-2"),
}


def replay(folder, tmp_path, record_fake, raw):
    """CUPTI's own buffers of a process through our reader."""
    kept = tmp_path / "kept.chunks"
    kept.write_bytes(gzip.decompress(need(folder, f"{raw}.chunks.gz").read_bytes()))
    _, again = record_fake(
        f"""
        gpu = FakeGpu()
        gpu.cupti.fake_set_record_bytes(10, 1)  # the double's own walk would not find the records
        gpu.start()
        assert gpu.replay({str(kept)!r}) > 0
        """,
        CURVESCOPE_RAW_BUFFERS="",
    )
    return again


def check_raw_buffers(folder, tmp_path, record_fake, raw="raw_buffers"):
    """The replayed kernels are those that the recordings of the same process have."""
    again = replay(folder, tmp_path, record_fake, raw)
    geometry = [
        "name",
        "grid_x",
        "grid_y",
        "grid_z",
        "block_x",
        "block_y",
        "block_z",
        "registers_per_thread",
    ]
    here, there = (
        pd.concat(recording.frame("kernels") for recording in recordings)
        .sort_values(["correlation_id", "name"], ignore_index=True)
        .astype(object)[[*geometry, "shared_memory_bytes", "duration_ns", "correlation_id"]]
        for recordings in ([again], [open_recording(need(folder, name)) for name in RAW[raw]])
    )
    assert len(here) > 0
    assert here.equals(there)


def check_recording(folder, name="collector"):
    """A recording of the collector: kernels with geometry, launched by calls, and steps whose parts
    add up.
    """
    recording = open_recording(need(folder, name))
    kernels, steps = recording.frame("kernels"), recording.frame("steps")
    if kernels.empty:
        pytest.skip("the recording was made without a GPU")
    assert (kernels["duration_ns"] > 0).all()
    assert (kernels[["grid_x", "block_x", "registers_per_thread"]] > 0).all(axis=None)
    launches = recording.frame("api_calls")
    assert kernels["correlation_id"].isin(launches["correlation_id"]).mean() > 0.99
    if len(steps):
        parts = kernel_times(device_work(recording), steps)
        walls = parts.groupby("step")["exclusive_ms"].sum()
        expected = steps.set_index("step")["duration_ns"].astype(float) / 1e6
        assert np.allclose(walls, expected[walls.index], rtol=1e-9)
    return recording


def check_trace(folder, tmp_path):
    """The trace's own sum of kernel times, read with nothing of ours, is the recording's."""
    path = need(folder, "torch_trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    durations_us = [event["dur"] for event in events if event.get("cat", "").lower() == "kernel"]
    kernels = open_recording(import_profile(path, tmp_path / "trace").path).frame("kernels")
    if not durations_us:
        pytest.skip("the trace was made without a GPU")
    on_device = kernels[kernels["device"].notna()]
    assert len(on_device) == len(durations_us)
    assert on_device["duration_ns"].sum() / 1e3 == pytest.approx(
        sum(durations_us), abs=0.001 * len(durations_us)
    )


def check_ncu(folder, tmp_path):
    """A row per kernel of the CSV, each with measured time and DRAM bytes."""
    path = need(folder, "ncu.csv")
    with path.open(newline="") as file:
        ids = {row["ID"] for row in csv.DictReader(file) if row["ID"]}
    kernels = open_recording(import_profile(path, tmp_path / "ncu").path).frame("kernels")
    assert len(kernels) == len(ids) > 0
    assert (kernels["duration_ns"] > 0).all()
    assert kernels["dram_bytes"].notna().all()


@pytest.mark.slow
@CARDS
@pytest.mark.parametrize("raw", RAW)
def test_real_raw_buffers_replay(tmp_path, record_fake, raw, real):
    check_raw_buffers(real, tmp_path, record_fake, raw)


@pytest.mark.slow
@CARDS
def test_real_copies_tell_the_memory_of_the_host(tmp_path, record_fake, real):
    """The loader of the recorded program has pageable memory, and nothing else is told pinned."""
    copies = replay(real, tmp_path, record_fake, "program_raw_buffers").frame("memory")
    of_host = copies[copies["memcpy_kind"].isin(["HtoD", "DtoH"])]
    assert len(of_host) > 0
    assert of_host["host_memory"].isin(HOST_MEMORY).all()
    assert copies.drop(of_host.index)["host_memory"].isna().all()


@CARDS
@pytest.mark.parametrize("name", [name for names in RAW.values() for name in names])
def test_a_real_recording_of_the_collector(name, real):
    recording = check_recording(real, name)
    assert (
        recording.meta["device"]["compute_capability"] == get_device(real.name).compute_capability
    )


@CARDS
@pytest.mark.parametrize("name", ["collector", "program", "driver", "block-1", "profiler"])
def test_a_real_recording_has_clocks_and_every_kernel_its_launch(name, real):
    """CUPTI refused clocks where there was no context yet; blocks, and what came after a profile of
    the program's own, had no launch.
    """
    recording = open_recording(need(real, name))
    assert recording.count_rows("clocks") > 0
    launched = recording.frame("api_calls")["correlation_id"]
    assert recording.frame("kernels")["correlation_id"].isin(launched).all()
    assert "ranges_cut" not in recording.meta["lost"]


_CLOCKS = 20  # CUPTI_ACTIVITY_KIND_ENVIRONMENT
_CLOCKS_BYTES = 40
_CALL_OR_OVERHEAD = {4, 17}  # the collector's own call of the driver, and CUPTI's overheads


@CARDS
def test_a_real_cupti_samples_clocks_when_the_work_is_done_and_fills_buffers_from_their_beginning(
    tmp_path, real
):
    """What decides whether a buffer that did not come back is a loss (native/src/activity.cpp)."""
    kept = tmp_path / "kept.chunks"
    kept.write_bytes(gzip.decompress(need(real, "raw_buffers.chunks.gz").read_bytes()))
    idle_samples = 0
    for buffer in read_chunks(kept).raw:
        starts = buffer.offsets.tolist()
        ends = [*starts[1:], len(buffer.data)]
        kinds = [int.from_bytes(buffer.data[at : at + 4], "little") for at in starts]
        assert starts[0] == 0
        assert 0 not in kinds
        sizes = {
            end - start
            for kind, start, end in zip(kinds, starts, ends, strict=True)
            if kind == _CLOCKS
        }
        assert sizes <= {_CLOCKS_BYTES}
        is_idle = {*kinds} <= {_CLOCKS, *_CALL_OR_OVERHEAD}
        idle_samples = idle_samples + kinds.count(_CLOCKS) if is_idle else 0
    assert idle_samples >= 5  # since the last work


@CARDS
def test_a_real_trace_of_torch(tmp_path, real):
    check_trace(real, tmp_path)


@CARDS
def test_a_real_table_of_nsight_compute(tmp_path, real):
    check_ncu(real, tmp_path)


@pytest.mark.slow
def test_the_checks_hold_on_what_the_packer_makes_of_the_doubles(
    tmp_path, record_fake, monkeypatch
):
    stage = tmp_path / "stage"
    stage.mkdir()
    _, recording = record_fake(
        """
        import threading
        import nvtx
        gpu = FakeGpu()
        gpu.start()
        gpu.device(0, "Test Double H200")
        me = threading.get_native_id()
        for number in range(3):
            with nvtx.annotate("curvescope.step:batch size=4"):
                launch(gpu, f"kernel_{number}", number + 1, me, stream=7, grid=(40, 2, 1), block=(256, 1, 1),
                       registers_per_thread=32)
        gpu.flush()
        """,  # noqa: E501
        CURVESCOPE_RAW_BUFFERS=str(stage / "raw_buffers"),
    )
    for name in ("collector", "program", "driver", "processes", "profiler", "block-1"):
        shutil.copytree(recording.path, stage / name)
    for name in ("program", "driver", "blocks"):
        shutil.copytree(stage / "raw_buffers", stage / f"{name}_raw_buffers")
    with RecordingWriter(
        stage / "block-2", {**recording.meta, "argv": []}
    ) as writer:  # its block launched nothing
        writer.write("kernels", recording.arrow("kernels").slice(0, 0))
    kineto = DATA / "profiles" / "kineto_resnet50_w0_a.pt.trace.json.gz"
    (stage / "torch_trace.json").write_bytes(gzip.decompress(kineto.read_bytes()))
    messages = "==PROF== Connected to process 7 (/home/somebody/python)\n"
    (stage / "ncu.csv").write_text(
        messages + (DATA / "profiles" / "averyclapp_metrics_long.csv").read_text()
    )
    packer = load_script("benchmarks/gpu/test_data.py")
    monkeypatch.setattr(packer, "MOST_BYTES", 4_000_000)  # the trace is of other people's making
    monkeypatch.setattr("sys.argv", ["test_data.py", "made", *os.listdir(stage)])
    monkeypatch.chdir(stage)
    assert packer.main() == 0
    made = stage / "made"
    assert set(os.listdir(made)) == {"README.md", *packer.HOW}
    for name in packer.HOW:
        assert f"| {name} |" in (made / "README.md").read_text()
    assert "somebody" not in (made / "ncu.csv").read_text()
    assert "127.0.0.1" not in (made / "ncu.csv").read_text()
    assert str(tmp_path) not in (made / "collector" / "recording.json").read_text()
    assert len(check_recording(made).frame("steps")) == 3
    check_trace(made, tmp_path)
    check_ncu(made, tmp_path)
    for raw in ("raw_buffers", "blocks_raw_buffers"):
        check_raw_buffers(made, tmp_path, record_fake, raw)


def test_the_packer_leaves_out_what_is_too_large_and_says_so(tmp_path, monkeypatch, capsys):
    (tmp_path / "torch_trace.json").write_text(
        json.dumps({"traceName": "/home/somebody/t.json", "traceEvents": []})
    )
    packer = load_script("benchmarks/gpu/test_data.py")
    monkeypatch.setattr(packer, "MOST_BYTES", 10)
    monkeypatch.setattr("sys.argv", ["test_data.py", "made", "torch_trace.json", "ncu.csv"])
    monkeypatch.chdir(tmp_path)
    assert packer.main() == 0
    said = capsys.readouterr().out
    assert "torch_trace.json.gz" in said
    assert "left out" in said
    assert "ncu.csv: not recorded here" in said
    assert os.listdir("made") == ["README.md"]
