"""A sweep whose recordings several measure at once: who measures what, and what is left when one of
them ends.
"""

import json
import os
import signal
import warnings
from collections import Counter
from dataclasses import replace

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.events import StepRows
from curvescope.profiling.attribution.outermost_operators import OperatorCalls
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sweep_plan import PLAN_FILE, SweepPlan, run_plan, sweep_recordings
from curvescope.profiling.recording.store import RecordingWriter, Status, open_recording

from .fake_measurers import CARD, FakeMeasurer, machine

TWO_ROUNDS = Protocol("two", (2, 2), 1, (1, 1), 0.0, 0, None)
SETTINGS = tuple(Configuration(name, device="cuda:0") for name in ("alexnet", "vgg16", "resnet50"))
PLAN = SweepPlan(SETTINGS, (1, 2, 4), False, TWO_ROUNDS)
VISITS = 2 * len(PLAN.batches)


@pytest.fixture
def folder(tmp_path):
    PLAN_FILE.write(tmp_path / "sweep", PLAN)
    return tmp_path / "sweep"


def recordings(folder):
    return {path.name: open_recording(path) for path in sweep_recordings(folder)}


def assert_whole(folder):
    """Every visit was made once."""
    for recording in recordings(folder).values():
        assert recording.meta["status"] == Status.COMPLETE
        steps = recording.frame("steps")
        assert steps["step"].is_unique
        visits = Counter(steps[["batch", "round"]].itertuples(index=False, name=None))
        assert visits == {(batch, round_): 1 for batch in PLAN.batches for round_ in (0, 1)}


def test_each_recording_is_measured_by_one_in_interleaved_rounds(folder):
    both = [FakeMeasurer(), FakeMeasurer()]
    assert run_plan(folder, PLAN, measurers=both) == []
    labels = [{label for label, _ in one.visited} for one in both]
    assert not labels[0] & labels[1]
    assert labels[0] | labels[1] == {setting.label for setting in SETTINGS}
    assert_whole(folder)
    for recording in recordings(folder).values():
        assert recording.frame("steps").sort_values("step")["round"].tolist() == [0, 0, 0, 1, 1, 1]
        assert recording.frame("clocks").shape[0] == VISITS
        assert "went_on_at" not in recording.meta


class ProfilingMeasurer(FakeMeasurer):
    """Its visits have a profiled step with one operator."""

    def __init__(self):
        super().__init__()
        self.counted = []

    def visit(self, configuration, batch, how):
        self.counted.append((configuration.label, batch, how.operators))
        operator = {
            "op": "aten::relu",
            "arguments": "[]",
            "calls": 1,
            "position": 0,
            "source": "torch",
        }
        profile = StepRows([], [(0, 9)], {}, operator_calls=OperatorCalls([operator], [0]))
        return replace(super().visit(configuration, batch, how), profiled=[profile])


def test_page_faults_are_counted_in_the_first_visit_of_a_batch_size_only(folder):
    measurer = ProfilingMeasurer()
    assert run_plan(folder, PLAN, measurers=[measurer]) == []
    seen = set()
    for label, batch, count_faults in measurer.counted:
        assert count_faults == ((label, batch) not in seen)
        seen.add((label, batch))
    assert len(measurer.counted) == 2 * len(seen)


def test_a_recording_that_is_resumed_elsewhere_says_from_which_step(folder):
    run_plan(folder, PLAN, measurers=[FakeMeasurer(moves_at=VISITS + 2)])
    told = [recording.meta.get("went_on_at") for recording in recordings(folder).values()]
    assert [one and [entry["first_step"] for entry in one] for one in told] == [None, [2], None]
    assert told[1][0]["device"] == CARD


def test_who_ends_for_good_leaves_its_recording_to_be_resumed_and_the_others_go_on(folder):
    with pytest.raises(CurvescopeError, match="the worker ended"):
        run_plan(folder, PLAN, measurers=[FakeMeasurer(lost_at=2), FakeMeasurer()])
    by_status = Counter(recording.meta["status"] for recording in recordings(folder).values())
    assert by_status == {Status.COMPLETE: 2, Status.INTERRUPTED: 1}
    assert run_plan(folder, PLAN, measurers=[second := FakeMeasurer()]) == []
    assert len(second.visited) == VISITS - 2  # nothing is measured twice
    assert_whole(folder)


def test_a_sweep_that_is_killed_in_a_write_resumes_and_measures_nothing_twice(folder, monkeypatch):
    """Of the fourth visit all is written but the steps, which come last."""
    written, write = [], RecordingWriter.write

    def killed(writer, table, *arguments):
        written.append(table)
        if written.count("steps") == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        write(writer, table, *arguments)

    with warnings.catch_warnings():
        # a fork of a process with threads, which wait here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(RecordingWriter, "write", killed)
            run_plan(folder, PLAN, measurers=[FakeMeasurer()])
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    kept = {path: path.read_bytes() for path in folder.rglob("steps/*.parquet")}
    assert len(kept) == 3
    assert run_plan(folder, PLAN, measurers=[second := FakeMeasurer()]) == []
    assert len(second.visited) == len(SETTINGS) * VISITS - 3
    assert {path: path.read_bytes() for path in kept} == kept
    assert_whole(folder)


def test_another_device_does_not_go_on_with_a_recording(folder):
    with pytest.raises(CurvescopeError):
        run_plan(folder, PLAN, measurers=[FakeMeasurer(lost_at=2)])
    other = machine(device={"kind": "cuda", "name": "Fake 200"})
    with pytest.raises(
        CurvescopeError, match="cudnn: 91002 there, none here; name: Fake 100 there, Fake 200 here"
    ):
        run_plan(folder, PLAN, measurers=[FakeMeasurer(other)])
    first = recordings(folder)[SETTINGS[0].label]
    assert len(first.frame("steps")) == 2
    assert json.loads((first.path / "recording.json").read_text())["device"] == CARD


def test_the_largest_batch_is_searched_where_it_is_measured(tmp_path):
    plan = SweepPlan(SETTINGS[:1], (), True, TWO_ROUNDS)
    PLAN_FILE.write(tmp_path / "sweep", plan)
    run_plan(tmp_path / "sweep", plan, measurers=[FakeMeasurer()])
    assert recordings(tmp_path / "sweep")[SETTINGS[0].label].meta["largest_batch"] == 4
