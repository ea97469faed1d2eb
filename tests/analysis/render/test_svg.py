"""The picture alone: well-formed, with every size, and never over an existing file."""

import xml.etree.ElementTree as ET

import pytest

from ...shared import ROOT

SVG = "{http://www.w3.org/2000/svg}"
FOUND_LATE = ROOT / "tests" / "data" / "h100" / "found-late"
SMALL = ROOT / "tests" / "data" / "causes" / "WaitsForItsInput"
VGG = ROOT / "examples" / "recordings" / "vgg_a-h100"


def read(path):
    drawn = ET.parse(path).getroot()
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    return drawn, texts


@pytest.mark.slow
def test_the_curve_has_a_dot_a_size_and_the_slow_ones_in_another_color(text_of, tmp_path):
    text_of("explain", FOUND_LATE, "--svg", tmp_path / "curve.svg")
    drawn, texts = read(tmp_path / "curve.svg")
    dots = list(drawn.iter(f"{SVG}circle"))
    assert len(dots) == 11
    of_17 = next(dot for dot in dots if dot.find(f"{SVG}title").text.startswith("batch 17: 50.20"))
    colors = {dot.get("fill") for dot in dots}
    assert len(colors) == 2
    assert of_17.get("fill") != dots[0].get("fill")
    assert texts[0].startswith("4 slow sizes. At 17: conv3_2")
    heights = [float(dot.get("cy")) for dot in dots]
    assert min(heights) == heights[-1]  # the longest step is the highest


def test_the_roofline_has_its_roofs_and_names_the_longest(text_of, tmp_path):
    text_of("roofline", VGG, "--svg", tmp_path / "roof.svg")
    _, texts = read(tmp_path / "roof.svg")
    assert any(text.startswith("DRAM 3.35 TB/s") for text in texts)
    assert any(text.startswith("fp32 66.9 TFLOP/s") for text in texts)
    assert any(text.startswith("1  sm80_xmma") for text in texts)


def test_nothing_is_overwritten_and_what_is_no_curve_is_refused(refusal_of, tmp_path):
    existing = tmp_path / "curve.svg"
    existing.write_text("mine")
    assert "exists already" in refusal_of("explain", SMALL, "--svg", existing)
    assert existing.read_text() == "mine"
    refused = refusal_of("explain", SMALL, "--of", "memory", "--svg", tmp_path / "other.svg")
    assert "one recorded curve" in refused
