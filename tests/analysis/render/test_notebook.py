"""Notebook display: recordings, diagnoses and explanations render themselves, names as text."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from curvescope.analysis.diagnosis.explain import diagnose, explain
from curvescope.analysis.render import notebook  # noqa: F401 - as `curvescope.explain` does
from curvescope.analysis.render.words import html_text
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...curvescope.tested_recording import write_tested
from ...shared import ROOT
from ..causes.planted_causes import planted
from ..synthetic import times_of

HOSTILE = "<img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags(html):
    parser = Tags()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser.seen


def test_a_diagnosis_and_its_anomaly_render_themselves():
    steps, kernels, recorded = planted("algorithm switch", 1)
    kernels.loc[kernels["layer"] == "conv3", ["name", "layer"]] = [HOSTILE, HOSTILE]
    found = diagnose(replace(recorded, kernel_times=times_of(steps, kernels)))
    html = found._repr_html_()
    drawn = {"pre", "ol", "li", "p", "b", "br", "small", "table", "tr", "th", "td", "div"}
    drawn |= {"svg", "rect", "text", "polyline", "circle", "title"}  # the picture
    assert tags(html) == drawn
    assert "&lt;img src=x" in html
    assert found.explanations[0]._repr_html_() in html


@pytest.mark.slow
def test_a_diagnosis_prints_what_the_terminal_shows(text_of, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = write_tested(tmp_path / "r")
    found = explain(open_recording(path))
    assert str(found) == text_of("explain", path).rstrip("\n")
    assert html_text(str(found)) in found._repr_html_()
    steps, kernels, recorded = planted("algorithm switch", 1)
    # without a recording: neither who and where, nor commands
    alone = str(diagnose(replace(recorded, kernel_times=times_of(steps, kernels))))
    assert "NEXT" not in alone
    assert "off neighbours" in alone


def test_a_diagnosis_says_which_sizes_have_no_data():
    recording = open_recording(ROOT / "tests/data/causes/WaitsForItsInput")
    why = {"batch": 64, "why": "does not fit the time limit", "detail": "4 rounds take longer"}
    recording.meta["unmeasured"] = [why]
    found = explain(recording)
    assert "No data of 64: does not fit the time limit" in str(found)
    assert "No data of 64: does not fit the time limit" in found._repr_html_()


def test_a_recording_renders_itself(tmp_path):
    with RecordingWriter(tmp_path / "run", {"network": HOSTILE, "batches": [1, 2]}) as writer:
        writer.count_lost("kernels_without_operator", 3, "sentence")
    html = open_recording(tmp_path / "run")._repr_html_()
    assert tags(html) == {"p", "b", "table", "tr", "th", "td"}
    assert "&lt;img" in html
    assert "1, 2" in html
    assert "complete" in html
