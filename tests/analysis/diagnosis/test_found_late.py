"""A sweep of an H100 that found sizes after its third round."""

from dataclasses import replace
from pathlib import Path

import pytest

from curvescope.analysis.causes import CauseTotal
from curvescope.analysis.causes.host import suggest_host_bound
from curvescope.analysis.decompose.breakdown import break_down_recording
from curvescope.analysis.decompose.functionals import bend, excess, outlier
from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.diagnosis.suggested import (
    average_profile,
    suggest_beside,
)
from curvescope.analysis.render.advice import suggestion_lines
from curvescope.analysis.render.answer_words import finding
from curvescope.analysis.render.notes import list_notes
from curvescope.experiments.factors import facts_for
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.store import open_recording

pytestmark = pytest.mark.slow  # its diagnosis takes four seconds

FOUND_LATE = Path(__file__).parents[2] / "data" / "h100" / "found-late"


@pytest.fixture(scope="module")
def diagnosis():
    return explain(open_recording(FOUND_LATE))


def test_the_anomaly_beside_the_found_size_is_split_into_its_layers(diagnosis):
    """At 17 an FFT's products are 2,112 kernels, at 16 and 32 they are one."""
    first = diagnosis.explanations[0]
    assert first.functional == outlier(16, 17, 32)
    case = first.cases[0]
    assert case.share.label == "conv3_2 (Conv2d) forward"
    assert case.share.value.value > 0.9 * first.value.value
    assert case.sides == (16, 17)
    assert "pointwise_mult_and_sum_complex" in case.share.kernel_before
    assert "cf32cf32" in case.share.kernel_after
    claim = first.terms[0].claims["algorithm switch"]
    assert claim.detail.startswith("from pointwise_mult_and_sum_complex")
    assert "(2,112 times)" in claim.detail


def test_small_kernels_that_begin_as_the_host_launches_them_wait_for_it(diagnosis):
    """At 17 eight streams are never all idle, and one of 2,112 products begins each 15 µs."""
    first = diagnosis.explanations[0]
    assert first.functional == outlier(16, 17, 32)
    assert first.causes[0].cause == "launch- or host-bound"
    case = first.cases[0]
    (paced,) = case.facts[17].paced.values()
    assert 1800 < paced.calls < 2112
    assert 2.0 < paced.late_us < 2.3
    assert paced.blocks == 8
    assert paced.full_ms == pytest.approx(34.1 / 8, rel=0.15)
    assert 24 < paced.waits_ms < 26
    assert not case.facts[32].paced
    assert not case.facts[16].paced
    claim = first.terms[0].claims["launch- or host-bound"]
    assert claim.amount == pytest.approx(case.coefficient(17) * paced.waits_ms)


def test_what_one_profile_suggests_for_such_kernels_is_a_graph():
    recording = open_recording(FOUND_LATE)
    step = average_profile(recording, break_down_recording(recording, batch=17))
    found = suggest_host_bound(step)
    assert 24 < found.at_most_ms < 30
    assert found.factors[0] == "cuda_graph"
    neighbour = average_profile(recording, break_down_recording(recording, batch=32))
    assert neighbour.paced is None


def test_the_profiled_steps_suggest_what_no_bend_shows(diagnosis):
    """Products in fp32 take as long per sample at all sizes, so no anomaly is theirs."""
    recording = open_recording(FOUND_LATE)
    facts = facts_for(recording)
    first, *others = suggestion_lines(suggest_beside(recording, diagnosis, facts), Axis())
    assert first == (
        "Suggested by the profiled steps at batch 256, not tested: Run the products of the step in "
        "TF32: saves at most 155.4 ms (69%)."
    )
    assert others
    claiming = replace(diagnosis.explanations[0], causes=(CauseTotal("precision", 1.0, ()),))
    beside = suggest_beside(recording, replace(diagnosis, explanations=(claiming,)), facts)
    assert "TF32" not in " ".join(suggestion_lines(beside, Axis()))


def test_a_switch_at_the_larger_sizes_is_found_there(diagnosis):
    """From 32 to 64 the FFT gives way to an implicit GEMM, at 64 and at 128 alike."""
    (second,) = [one for one in diagnosis.explanations if one.functional == bend(32, 64, 128)]
    case = second.cases[0]
    assert case.sides == (32, 64)
    assert second.terms[0].claims["algorithm switch"].amount < 0


def test_the_given_sizes_keep_their_five_rounds(diagnosis):
    rounds = {point.condition: point.rounds for point in diagnosis.curve.points}
    assert rounds == {**dict.fromkeys((1, 2, 4, 8, 16, 32, 64, 128, 256), 5), 3: 3, 17: 3}


def test_a_jump_to_a_slow_size_is_told_and_another_one_left_open(diagnosis):
    """22 ms at 16 and 50 at 17, in two rounds of both and three or more of each."""
    assert diagnosis.curve.behind(excess(16, 17)).rounds == 2
    (said,) = [note for note in list_notes(diagnosis) if note.startswith("Probed")]
    assert "the cost jumps from 16 to 17" in said
    assert "too few to test a jump between 2 and 3;" in said


def test_what_the_profiled_steps_do_not_show_is_given_no_place(diagnosis):
    """At 4 the host is the limit, and the profiler slowed it: 9.2 ms, 10 to 14 when profiled."""
    (fourth,) = [one for one in diagnosis.explanations if one.functional == bend(3, 4, 8)]
    said = finding(fourth)
    assert "is mostly not in the profiled steps" in said
    assert "profiling overhead" not in said
