"""When the rounds of a sweep end and where the last ones go, by curves and diagnoses that are
given.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from curvescope.analysis.decompose.curve import Curve, Point
from curvescope.analysis.decompose.findings import Finding, FindingVerdict, decidable
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.base.errors import CurvescopeError
from curvescope.experiments import plan
from curvescope.experiments.focusing import Focused, choose_rule
from curvescope.profiling.measure.protocol import get_protocol
from curvescope.profiling.measure.stopping import Complete
from curvescope.profiling.measure.visits import Look

from ..tables import ask_each

BATCHES = (2, 4, 8, 16)
JUMP, BEND = excess(4, 8), bend(4, 8, 16)


def curve_with(value_ms, half_ms, p=0.5, functional=BEND):
    """A curve of 10, 20, 40 and 80 ms with one finding; 5 % of the step are 4 ms at 16."""
    points = tuple(
        Point(batch, Estimate(5.0 * batch, 1.0, 99.0, 0.0), 0.1, 9, 9) for batch in BATCHES
    )
    curve = Curve(points=points, replicates_ms=np.empty((0, 4)), rounds=9, statistic="median")
    value = Estimate(value_ms, value_ms - half_ms, value_ms + half_ms, p)
    return curve, (Finding(functional, value, functional, value, p, FindingVerdict.NOISE),)


DECIDED = curve_with(0.0, 1.0)


def diagnosis(*functionals, half_ms=1.5):
    """A diagnosis with these anomalies; the open terms are 1 ms with such an interval."""
    shares = (
        [SimpleNamespace(value=Estimate(1.0, 1.0 - half_ms, 1.0 + half_ms, 0.5))] if half_ms else []
    )
    return SimpleNamespace(
        explanations=tuple(SimpleNamespace(functional=f) for f in functionals), shares=shares
    )


@pytest.fixture(autouse=True)
def open_terms(monkeypatch):
    monkeypatch.setattr(plan, "open_terms", lambda found: found.shares)


def rule_of(curve=DECIDED, found=lambda: diagnosis(), limit_s=100.0, **options):
    return Focused(Complete((6, 40), limit_s), lambda _: curve, found, **options)


def visited(rule, round_, elapsed_s, step_ms=50.0):
    """The batch sizes of a round whose visits take a second each; None for the end of the sweep."""
    rows = [{"batch": batch, "profiled": False, "duration_ns": step_ms * 1e6} for batch in BATCHES]
    visit_s = dict.fromkeys(BATCHES, 1.0)
    look = Look(
        round_=round_, elapsed_s=elapsed_s, conditions=BATCHES, visit_s=visit_s, rows=lambda: rows
    )
    chosen = rule.next_round(look)
    return None if chosen is None else set(chosen)


@ask_each(
    ("curve", "elapsed_s", "why"),
    [
        (curve_with(30.0, 9.0, p=0.001), 24.0, "an anomaly at the level of a look"),
        (curve_with(1.0, 2.5), 24.0, "no effect of 5 %, by its interval"),
        (curve_with(-50.0, 60.0, functional=excess(8, 16)), 24.0, None),  # it reaches 10 ms
        (
            curve_with(-50.0, 52.0, functional=excess(8, 16)),
            24.0,
            "a negative excess is no anomaly",
        ),
        (curve_with(30.0, 9.0, p=0.02), 24.0, None),  # an anomaly at the end
        (curve_with(1.0, 40.0), 24.0, None),  # 1 ± 20 ms in four times as many rounds
        (curve_with(1.0, 40.0), 76.0, "1 ± 28 ms in twice as many"),
    ],
)
def test_rounds_go_on_while_a_verdict_is_open_that_they_may_decide(curve, elapsed_s, why):
    """Of 100 s; a round takes four."""
    assert visited(rule_of(curve), 6, elapsed_s) == (None if why else set(BATCHES)), why


@ask_each(("more", "may"), [(1.0, False), (2.0, False), (3.0, True)])
def test_a_value_that_may_lie_half_an_intervals_half_farther_is_decidable(more, may):
    """0.1 ± 1: at 0.6, half the width of an interval of three times as many rounds is 0.58."""
    assert decidable(Estimate(0.1, -0.9, 1.1, 0.8), more) is may


def test_the_least_rounds_are_made_whatever_is_decided():
    assert visited(rule_of(), 5, 20.0) == set(BATCHES)
    assert visited(rule_of(), 6, 20.0) is None


def test_a_decided_curve_gives_rounds_to_the_first_anomaly_while_its_terms_are_open():
    assert visited(rule_of(found=lambda: diagnosis(JUMP, BEND)), 6, 88.0) == {4, 8}
    assert (
        visited(rule_of(found=lambda: diagnosis(JUMP, half_ms=9.0)), 6, 88.0) is None
    )  # nor will they be decided
    assert (
        visited(rule_of(found=lambda: diagnosis(JUMP, half_ms=0.0)), 6, 88.0) is None
    )  # none is open


def test_looks_come_with_half_as_many_rounds_more():
    looks = []
    rule = rule_of(found=lambda: looks.append(round_) or diagnosis(JUMP))
    for round_ in range(6, 30):
        visited(rule, round_, 10.0)
    assert looks == [6, 9, 13, 19, 29]
    assert rule.deciding == JUMP.label


@pytest.mark.parametrize(("step_ms", "rounds"), [(19.0, False), (21.0, True)])
def test_fast_steps_have_less_time(step_ms, rounds):
    rule = rule_of(curve_with(3.0, 6.0), fast_s=30.0)
    assert (visited(rule, 6, 28.0, step_ms) is not None) is rounds


def test_a_recording_that_cannot_be_diagnosed_yet_gets_complete_rounds():
    def fails():
        raise CurvescopeError("no timed step")

    assert visited(rule_of(found=fails), 10, 60.0) == set(BATCHES)


@pytest.mark.parametrize(
    ("name", "is_focused"),
    [("default", True), ("quick", True), ("addfor", False), ("dlperf", False)],
)
def test_rounds_of_a_published_protocol_stay_complete(tmp_path, name, is_focused):
    assert isinstance(choose_rule(get_protocol(name), tmp_path), Focused) is is_focused
