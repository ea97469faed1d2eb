"""One verdict for one experiment, in every view, and one rule in every page."""

import json
import re

import pytest

from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render.answers import factor_text
from curvescope.analysis.verdicts import rule
from curvescope.analysis.verdicts.words import Verdict
from curvescope.cli import main
from curvescope.experiments.case import TermCase
from curvescope.experiments.plan import _situation
from curvescope.profiling.recording.experiments import experiments_of
from curvescope.profiling.recording.store import open_recording

from ..shared import ROOT
from .test_report import embedded
from .tested_recording import write_tested

STORED = sorted(
    path.parent
    for folder in ("examples", "tests/data")
    for path in (ROOT / folder).rglob("recording.json")
    if experiments_of(json.loads(path.read_text()))
)


@pytest.fixture(
    scope="module",
    params=[
        None,
        *(pytest.param(path, marks=pytest.mark.slow) for path in STORED),  # asks the same
    ],
    ids=lambda path: path.name if path else "planted",
)
def recording(request, tmp_path_factory):
    """A stored recording with experiments, or a planted one."""
    return request.param or write_tested(tmp_path_factory.mktemp("verdict") / "tested")


@pytest.fixture(scope="module")
def found(recording):
    """What is explained of it, once for all tests."""
    return explain(open_recording(recording))


def key(outcome):
    """Identity of an outcome in a document: the experiment, the functional, and the factor."""
    functional = tuple(map(tuple, outcome["experiment"]["functional"]))
    return outcome["experiment"]["number"], functional, outcome["factor"]


def said(outcome):
    return {name: outcome[name] for name in ("verdict", "reason", "taken", "removed")}


def test_a_recording_with_experiments_is_stored():
    assert [path.name for path in STORED] == ["alexnet-cpu", "vgg_a-h100"]


@pytest.mark.slow
def test_every_view_has_the_verdict_of_the_experiment(recording, found, tmp_path, capsys):
    assert main(["explain", str(recording), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    decided = {key(one): said(one) for one in document["experiments"]}
    assert main(["report", str(recording), "-o", str(tmp_path / "report.html")]) == 0
    page = embedded(tmp_path / "report.html")["runs"][0]["explain"]["answers"]
    views = [document["answers"], page]
    compared = 0
    for answers in views:
        for factor in (
            one for answer in answers for term in answer["evidence"] for one in term["factors"]
        ):
            assert said(factor) == decided[key(factor)]
            compared += 1
    assert compared > 4
    # The objects: those of the answers, from which text and notebook are drawn, and those of the
    # plan.
    objects = {id(one) for one in found.outcomes}
    assert all(
        id(one) in objects
        for answer in found.answers
        for term in answer.evidence
        for one in term.factors
    )
    situation = _situation(open_recording(recording), 60.0, found)
    cases = [
        TermCase(situation, *target, share)
        for target in situation.targets
        for share in (*target[1], None)
    ]
    planned = [one for case in cases for one in case.outcomes]
    assert planned
    assert all(id(one) in objects for one in planned)


def test_the_text_has_the_verdict_of_the_experiment(recording, found, text_of, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = re.sub(r"[¹²³⁴⁵⁶⁷⁸⁹]", "", text_of("explain", recording, "--all"))
    ran = [one for answer in found.answers for term in answer.evidence for one in term.factors]
    for one in (one for one in ran if one.verdict != Verdict.UNTESTED and one.taken is not None):
        row = rf"{re.escape(factor_text(one)[:20])}.*{one.verdict} +{one.factor}"
        assert re.search(row, text), (one.factor, one.verdict)


def test_an_answer_says_confirmed_only_where_an_experiment_is(found):
    for answer in (one for one in found.answers if one.verdict == Verdict.CONFIRMED):
        verdicts = [factor.verdict for term in answer.evidence for factor in term.factors]
        assert Verdict.CONFIRMED in verdicts


def test_the_pages_quote_the_rule():
    """The second paragraph of the docstring of `rule`, word for word."""
    wanted = " ".join(rule.__doc__.split("\n\n")[1].split())
    for page in ("docs/answer.md", "docs/internals/experiments.md"):
        assert wanted in " ".join((ROOT / page).read_text().split()), page
