"""Which functionals of a curve are anomalies."""

import numpy as np
import pytest

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find

from ...tables import ask_each
from ..synthetic import timed_steps
from .early_ends import LOOKS, simulate


@pytest.mark.slow
@ask_each("fixed_ms", [0.0, 60.0])
def test_at_most_5_percent_of_100_linear_sweeps_report_an_anomaly(fixed_ms):
    random = np.random.default_rng(7)
    alarms = 0
    for _ in range(100):
        curve = cost_curve(timed_steps(lambda batch: fixed_ms + 15.0 * batch, random))
        alarms += any(finding.verdict == FindingVerdict.ANOMALY for finding in find(curve))
    assert alarms <= 5


def test_a_fixed_cost_is_real_and_no_anomaly():
    curve = cost_curve(timed_steps(lambda batch: 100.0 + 10.0 * batch, np.random.default_rng(1)))
    pairs = [finding for finding in find(curve) if finding.shown.kind == "excess"]
    assert [finding.verdict for finding in pairs] == [FindingVerdict.FIXED_COST] * 5
    assert pairs[0].value.value == pytest.approx(-100, rel=0.15)


@ask_each(("extra", "verdict"), [(0.019, FindingVerdict.SMALL), (0.021, FindingVerdict.ANOMALY)])
def test_an_excess_under_2_percent_of_the_step_is_no_anomaly_however_sure(extra, verdict):
    times_ms = {1: 100.0, 2: 200.0 / (1 - extra)}  # the excess is `extra` of the larger step
    steps = timed_steps(
        times_ms.get, np.random.default_rng(0), batches=(1, 2), noise=0, drift=0, spikes=0
    )
    (finding,) = find(cost_curve(steps))
    assert finding.p_adjusted < 1e-6
    assert finding.verdict == verdict


def test_the_sign_of_a_curvature_is_named():
    # time per sample 10, 10, 7, 7: down at 2, up at 4
    curve = cost_curve(
        timed_steps(
            {1: 10.0, 2: 20.0, 4: 28.0, 8: 56.0}.get, np.random.default_rng(5), batches=(1, 2, 4, 8)
        )
    )
    shapes = {
        finding.shown.at: finding.shape
        for finding in find(curve)
        if finding.shown.kind == "curvature"
    }
    assert shapes == {2: "concave-down", 4: "concave-up"}


def test_two_batch_sizes_have_an_excess_and_no_curvature():
    curve = cost_curve(timed_steps(lambda b: 3.0 * b, np.random.default_rng(0), batches=(2, 4)))
    assert [finding.shown.label for finding in find(curve)] == ["excess 2→4"]


RUNS = 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "effect", "least_saved"),
    [
        ("even", 0.2, 0.4),
        ("even", 0.0, 0.4),
        ("two states", 0.1, 0.3),
        ("skewed", 0.0, 0.3),
    ],
)
def test_rounds_that_end_early_give_the_verdict_of_all(noise, effect, least_saved):
    """An effect of 5 % or more of the step, from batch 16 on, in up to 30 rounds.

    Tests at 5 % may find one where there is none: of 15 sweeps 4 or more in 1 of 100 cases.
    """
    counts = simulate(noise, effect, RUNS)
    if effect:
        assert counts.early == counts.complete == RUNS
    else:
        assert max(counts.early, counts.complete) <= 3
    assert counts.rounds <= (1 - least_saved) * LOOKS[-1]
