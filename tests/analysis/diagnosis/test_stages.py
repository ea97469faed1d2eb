"""The stages of a diagnosis: each works once, and hands on what it made."""

from dataclasses import fields

import pytest

from curvescope.analysis.causes import judge
from curvescope.analysis.diagnosis.answer import Grounds, answer
from curvescope.analysis.diagnosis.estimate import estimate
from curvescope.analysis.diagnosis.explain import explain, explain_again
from curvescope.analysis.diagnosis.read import read
from curvescope.analysis.diagnosis.split import split_anomalies, weigh
from curvescope.analysis.verdicts import outcome
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.store import open_recording

from ...curvescope.tested_recording import write_tested
from ...shared import EXAMPLE


@pytest.mark.slow
def test_every_experiment_is_decided_once(monkeypatch):
    """Those on terms first, as claims on complete steps follow from them."""
    decided = []

    def decide(measured, claim, family):
        decided.append(measured)
        return rule(measured, claim, family)

    rule = outcome.decide
    monkeypatch.setattr(outcome, "decide", decide)
    found = explain(open_recording(EXAMPLE))
    assert len(found.outcomes) > 20
    assert len(decided) == len(found.outcomes)
    scopes = [measured.experiment.scope for measured in decided]
    assert scopes == sorted(scopes, key=lambda scope: scope == Scope.STEP)


@pytest.mark.slow
def test_an_explanation_is_an_anomaly_that_the_last_stages_take_again():
    """So further experiments need no further splitting."""
    recording = open_recording(EXAMPLE)
    found = explain(recording)
    judged = judge(found.all_explanations, found.recorded.measured)
    assert judged.outcomes == found.outcomes
    assert judged.claims == found.claims
    assert explain_again(found, recording).explanations == found.explanations


def test_no_stage_changes_what_an_earlier_one_made(tmp_path):
    recording = open_recording(write_tested(tmp_path / "r"))
    recorded = read(recording)
    estimates = estimate(recorded)
    findings = explain(recording).findings
    anomalies = weigh(split_anomalies(estimates, findings, recorded))
    assert anomalies
    before = [{field.name: getattr(one, field.name) for field in fields(one)} for one in anomalies]
    judged = judge(anomalies, recorded.measured)
    grounds = Grounds.of(judged.outcomes, recorded, estimates, None)
    answers = [answer(anomaly, (), grounds) for anomaly in anomalies]
    for anomaly, answered, values in zip(anomalies, answers, before, strict=True):
        for name, value in values.items():
            assert getattr(anomaly, name) is value
            assert getattr(answered, name) is value
