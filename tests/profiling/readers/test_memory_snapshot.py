"""Memory snapshots of PyTorch, built with the keys that `torch.cuda.memory._snapshot` writes, and
of no GPU's run.
"""

import os
import pickle
import time

import pytest

from curvescope.analysis.memory import explain_memory
from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

MB = 1_000_000


def frame(filename, name, line=1):
    return {"filename": filename, "name": name, "line": line}


MODEL = [frame("/home/user/model.py", "forward", 41), frame("/usr/lib/python3.11/runpy.py", "call")]
OPTIMIZER = [
    frame("/v/site-packages/torch/optim/adam.py", "step"),
    frame("/home/user/train.py", "f", 9),
]
BACKWARD = [frame("??", "torch::autograd::Engine::evaluate_function")]


def event(action, size, addr, time_us, frames=()):
    return {
        "action": action,
        "size": size,
        "addr": addr,
        "stream": 0,
        "time_us": time_us,
        "frames": list(frames),
    }


def snapshot(scale=1):
    """60 MB of parameters are older than the trace.

    Activations of 30 make way for gradients of 20; state of 40 stays.

    The peak is 60 + 30 + 20 = 110 MB, and 40 more with the state: 60 + 20 + 40 = 120, of 200
    reserved.
    """
    mb = scale * MB
    trace = [
        event("segment_alloc", 200 * mb, 0x1000, 0),
        event("alloc", 30 * mb, 0xA000, 10, MODEL),
        event("alloc", 20 * mb, 0xB000, 20, BACKWARD),
        event("free_requested", 30 * mb, 0xA000, 30),
        event("free_completed", 30 * mb, 0xA000, 30),
        event("alloc", 40 * mb, 0xA000, 40, OPTIMIZER),
        event("snapshot", 0, 0, 50),
    ]
    blocks = [
        {
            "size": 60 * mb,
            "state": "active_allocated",
            "frames": [frame("/home/user/train.py", "__init__", 3)],
        },
        {"size": 20 * mb, "state": "active_allocated", "address": 0xB000, "frames": BACKWARD},
        {"size": 40 * mb, "state": "active_allocated", "address": 0xA000, "frames": OPTIMIZER},
        {"size": 80 * mb, "state": "inactive", "address": 0xC000, "frames": []},
    ]
    segment = {
        "device": 0,
        "address": 0x1000,
        "total_size": 200 * mb,
        "stream": 0,
        "blocks": blocks,
    }
    return {"segments": [segment], "device_traces": [trace, []], "allocator_settings": {}}


def write(path, content):
    path.write_bytes(pickle.dumps(content))
    return path


def test_the_peak_is_led_back_to_from_the_blocks_at_the_end(tmp_path):
    import_profile(write(tmp_path / "snapshot.pickle", snapshot()), tmp_path / "run")
    rows = open_recording(tmp_path / "run").arrow("peaks").to_pylist()
    assert {row["kind"]: (row["bytes"] / MB, row["file"], row["line"]) for row in rows} == {
        "parameters": (60, "train.py", 3),
        "gradients": (20, None, None),
        "optimizer state": (40, "train.py", 9),
        "cached": (80, None, None),
    }
    assert [row["kind"] for row in rows if row["makes_peak"]] == ["optimizer state"]


def test_what_was_there_before_the_recording_is_no_gradient(tmp_path):
    """Parameters that were made before it have no stack; a stack of C++ alone is the backward's."""
    content = snapshot()
    content["segments"][0]["blocks"][0]["frames"] = []
    done = import_profile(write(tmp_path / "snapshot.pickle", content), tmp_path / "run")
    assert done.steps_from == "the whole snapshot as one step"  # no order of kernels to look at
    rows = open_recording(tmp_path / "run").arrow("peaks").to_pylist()
    kinds = {row["kind"]: row["bytes"] / MB for row in rows}
    assert kinds == {"other": 60, "gradients": 20, "optimizer state": 40, "cached": 80}


def test_snapshots_of_several_batch_sizes_are_a_curve(tmp_path):
    files = [str(write(tmp_path / f"{scale}.pickle", snapshot(scale))) for scale in (1, 2)]
    assert (
        main(["import", "--as", "sweep", "--batch", "8,16", *files, "-o", str(tmp_path / "run")])
        == 0
    )
    found = explain_memory(open_recording(tmp_path / "run"))
    assert [point.time_ms.value for point in found.curve.points] == pytest.approx([120, 240])


def test_explain_tells_a_snapshot_without_a_batch_size_or_an_option(tmp_path, capsys):
    file = write(tmp_path / "snapshot.pickle", snapshot())
    assert main(["breakdown", str(file)]) == 2
    assert f"`curvescope explain {file}` explains it" in capsys.readouterr().err
    assert main(["explain", str(file)]) == 0
    said = capsys.readouterr().out
    assert "A step of unknown batch needs 120 MB at its peak: parameters 50%" in said


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def test_a_pickle_with_an_object_is_refused_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "snapshot.pickle", {"segments": [Harmful()], "device_traces": []})
    with pytest.raises(CurvescopeError, match="a pickle with an object of Python"):
        import_profile(file, tmp_path / "run")
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    ("content", "cut", "message"),
    [
        (
            {"segments": [], "device_traces": [[]]},
            None,
            "no events of GPU 0: call torch.cuda.memory._record_memory_his",
        ),
        (
            {"segments": [{"device": 0}], "device_traces": [[{"action": "alloc"}]]},
            None,
            "damaged memory snapshot",
        ),
        ({"segments": [], "device_traces": 3}, None, "values that fit no column"),
        (snapshot(), -20, "it is a damaged pickle"),
    ],
)
def test_a_snapshot_without_what_is_needed_is_refused(tmp_path, content, cut, message):
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(content)[:cut])
    with pytest.raises(CurvescopeError, match=message):
        import_profile(tmp_path / "snapshot.pickle", tmp_path / "run")


def import_in_seconds(tmp_path, content):
    """CPU seconds to import a snapshot, protocol 4 of which shares what its objects share."""
    file = write(tmp_path / "snapshot.pickle", content)
    began = time.process_time()
    import_profile(file, tmp_path / "run")
    return time.process_time() - began


def test_what_events_share_is_looked_at_once(tmp_path):
    """A stack of ten thousand frames of ten thousand events, and a segment of as many blocks ten
    thousand times.
    """
    stack = [{"filename": "x.py", "name": "y", "line": 1}] * 10_000
    event = {"action": "alloc", "size": 1, "addr": 1, "stream": 0, "time_us": 1, "frames": stack}
    block = {"size": 1, "state": "inactive"}
    segment = {"device": 0, "address": 1, "total_size": 10_000, "blocks": [block] * 10_000}
    content = {"segments": [segment] * 10_000, "device_traces": [[event] * 10_000]}
    assert import_in_seconds(tmp_path, content) < 10  # 10^8 of each took minutes


@pytest.mark.parametrize(
    ("size", "said"), [(2**62, "more than 2\\^60 bytes"), (-100, "less than 0 bytes")]
)
def test_sizes_that_no_device_has_are_refused(tmp_path, size, said):
    events = [
        {"action": "alloc", "size": size, "addr": at, "stream": 0, "time_us": 1} for at in (1, 2, 3)
    ]
    content = {
        "segments": [{"device": 0, "address": 1, "total_size": 1, "blocks": []}],
        "device_traces": [events],
    }
    with pytest.raises(CurvescopeError, match=said):
        import_profile(write(tmp_path / "snapshot.pickle", content), tmp_path / "run")
