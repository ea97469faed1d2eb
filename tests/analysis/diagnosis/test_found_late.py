"""A sweep of an H100 that found sizes after its third round."""

from pathlib import Path

import pytest

from curvescope.analysis.decompose.functionals import bend, excess, outlier
from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render.answer_words import finding
from curvescope.profiling.recording.store import open_recording

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
    assert first.causes[0].cause == "algorithm switch"
    assert case.sides == (16, 17)
    assert "pointwise_mult_and_sum_complex" in case.share.kernel_before
    assert "cf32cf32" in case.share.kernel_after
    claim = case.claims["algorithm switch"]
    assert claim.detail.startswith("from pointwise_mult_and_sum_complex")
    assert "(2,112 times)" in claim.detail


def test_a_switch_at_the_larger_sizes_is_found_there(diagnosis):
    """From 32 to 64 the FFT gives way to an implicit GEMM, at 64 and at 128 alike."""
    (second,) = [one for one in diagnosis.explanations if one.functional == bend(32, 64, 128)]
    case = second.cases[0]
    assert case.sides == (32, 64)
    assert case.claims["algorithm switch"].amount < 0


def test_the_given_sizes_keep_their_five_rounds(diagnosis):
    rounds = {point.condition: point.rounds for point in diagnosis.curve.points}
    assert rounds == {**dict.fromkeys((1, 2, 4, 8, 16, 32, 64, 128, 256), 5), 3: 3, 17: 3}


def test_a_jump_to_a_slow_size_is_told_and_another_one_left_open(diagnosis):
    """22 ms at 16 and 50 at 17, in two rounds of both and three or more of each."""
    assert diagnosis.curve.behind(excess(16, 17)).rounds == 2
    (said,) = [note for note in diagnosis.notes if note.startswith("Probed")]
    assert "the cost jumps from 16 to 17" in said
    assert "too few to test a jump between 2 and 3;" in said


def test_what_the_profiled_steps_do_not_show_is_given_no_place(diagnosis):
    """At 4 the host is the limit, and the profiler slowed it: 9.2 ms, 10 to 14 when profiled."""
    (fourth,) = [one for one in diagnosis.explanations if one.functional == bend(3, 4, 8)]
    said = finding(fourth)
    assert "is mostly not in the profiled steps" in said
    assert "profiling overhead" not in said
