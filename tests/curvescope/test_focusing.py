"""Where further rounds go, by diagnoses that are given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from curvescope.analysis.decompose.curve import Curve, Point
from curvescope.analysis.decompose.findings import Finding, FindingVerdict
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.diagnosis.result import Diagnosis
from curvescope.base.errors import CurvescopeError
from curvescope.experiments import plan
from curvescope.experiments.focusing import Focused, focused
from curvescope.profiling.measure.protocol import get_protocol
from curvescope.profiling.measure.stopping import Complete, Look


def diagnosis(*anomalies, opened=True):
    """A diagnosis with anomalies of these functionals and values; `opened` says whether terms of them are open."""
    explained = [SimpleNamespace(functional=f, value=Estimate(v, v - 1, v + 1, 0.0)) for f, v in anomalies]
    return SimpleNamespace(explanations=tuple(explained), opened=opened)


BATCHES = (2, 4, 8, 16)


def rule_of(diagnose, limit_s=100.0, **options):
    return Focused(Complete((0, None), limit_s), diagnose, **options)


def visited(rule, round_, elapsed_s):
    """The batch sizes of a round whose visits take no time; None for the end of the sweep."""
    look = Look(round_=round_, elapsed_s=elapsed_s, conditions=BATCHES, visit_s={}, rows=lambda: ())
    chosen = rule.next_round(look)
    return None if chosen is None else set(chosen)


@pytest.fixture(autouse=True)
def open_terms(monkeypatch):
    monkeypatch.setattr(plan, "open_terms", lambda found: found.explanations if getattr(found, "opened", True) else ())


JUMP, BEND = (excess(4, 8), 3.0), (bend(4, 8, 16), -20.0)


def undecided(value_ms):
    """A curve of 10, 20, 40 and 80 ms without an anomaly; its largest deviation is a value ± 1 ms, which may be 0."""
    points = tuple(Point(batch, Estimate(5.0 * batch, 1.0, 99.0, 0.0), 0.1, 9, 9) for batch in (2, 4, 8, 16))
    curve = Curve(points=points, replicates_ms=np.empty((0, 4)), rounds=9, statistic="median")
    of_bend = Finding(BEND[0], Estimate(0, -1, 1, 0.9), BEND[0], Estimate(0.1, -1, 1, 0.9), 1.0, FindingVerdict.NOISE)
    value = Estimate(value_ms, value_ms - 1.0, value_ms + 1.0, 0.2)
    of_jump = Finding(JUMP[0], value, JUMP[0], value, 0.4, FindingVerdict.NOISE)
    return Diagnosis(curve, (of_bend, of_jump), (), None, None)


@pytest.mark.parametrize(
    ("found", "batches"),
    [
        (undecided(1.1), {4, 8}),
        (undecided(-1.1), {4, 8}),  # it may be a fixed cost
        (undecided(0.9), None),  # under 5 % of the step at both ends
        (replace(undecided(-1.1), fixed_cost=SimpleNamespace()), None),  # a part of it
        (replace(undecided(1.1), fixed_cost=SimpleNamespace()), {4, 8}),
    ],
)
def test_further_rounds_go_where_there_may_be_an_anomaly_if_none_was_found(found, batches):
    rule = rule_of(lambda: found, further_s=30.0)
    assert (visited(rule, 8, 100.1) is None) == (batches is None)
    if batches:
        assert visited(rule, 9, 100.2) == visited(rule, 15, 130.0) == batches
        assert rule.deciding == JUMP[0].label
        assert visited(rule, 16, 130.2) is None
        assert rule.further_taken_s == pytest.approx(30.1)
    assert visited(rule_of(lambda: found, further_s=30.0, fixed=True), 8, 100.1) is None


def test_rounds_visit_all_batch_sizes_for_half_of_the_time_and_then_the_first_anomalys():
    rule = rule_of(lambda: diagnosis(BEND, JUMP))
    assert visited(rule, 6, 20.0) == visited(rule, 12, 49.9) == set(BATCHES)
    assert visited(rule, 13, 50.0) == {4, 8, 16}


def test_the_diagnosis_is_looked_at_again_when_there_are_half_as_many_rounds_more():
    looks = []
    rule = rule_of(lambda: looks.append(round_) or diagnosis(JUMP, opened=round_ < 20))
    chosen = []
    for round_ in range(6, 40):
        chosen.append(visited(rule, round_, 60.0))
    assert looks == [6, 9, 13, 19, 29]
    assert chosen == [{4, 8}] * (29 - 6) + [set(BATCHES)] * (40 - 29)


@pytest.mark.parametrize("found", [diagnosis(JUMP, opened=False), diagnosis(opened=False)])
def test_rounds_are_complete_where_nothing_is_open(found):
    assert visited(rule_of(lambda: found), 10, 60.0) == set(BATCHES)


def test_a_recording_that_cannot_be_diagnosed_yet_gets_complete_rounds():
    def fails():
        raise CurvescopeError("no timed step")

    assert visited(rule_of(fails), 10, 60.0) == set(BATCHES)


@pytest.mark.parametrize(
    ("name", "is_focused"), [("default", True), ("quick", True), ("addfor", False), ("dlperf", False)]
)
def test_rounds_of_a_published_protocol_stay_complete(tmp_path, monkeypatch, name, is_focused):
    monkeypatch.setattr("curvescope.analysis.diagnosis.explain.explain", lambda _: diagnosis(JUMP))
    monkeypatch.setattr("curvescope.profiling.recording.store.open_recording", lambda _: None)
    protocol = get_protocol(name)
    elapsed_s = 0.9 * (protocol.time_limit_s or 100.0)
    chosen = visited(focused(protocol, tmp_path, 0.0), protocol.rounds[0], elapsed_s)
    assert chosen == ({4, 8} if is_focused else None if protocol.rounds[0] == protocol.rounds[1] else set(BATCHES))
