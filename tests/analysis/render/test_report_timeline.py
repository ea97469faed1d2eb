"""The lanes of one step, what the host did while no device work ran, and the text of a program's
lines in a report.
"""

from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest

from curvescope.analysis.render import report_data
from curvescope.analysis.render.report_timeline import timeline
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ...tables import ask_each

STEPS = pd.DataFrame(
    {"step": [0], "start_ns": [1_000_000], "duration_ns": [100_000], "profiled": [True]}
)


def device(*rows):
    """Device work as `device_work` gives it; each row is name, start and end in µs,
    stream, layer.
    """
    table = pd.DataFrame(rows, columns=["name", "begin", "end", "stream", "layer"]).assign(
        step=0, device=0, process=7, phase="forward"
    )
    table["start_ns"] = 1_000_000 + (table["begin"] * 1000).astype(int)
    table["duration_ns"] = ((table["end"] - table["begin"]) * 1000).astype(int)
    return lambda columns: [pa.table({c: pa.array(table[c], from_pandas=True) for c in columns})]


def calls(*rows):
    """Calls of the host; each row is name, start and end in µs."""
    table = pd.DataFrame(rows, columns=["name", "begin", "end"]).assign(process=7, thread=1)
    return table.assign(
        start_ns=1_000_000 + table["begin"] * 1000,
        duration_ns=(table["end"] - table["begin"]) * 1000,
    )


WORK = device(
    ("conv", 10.0, 30.0, 7, "conv1"),
    ("relu", 30.0, 40.0, 7, "relu1"),
    ("Memcpy HtoD", 35.0, 45.0, 8, None),
    ("gemm", 70.0, 90.0, 7, "fc"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 80.0, 95.0, 20, None),
)


def test_layers_host_streams_copies_communication_and_idle_have_lanes():
    found = timeline(
        WORK, STEPS, [0], 8, calls(("cudaLaunchKernel", 1, 9), ("cudaStreamSynchronize", 44, 69))
    )
    assert [(lane["label"], lane["kind"], lane["busy_us"]) for lane in found["lanes"]] == [
        ("layers", "layer", 50.0),
        ("host calls", "host", 33.0),
        ("stream 7", "kernels", 50.0),
        ("copies, stream 8", "copies", 10.0),
        ("communication, stream 20", "communication", 15.0),
        ("idle", "idle", 40.0),
    ]
    assert (found["kernels"], found["hidden"]) == (5, 0)


@ask_each(
    ("api", "ranges", "reasons"),
    [
        (
            calls(("cudaLaunchKernel", 1, 9), ("cudaStreamSynchronize", 44, 69)),
            None,
            [
                "idle: host in cudaLaunchKernel",
                "idle: host in cudaStreamSynchronize",
                "idle: host outside API calls",
            ],
        ),
        # A range explains a gap where no call does; the innermost counts.
        (
            calls(("cudaLaunchKernel", 1, 9)),
            calls(("step", 0, 100), ("load batch", 46, 69)),
            [
                "idle: host in cudaLaunchKernel",
                "idle: host in range load batch",
                "idle: host in range step",
            ],
        ),
        (None, None, ["idle"] * 3),
    ],
)
def test_an_idle_time_says_what_the_host_did_and_which_layer_follows(api, ranges, reasons):
    found = timeline(WORK, STEPS, [0], 8, api, None if ranges is None else lambda: ranges)
    idle = len(found["lanes"]) - 1
    gaps = [
        (start, length, *found["names"][name])
        for lane, start, length, name, _ in found["spans"]
        if lane == idle
    ]
    assert [gap[:2] for gap in gaps] == [(0.0, 10.0), (45.0, 25.0), (95.0, 5.0)]
    assert [gap[2] for gap in gaps] == reasons
    assert [gap[3] for gap in gaps] == ["conv1", "fc", None]


def test_ranges_are_read_once_for_all_gaps():
    reads = []
    timeline(WORK, STEPS, [0], 8, None, lambda: reads.append(1) or calls(("step", 0, 100)))
    assert len(reads) == 1


def test_lanes_beyond_the_busiest_are_counted():
    work = device(*(("k", 1.0 * i, 1.0 * i + 0.9, i, None) for i in range(12)))
    found = timeline(work, STEPS, [0], 8)
    assert sum(lane["kind"] == "kernels" for lane in found["lanes"]) == 8
    assert found["hidden"] == 4


def test_streams_of_several_devices_are_named_by_device_and_threads_of_a_cpu_by_position():
    def changed(**values):
        return lambda columns: [
            pa.Table.from_pandas(
                piece.to_pandas().assign(**{k: v for k, v in values.items() if k in columns})
            )
            for piece in WORK(columns)
        ]

    two = timeline(changed(device=[0, 1, 0, 0, 0]), STEPS, [0], 8)
    assert [lane["label"] for lane in two["lanes"] if lane["kind"] == "kernels"] == [
        "GPU 0 stream 7",
        "GPU 1 stream 7",
    ]
    cpu = timeline(changed(device=None, stream=140_000_000_001), STEPS, [0], 8)
    assert [lane["label"] for lane in cpu["lanes"] if lane["kind"] == "kernels"] == ["CPU thread 1"]


def source(folder, text):
    """What a report shows of three lines, one of which the recording has with a text."""
    row = {
        "batch": 8,
        "layer": "fc",
        "phase": "forward",
        "op": None,
        "line": 2,
        "calls": None,
        "duration_ns": 5,
    }
    with RecordingWriter(folder / "run", {}) as writer:
        rows = [{**row, "file": ".env", "text": None}, {**row, "file": "model.py", "text": text}]
        writer.write("lines", columns_of(rows))
    lines = (".env:2", "model.py:2", "model.py:3", None)
    explanation = SimpleNamespace(shares=[SimpleNamespace(line=line) for line in lines])
    return report_data._source([explanation], open_recording(folder / "run"))


def test_a_line_shows_the_text_that_was_recorded_and_no_file_of_the_reader(tmp_path, monkeypatch):
    """It used to be read from the reader's folder, which a recording of somebody else can name any
    file of.
    """
    for name in (".env", "model.py"):
        (tmp_path / name).write_text("import torch\nSECRET=of the reader\n")
    monkeypatch.chdir(tmp_path)
    assert source(tmp_path, "x = self.fc(x)") == {"model.py:2": "x = self.fc(x)"}


@pytest.mark.parametrize(("text", "shown"), [(None, {}), ("y" * 10_000, {"model.py:2": "y" * 200})])
def test_a_recording_without_texts_shows_none_and_a_long_one_is_cut(text, shown, tmp_path):
    assert source(tmp_path, text) == shown
