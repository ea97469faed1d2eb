"""The pytest fixture, in pytest runs of its own; the steps are timed by a clock that the test
turns.
"""

import json

import pytest

# A process loads numpy once, and each run inside it forgets what it loaded itself.
import curvescope.analysis.diagnosis.explain
import curvescope.profiling.measure.sweep
from curvescope import pytest_plugin

from ..analysis.diagnosis.test_certain import planted

pytest_plugins = "pytester"

# A step costs 1 ms per sample and 5 ms, plus `EXTRA(batch)`; every step is a little different, as
# on a machine.
STEPS = """
import random
import curvescope.profiling.measure.sweep as sweep
from curvescope.profiling.measure.protocol import Protocol

PROTOCOL = Protocol("test", (4, 4), 1, (2, 2), 0.0, 0, None)
noise = random.Random(7)
now_ns = 0
calls = []


def make_step(batch):
    def step():
        global now_ns
        calls.append(batch)
        now_ns += round((5 + batch + EXTRA(batch)) * 1e6 * (1 + NOISE * noise.random()))

    return step


def test_step(no_new_anomaly, monkeypatch):
    measure = sweep.sweep_callable
    monkeypatch.setattr(sweep, "sweep_callable", lambda *a: measure(*a, clock_ns=lambda: now_ns))
    no_new_anomaly(make_step, (4, 8, 16), PROTOCOL)
"""
STRAIGHT, JUMP = "EXTRA = lambda batch: 0\n", "EXTRA = lambda batch: 20 if batch >= 8 else 0\n"


@pytest.fixture
def run(pytester):
    def run_pytest(extra, *options, noise=0.005):
        pytester.makepyfile(test_it=f"NOISE = {noise}\n{extra}{STEPS}")
        return pytester.runpytest(*options)

    return run_pytest


def test_a_straight_curve_passes(run):
    run(STRAIGHT).assert_outcomes(passed=1)


@pytest.mark.slow
def test_an_accepted_anomaly_passes_and_another_one_fails(run, pytester):
    run(JUMP, "--curvescope-accept").assert_outcomes(passed=1)
    accepted = json.loads(
        (pytester.path / "curvescope_accepted" / "test_it.test_step.json").read_text()
    )
    assert any(
        "excess" in label and abs(entry["ms"] - (20 + 13 - 2 * 9)) < 6
        for label, entry in accepted.items()
    )
    run(JUMP).assert_outcomes(passed=1)
    failed = run("EXTRA = lambda batch: 40 if batch >= 16 else 0\n")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        ["*new anomal* in test_step:", "*excess*8*16*", "*curvescope explain *curvescope-2"]
    )


def test_what_only_one_measurement_sees_is_no_anomaly(run, pytester):
    """The jump is there in the first measurement, of a trial and 12 visits with 3 steps, and gone
    in the second.
    """
    run(
        "EXTRA = lambda batch: 20 if batch >= 8 and len(calls) <= 1 + 12 * 3 else 0\n"
    ).assert_outcomes(passed=1)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(("kind", "measured"), [("copies", 1), ("slow products", 2)])
def test_counted_work_fails_at_the_first_measurement_and_names_its_layer(
    kind, measured, monkeypatch, tmp_path
):
    sweeps = []
    monkeypatch.setattr(
        curvescope.profiling.measure.sweep, "sweep_callable", lambda *call: sweeps.append(call)
    )
    monkeypatch.setattr(pytest_plugin, "_explain", lambda path: planted(kind, seed=0))
    check = pytest_plugin.NoNewAnomaly("lm", tmp_path / "none.json", tmp_path, False, {}, {})
    with pytest.raises(
        pytest.fail.Exception, match=r"1 new anomaly in lm:\n  mixer.* at 24: "
    ) as fails:
        check(None)
    assert len(sweeps) == measured
    assert f"curvescope-{measured}" in str(fails.value)


@pytest.mark.slow
def test_what_noise_may_hide_is_skipped_by_that_word_and_neither_passes_nor_fails(run):
    """With a planted jump of 20 ms, which the noise hid, a test passed without a word."""
    skipped = run(JUMP, "-rs", noise=5.0)
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*SKIPPED*could not tell. The noise*of the step*"])
    run(JUMP, "--curvescope-accept", noise=5.0).assert_outcomes(passed=1)


def test_an_exception_of_the_step_is_the_tests_own(run):
    result = run("def EXTRA(batch): raise ZeroDivisionError('mine')\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError: mine*"])


@pytest.mark.slow
def test_a_mark_gives_the_sizes_and_the_protocol(pytester):
    by_mark = STEPS.replace(
        "def test_step",
        "@pytest.mark.curvescope(batches=(4, 8, 16), protocol=PROTOCOL)\ndef test_step",
    )
    by_mark = by_mark.replace(
        "no_new_anomaly(make_step, (4, 8, 16), PROTOCOL)", "no_new_anomaly(make_step)"
    )
    body = (
        f"import pytest\nNOISE = 0.005\n{STRAIGHT}{by_mark}    assert set(calls) == {{4, 8, 16}}\n"
    )
    pytester.makepyfile(test_it=body)
    pytester.runpytest("--strict-markers").assert_outcomes(passed=1)


def test_a_mark_with_another_setting_says_what_it_takes(pytester):
    pytester.makepyfile(
        test_it="import pytest\n"
        "@pytest.mark.curvescope(batch=4)\n"
        "def test_step(no_new_anomaly):\n    pass\n"
    )
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*takes batches= and protocol=*"])


TABLE = "[tool.curvescope]\nbatch = [4, 8, 16]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "call", "sizes", "source"),
    [
        ("", "", {4, 8, 16}, " (with the batches of pyproject.toml):"),
        ("@pytest.mark.curvescope(batches=(2, 4, 8))", "", {2, 4, 8}, ":"),
        ("", ", (1, 2, 8)", {1, 2, 8}, ":"),
    ],
)
def test_a_project_has_the_sizes_that_neither_call_nor_mark_gives(
    mark, call, sizes, source, pytester
):
    step = STEPS.replace("def test_step", f"{mark}\ndef test_step").replace(
        "(make_step, (4, 8, 16), PROTOCOL)", f"(make_step{call}, protocol=PROTOCOL)"
    )
    head = "import pytest\nNOISE = 0.005\n"
    pytester.makepyprojecttoml(TABLE)
    straight = f"{head}{STRAIGHT}{step}    assert set(calls) == {sizes}\n"
    pytester.makepyfile(test_it=straight)
    pytester.runpytest().assert_outcomes(passed=1)
    pytester.makepyfile(test_it=f"{head}EXTRA = lambda batch: 60 * (batch >= 8)\n{step}")
    failed = pytester.runpytest()
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines([f"*new anomal* in test_step{source}"])


def test_an_unknown_key_of_a_project_ends_pytest_and_the_known_ones_are_named(pytester):
    pytester.makepyfile(test_it="def test_step(no_new_anomaly):\n    pass\n")
    pytester.makepyprojecttoml("[tool.curvescope]\nbatches = [1, 2]\n")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no key batches. Its keys are step, batch,*"])
