"""Programs that only sleep, so that what a step costs is known on any machine.

A sleep lasts at least as long as it says.
"""

import subprocess
import sys

import pytest

from curvescope import explain, open_recording
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites.command import Command, request_steps
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.recording.axis import BATCH, Axis
from curvescope.profiling.workload.program import Program

from ...tables import ask_each

LOOP = """
import sys, time
how, batch = sys.argv[1], int(sys.argv[2])
for n in range(100000):
    time.sleep({
        "alternate": 0.010 + (0.004 * batch if n % 2 else 0),
        "sixteenth": 0.010 + (0.05 * batch if n % 16 == 0 else 0),
        "even": 0.020,
        "burst": 0.010 if n % 2 else 0.040,
    }[how])
    print(f"step {n} done", flush=True)
"""
MS = 1e6


@pytest.fixture
def loop(tmp_path):
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    return script


def curvescope(*words, cwd):
    command = [sys.executable, "-m", "curvescope", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "often", "cost_ms"),
    [
        ("alternate", "1 step in 2", {8: 26.0, 32: 74.0}),
        pytest.param(
            "sixteenth", "1 step in 16", {8: 35.0, 32: 110.0}, marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_step_costs_what_its_slow_steps_cost(how, often, cost_ms, loop, tmp_path):
    options = ["--batch", "8,32", "--quick", "--experiments", "0", "--step-line", "step"]
    command = ["--", sys.executable, loop, how, "{batch}"]
    ran = curvescope("diagnose", *options, "-o", tmp_path / "r", *command, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert often in " ".join(ran.stdout.split("\n")[:8])
    curve = explain(open_recording(tmp_path / "r")).curve
    for batch, least_ms in cost_ms.items():
        point = curve.at(batch)
        assert point.has_slow_steps
        # A sleep never ends early, and a loaded machine ends it late. The pace has no slow step.
        assert least_ms < point.time_ms.value
        assert curve.paces.at(batch).time_ms.value < least_ms


@pytest.mark.slow
def test_a_version_that_is_slower_in_bursts_fails(loop, tmp_path):
    versions = [f"{how}={sys.executable} {loop} {how} 1" for how in ("even", "burst")]
    measure = ["--measure", versions[0], versions[1], "--step-line", "step"]
    options = ["--time-limit", "40", "--fail-over", "5%", "-o", tmp_path / "r"]
    ran = curvescope("compare", *measure, *options, cwd=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "Failed: burst at batch 1" in ran.stdout
    assert "Its pace, the faster half of the steps" in " ".join(ran.stdout.split())


def steps_of(period, count, slow_ms=100.0, usual_ms=10.0):
    times_ms = [slow_ms if at % period == period - 1 else usual_ms for at in range(count)]
    return [round(time_ms * MS) for time_ms in times_ms]


@ask_each(
    ("durations_ns", "longer"),
    [
        (steps_of(1000, 100), 1),  # none is slow
        (steps_of(2, 100), 1),  # fifty periods
        (steps_of(64, 100), 2),  # one period, and a half
    ],
)
def test_a_run_grows_until_it_shows_the_period_of_slow_steps(durations_ns, longer):
    steps = Command(Program(("python", "train.py", "{batch}")), Axis(BATCH))
    assert steps._longer_after(durations_ns) == longer


def test_a_longer_run_is_asked_for_more_steps_and_more_seconds():
    usual, longer = (
        request_steps(VisitPlan(PROTOCOLS["default"]), 8, 1, longer=factor) for factor in (1, 4)
    )
    assert longer["steps"] == [usual["steps"][0], 4 * usual["steps"][1]]
    assert longer["visit_s"] == 4 * usual["visit_s"]
