"""What an import says at its end: the first advice on a small profile, and where to get it for a
large one.
"""

import pytest

from curvescope import profile_files

from ..shared import PROFILES

PROFILE = PROFILES / "tl_h100_bert_small.json.gz"


def test_a_small_profile_ends_with_the_first_advice(tmp_path, text_of):
    said = text_of("import", PROFILE, "-o", tmp_path / "r")
    assert "Suggested: " in said
    assert "Advice is left" not in said


def test_of_a_large_profile_advice_is_left_to_explain(tmp_path, text_of, monkeypatch):
    """Of three million events it took a third of the import."""
    monkeypatch.setattr(profile_files, "_ADVISED_ROWS", 10)
    monkeypatch.setattr(
        "curvescope.analysis.diagnosis.suggested.advise",
        lambda *_: pytest.fail("it examined the profile"),
    )
    said = text_of("import", PROFILE, "-o", tmp_path / "r")
    assert "Advice is left to `explain`: it examines " in said
    assert "Suggested: " not in said
