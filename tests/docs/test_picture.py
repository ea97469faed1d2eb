"""The picture of the README shows what the report of its recording says today."""

import pytest

from ..shared import load_script


@pytest.mark.slow
def test_the_picture_has_the_words_of_the_report():
    drawing = load_script("docs/draw_report.py")
    said = "draw it again: python docs/draw_report.py"
    assert drawing.words_of(drawing.PICTURE.read_bytes()) == drawing.list_words(), said


def test_words_are_put_into_a_picture_and_read_back():
    drawing = load_script("docs/draw_report.py")
    picture = drawing.PICTURE.read_bytes()
    assert drawing.words_of(drawing.with_words(picture, "batch 8 is slow")) == "batch 8 is slow"
