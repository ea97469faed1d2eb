"""Where further rounds go, by diagnoses that are given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.experiments import plan
from curvescope.focusing import OpenTerms, focus_of
from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.measure.protocol import get_protocol


def diagnosis(*anomalies, opened=True):
    """A diagnosis with anomalies of these functionals and values; `opened` says whether terms of them are open."""
    explained = [SimpleNamespace(functional=f, value=Estimate(v, v - 1, v + 1, 0.0)) for f, v in anomalies]
    return SimpleNamespace(explanations=tuple(explained), opened=opened)


@pytest.fixture(autouse=True)
def open_terms(monkeypatch):
    monkeypatch.setattr(plan, "open_terms", lambda found: found.explanations if found.opened else ())


JUMP, BEND = (excess(4, 8), 3.0), (bend(4, 8, 16), -20.0)


def test_rounds_visit_all_batch_sizes_for_half_of_the_time_and_then_the_first_anomalys():
    focus = OpenTerms(lambda: diagnosis(BEND, JUMP), 100.0)
    assert focus(6, 20.0) is None
    assert focus(12, 49.9) is None
    assert focus(13, 50.0) == {4, 8, 16}


def test_the_diagnosis_is_looked_at_again_when_there_are_half_as_many_rounds_more():
    looks = []
    focus = OpenTerms(lambda: looks.append(round_) or diagnosis(JUMP, opened=round_ < 20), 100.0)
    chosen = []
    for round_ in range(6, 40):
        chosen.append(focus(round_, 60.0))
    assert looks == [6, 9, 13, 19, 29]
    assert chosen == [{4, 8}] * (29 - 6) + [None] * (40 - 29)


@pytest.mark.parametrize("found", [diagnosis(JUMP, opened=False), diagnosis(opened=False)])
def test_rounds_are_complete_where_nothing_is_open(found):
    assert OpenTerms(lambda: found, 100.0)(10, 60.0) is None


def test_a_recording_that_cannot_be_diagnosed_yet_gets_complete_rounds():
    def fails():
        raise CurvescopeError("no timed step")

    assert OpenTerms(fails, 100.0)(10, 60.0) is None


@pytest.mark.parametrize(
    ("name", "focused"), [("default", True), ("quick", True), ("addfor", False), ("dlperf", False)]
)
def test_rounds_of_a_published_protocol_stay_complete(tmp_path, monkeypatch, name, focused):
    monkeypatch.setattr("curvescope.analysis.explaining.explain", lambda _: diagnosis(JUMP))
    monkeypatch.setattr("curvescope.profiling.recording.store.open_recording", lambda _: None)
    assert (focus_of(get_protocol(name), tmp_path)(20, 1e9) is not None) == focused
