"""A worker that is killed in a visit of a sweep, whatever its workers are."""

from collections import Counter

import pytest

from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sweep_plan import PLAN_FILE, SweepPlan, run_plan, sweep_recordings
from curvescope.profiling.recording.store import Status, open_recording

# The first step that finds a file with the process ids of the workers kills the one that it runs
# under.
MODELS = """
import os, signal
from pathlib import Path
from torch import nn

HERE = Path(__file__).parent

def kill_the_worker():
    try:
        (HERE / "workers").rename(HERE / "killed")
    except FileNotFoundError:
        return
    workers = set(map(int, (HERE / "killed").read_text().split()))
    process = os.getpid()
    while process not in workers:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)

class Linear(nn.Linear):
    def forward(self, x):
        kill_the_worker()
        return super().forward(x)

def linear():
    return Linear(8, 4)

def wide():
    return Linear(8, 64)
"""
TWO_ROUNDS = Protocol("two", (2, 2), 1, (2, 2), 0.0, 1, None)


@pytest.fixture
def spread_models(tmp_path, monkeypatch):
    """The folder of MODELS, in which other processes find them."""
    (tmp_path / "spread_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def check_killed_worker(folder, workers, processes, moves):
    """Measure MODELS of `spread_models.py` in the folder; one of the processes ends, and costs no
    visit.

    So many recordings go on at another worker, and say so.
    """
    settings = tuple(Configuration(f"spread_models:{name}", (8,)) for name in ("linear", "wide"))
    plan = SweepPlan(settings, (1, 2), False, TWO_ROUNDS)
    PLAN_FILE.write(folder / "sweep", plan)
    reports = []

    def report(label, standing):
        reports.append(label)
        if len(reports) == 3:
            (folder / "written").write_text(" ".join(map(str, processes())))
            (folder / "written").rename(folder / "workers")

    measurers = workers.measurers("cpu", 2)
    assert run_plan(folder / "sweep", plan, report, measurers=measurers) == []
    went_on = []
    for path in sweep_recordings(folder / "sweep"):
        recording = open_recording(path)
        assert recording.meta["status"] == Status.COMPLETE
        timed = recording.frame("steps")
        timed = timed[~timed["profiled"]]
        visits = Counter(timed[["batch", "round"]].itertuples(index=False, name=None))
        assert visits == {(batch, round_): 2 for batch in (1, 2) for round_ in (0, 1)}
        assert timed["step"].is_unique
        went_on += recording.meta.get("went_on_at", [])
    assert len(went_on) == moves
