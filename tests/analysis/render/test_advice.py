"""Lines beside the anomalies: advice on the batch size, what the spread may hide, what more
experiments would take.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from curvescope.analysis.decompose.overtaken import find_overtaken
from curvescope.analysis.decompose.slow_sizes import Unseen
from curvescope.analysis.decompose.statistics import MATERIAL, Estimate
from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.diagnosis.remedies import throughput_of
from curvescope.analysis.render.answers import how_to_test
from curvescope.analysis.render.facts import clock_line
from curvescope.analysis.render.found import find_all
from curvescope.analysis.render.remedies import batch_sentence, padding_sentence, size_advice
from curvescope.analysis.render.text import spread_note
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.disturbed import _WAITED, Disturbance, Disturbances
from curvescope.profiling.recording.probes import times_of_probes
from curvescope.profiling.recording.store import STEP, open_recording

from ...tables import ask_each
from ..diagnosis.test_found_late import FOUND_LATE


def curve_of(times_ms):
    points = tuple(
        SimpleNamespace(condition=batch, time_ms=Estimate(ms, ms, ms, 0.0), spread=0.0)
        for batch, ms in times_ms.items()
    )
    return SimpleNamespace(
        unit=STEP,
        least=MATERIAL,
        unseen=Unseen(),
        points=points,
        conditions=tuple(times_ms),
        at=lambda batch: next(one for one in points if one.condition == batch),
    )


@ask_each(
    ("times_ms", "said"),
    [
        (
            {1: 10.0, 2: 10.0, 4: 10.0},
            "Batch size: samples per second still grow at 4, the largest (400).",
        ),
        (
            {1: 10.0, 8: 20.0, 16: 39.0, 32: 79.0},
            "Batch size: beyond 8 samples per second hardly grow: 400 there, 410 at 16.",
        ),
        ({1: 10.0, 8: 20.0, 16: 80.0}, "Batch size: 8 has the most samples per second (400)."),
    ],
)
def test_the_smallest_batch_size_with_nearly_the_best_throughput_is_named(times_ms, said):
    assert batch_sentence(curve_of(times_ms), Axis(), {}) == said
    full = {"unmeasured": [{"batch": 64, "why": "out of memory", "detail": ""}]}
    largest = f" {max(times_ms)} is the largest that fits the memory."
    assert batch_sentence(curve_of(times_ms), Axis(), full) == said + largest
    assert batch_sentence(curve_of(times_ms), Axis("tokens"), {}) is None


def test_one_batch_size_or_times_that_are_hardly_known_give_no_advice():
    assert throughput_of(curve_of({8: 10.0})) is None
    wide = curve_of({8: 10.0, 16: 19.0})
    wide.points[0].time_ms = Estimate(10.0, 5.0, 20.0, 0.0)
    assert throughput_of(wide) is None


def test_a_size_that_a_larger_one_overtakes_is_padded_to_it():
    """An H100 takes 49.5 ms at 17, where cuDNN convolves directly, and 31.2 at 32, by FFT."""
    curve = curve_of({16: 22.2, 17: 49.5, 18: 49.0, 32: 31.2, 64: 61.3})
    assert padding_sentence(curve, Axis(), {}) == (
        "Batch 17 takes longer than 32 (49.50 ms and 31.20), and 1 other size likewise: where you "
        "can, run 32 instead, or pad to it."
    )
    near = curve_of({16: 22.2, 17: 31.3, 32: 31.2})
    assert padding_sentence(near, Axis(), {}) is None
    wide = curve_of({16: 22.2, 17: 49.5, 32: 31.2})
    wide.points[1].time_ms = Estimate(49.5, 30.0, 80.0, 0.0)
    assert find_overtaken(wide) == []


@pytest.mark.slow
def test_a_probed_size_is_padded_to_where_each_of_its_steps_is_faster():
    """The H100 took 29.0 ms at 24 in three of three steps, a size that nobody had asked for."""
    recording = open_recording(FOUND_LATE)
    curve = explain(recording).curve
    said = padding_sentence(curve, Axis(), times_of_probes(recording.meta))
    assert "17 takes longer than 24 (50.20 ms and 29.0" in said
    assert "run 24 instead, or pad to it" in said
    once = {24: times_of_probes(recording.meta)[24][:1]}
    assert [one.size for one in find_overtaken(curve, once)] == [32]
    slow = {24: [29.0, 51.0, 29.0]}
    assert [one.size for one in find_overtaken(curve, slow)] == [32]


@pytest.mark.slow
def test_a_probe_beside_other_work_overtakes_nothing():
    """Beside a compiler a step took 646 ms at 4 and 152 at a probed 5; alone it never does."""
    diagnosis = explain(open_recording(FOUND_LATE))
    assert "17 takes longer than 24" in size_advice(diagnosis)
    beside = Disturbances(
        9, 9, set_aside=False, prevail=True, reasons=(Disturbance(_WAITED, 9, (1,)),)
    )
    disturbed = replace(diagnosis, recorded=replace(diagnosis.recorded, disturbances=beside))
    assert "17 takes longer than 32" in size_advice(disturbed)
    what = " ".join(found.what for found in find_all(disturbed))
    assert "17 takes longer than 24" not in what


def test_a_probe_of_one_fast_moment_overtakes_nothing():
    """On a machine whose speed varies, a visit of 26 fell into a fast moment."""
    curve = curve_of({16: 54.5, 24: 83.5, 32: 120.9})
    curve.points[1].time_ms = Estimate(83.5, 82.6, 95.0, 0.0)
    curve.points[1].spread = 0.15
    probes = {26: [82.1, 80.8]}
    assert find_overtaken(curve, probes) == []
    curve.points[1].spread = 0.002
    assert [one.size for one in find_overtaken(curve, probes)] == [26]


def finding(verdict, low, high, kind="bend", at=8):
    tested = SimpleNamespace(kind=kind, last=at, label=f"{kind} at {at}")
    return SimpleNamespace(
        verdict=verdict, tested=tested, tested_value=Estimate((low + high) / 2, low, high, 0.5)
    )


def test_a_spread_is_a_warning_only_where_it_may_hide_an_anomaly():
    curve = curve_of({4: 50.0, 8: 100.0})
    assert spread_note(curve, [finding("noise", -3, 3)]) is None
    assert spread_note(curve, [finding("anomaly", 20, 90)]) is None
    # A negative excess is the usual fixed cost.
    assert spread_note(curve, [finding("noise", -60, 5, "excess")]) is None
    wide = [finding("noise", -40, 25), finding("not significant", 1, 30, at=4)]
    assert spread_note(curve, wide).startswith(
        "! The spread may hide bend at 4, up to 60% of the step, and 1 more;"
    )
    assert "the step's time and more" in spread_note(curve, [finding("noise", -200, 100)])


def left(**meta):
    recording = SimpleNamespace(meta={"torch_device": "cpu", "network": "n", **meta}, named="run")
    outcomes = (object(),) if "experiments" in meta else ()
    diagnosis = SimpleNamespace(outcomes=outcomes, answers=(), difference="of two profiles")
    return how_to_test(recording, diagnosis)


def test_where_no_experiment_fits_the_time_that_is_said():
    """A program whose runs take seconds had an answer of two sizes, and no word of the changes."""
    what = ["fused_optimizer", "kept_memory"]
    lead, command = left(experiments_rest={"seconds": 130.0, "what": what, "changes": 2})
    assert lead == (
        "No experiment was made: none fits the time. On the same machine, what there is to try "
        "(fused_optimizer, kept_memory) takes about 3 min and may decide what 2 changes save:"
    )
    assert command == "curvescope confirm run --experiments 3m"


def test_the_rest_of_the_experiments_has_its_time_and_what_it_is_about():
    assert left(experiments=[{}]) is None
    what = ["fc6 forward", "fc7 forward", "compiled", "conv1 forward", "conv2 forward"]
    lead, command = left(experiments=[{}], experiments_rest={"seconds": 130.0, "what": what})
    assert lead.endswith(
        "the rest (fc6 forward, fc7 forward, compiled, conv1 forward, …) takes about 3 min:"
    )
    assert command == "curvescope confirm run --experiments 3m"
    lead, _ = left(
        experiments=[{}],
        experiments_rest={
            "seconds": 60.0,
            "what": ["compiled"],
            "of": ["bend at 16"],
            "changes": 1,
        },
    )
    assert lead.endswith(
        "takes about 2 min and may decide the causes of bend at 16, and what 1 change saves:"
    )
    lead, _ = left(
        experiments=[{}],
        experiments_rest={"seconds": 60.0, "what": ["compiled"], "of": [], "changes": 2},
    )
    assert lead.endswith("and may decide what 2 changes save:")


@ask_each(
    ("meta", "said"),
    [
        (
            {"device": {"kind": "cuda"}, "locked_sm_clock_hz": 1_500_000_000},
            "SM clock locked at 1500 MHz",
        ),
        ({"device": {"kind": "cuda"}, "locked_sm_clock_hz": None}, "clocks not locked"),
        ({"device": {"kind": "cuda"}}, None),  # an import: unknown
        ({"device": {"kind": "cpu"}, "locked_sm_clock_hz": None}, None),
    ],
)
def test_a_recording_of_a_gpu_says_whether_its_clock_was_locked(meta, said):
    assert clock_line(meta) == said
