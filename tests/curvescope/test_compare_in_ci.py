"""`compare --summary` and `--junit`: the three ends of a check, as a CI shows them."""

from xml.etree import ElementTree

import pytest

from curvescope.cli import main

from .test_compare import runs  # noqa: F401 - the recordings are a fixture

ENDS = {  # the other recording, what passes, the exit code, the word
    "worse": ("slow", "5%", 1),
    "not worse": ("again", "1%", 0),
    "could not tell": ("again", "0.1%", 0),
}


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("word", ENDS)
def test_the_summary_begins_with_one_of_three_words(word, runs, tmp_path, capsys):  # noqa: F811
    other, over, code = ENDS[word]
    summary = tmp_path / "summary.md"
    summary.write_text("what stood there\n")
    command = ["compare", runs / "base", runs / other, "--fail-over", over, "--summary", summary]
    assert main([str(part) for part in command]) == code
    first, title, *_ = [line for line in summary.read_text().splitlines() if line]
    assert first == "what stood there"
    assert title == f"### Time per step: {word}"
    assert f"| {runs / 'base'} ms |" in summary.read_text().replace("\\", "")


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("word", ENDS)
def test_junit_has_a_case_for_each_batch_size(word, runs, tmp_path, capsys):  # noqa: F811
    other, over, code = ENDS[word]
    report = tmp_path / "report.xml"
    command = ["compare", runs / "base", runs / other, "--fail-over", over, "--junit", report]
    assert main([str(part) for part in command]) == code
    suite = ElementTree.parse(report).getroot()
    sizes = [case.get("name") for case in suite]
    assert sizes == ["batch 4", "batch 8", "batch 16"]
    counts = int(suite.get("failures")), int(suite.get("skipped"))
    assert (counts[0] > 0, counts[1] > 0) == (word == "worse", word == "could not tell")
    assert counts == (len(suite.findall("*/failure")), len(suite.findall("*/skipped")))


def test_names_of_kernels_are_no_tags(runs, tmp_path, capsys):  # noqa: F811
    """`void f<int>()` in a page of Markdown would lose its `<int>`."""
    summary = tmp_path / "summary.md"
    line = ["compare", runs / "base", runs / "slow", "--by", "kernel", "--summary", summary]
    assert main([str(part) for part in line]) == 0
    assert "<" not in summary.read_text()


def test_what_cannot_be_written_is_said_before_anything_is_measured(
    runs,  # noqa: F811
    tmp_path,
    capsys,
):
    report = tmp_path / "report.xml"
    measure = ["compare", "--measure", "a=.", "b=.", "--step", "x.py:y", "--junit", str(report)]
    assert main(measure) == 2
    assert "add --fail-over" in capsys.readouterr().err
    report.write_text("mine")
    assert main([*measure, "--fail-over", "5%"]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert report.read_text() == "mine"
