"""What the hook in a program on a GPU writes of a window, and what is read of it: events made of a
trace of others.
"""

import sys
from types import SimpleNamespace

import pytest
import torch

from curvescope.profiling.collect.kept_chunks import begin
from curvescope.profiling.collect.recorded_steps import steps_of
from curvescope.profiling.collect.startup import kineto, torch_windows
from curvescope.profiling.collect.torch_step import split_events
from curvescope.profiling.recording.store import open_recording

from ...shared import load_script
from .kineto_doubles import KinetoResults
from .test_torch_step import B200, COPIES, GEOMETRY

FILE = "profiling/collect/startup/torch_kernels.py"


@pytest.fixture
def recorder(monkeypatch, tmp_path):
    """A recorder of this process, whose windows have the events of the trace."""
    monkeypatch.setitem(sys.modules, "_curvescope_kineto", kineto)
    monkeypatch.setitem(sys.modules, "_curvescope_torch_windows", torch_windows)
    recorders = load_script(FILE)
    chunks = begin(tmp_path / "profile", {"recording_type": "profile"})
    recorder = recorders.KernelRecorder(torch, str(chunks.folder))
    results = KinetoResults(B200)
    monkeypatch.setattr(recorder, "_begin_profile", lambda: SimpleNamespace(kineto_results=results))
    monkeypatch.setattr(recorder, "_end_profile", lambda _: None)
    monkeypatch.setattr(torch_windows, "_clock_offset_ns", lambda: 0)
    return recorder, chunks, results


def window(recorder, ends):
    """Record a window whose steps end at these times."""
    recorder.open_window()
    for _ in range(recorder.discarded):
        recorder.end_step()
    recorder._begin_ns, *ends = ends
    for _ in ends:
        recorder.end_step()
    recorder._boundaries = [(end, "optimizer", None) for end in ends]
    recorder._leader_id = 1
    written = []
    recorder.close_window(lambda: written.append(True))
    assert written == [True]


def steps_in(chunks):
    chunks.merge()
    return steps_of(open_recording(chunks.writer.path))


def test_a_window_has_the_kernels_copies_and_calls_of_the_trace(recorder):
    recorder, chunks, results = recorder
    events = split_events(results)
    first = min(event.start_ns for event in events.host) - 1
    last = max(event.start_ns + event.duration_ns for event in events.device)
    window(recorder, [first, last])
    steps = steps_in(chunks)
    assert len(steps) == 1
    rows = [row for step in steps for row in step.kernels]
    ours = {(row["name"], row["start_ns"]): row for row in rows if "grid_x" in row}
    theirs = {(event.name, event.start_ns): event for event in events.device}
    kernels = {key: one for key, one in theirs.items() if not key[0].startswith(COPIES)}
    assert set(ours) == set(kernels)
    for key, event in kernels.items():
        row = ours[key]
        place = (row["device"], row["stream"], row["correlation_id"], row["duration_ns"])
        assert place == (event.device, event.stream, event.correlation_id, event.duration_ns)
        assert [row[name] for name in GEOMETRY] == [event.columns[name] for name in GEOMETRY]
    assert sum(row.get("op") is not None for row in ours.values()) > 0.9 * len(ours)
    copies = [row for row in rows if row["name"].startswith(COPIES)]
    assert len(copies) == len(theirs) - len(kernels)
    assert sum(row["bytes"] for row in copies) == sum(
        event.columns["bytes"] for key, event in theirs.items() if key not in kernels
    )
    assert sum(len(step.api_calls) for step in steps) == len(events.api_calls)


def test_the_first_step_of_a_window_is_none_of_it(recorder):
    """The host does not run ahead in it: the device had ended all work."""
    recorder, _, _ = recorder
    recorder.open_window()
    opened_ns = recorder._begin_ns
    recorder.end_step()
    assert recorder._begin_ns > opened_ns
    assert recorder._boundaries == []
    recorder.end_step()
    assert len(recorder._boundaries) == 1


@pytest.mark.slow
def test_a_window_ends_after_the_ranges_that_are_open_where_its_last_step_ends(recorder):
    """As that of the optimizer, which told of the end: without its range its work has no phase."""
    recorder, _, _ = recorder
    recorder.open_window()
    written, step = [], torch.autograd.profiler.record_function("Optimizer.step#SGD.step")
    recorder._ranges.add(step)
    recorder.close_window(lambda: written.append("later"))
    assert not written
    recorder.close_window(lambda: written.append("at once"), at_once=True)
    assert written == ["at once"]
