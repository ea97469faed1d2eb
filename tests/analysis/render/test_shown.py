"""Every renderer takes the same thing, and a view is a list of blocks."""

import inspect

import pytest

from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render import everything, explained, finding, notebook
from curvescope.analysis.render.blocks import Block
from curvescope.analysis.render.found import find_all
from curvescope.analysis.render.shown import Shown
from curvescope.profiling.recording.store import open_recording

from ...shared import EXAMPLE


@pytest.fixture(scope="module")
def shown():
    return Shown.whole(explain(open_recording(EXAMPLE)))


def test_every_renderer_takes_a_diagnosis_as_it_is_shown():
    renderers = (explained.ExplainDocument.of, notebook.notebook_html, *everything.EVERYTHING)
    for renderer in renderers:
        (taken,) = inspect.signature(renderer).parameters.values()
        assert taken.annotation == "Shown", renderer


@pytest.mark.slow
def test_a_view_is_a_list_of_blocks_and_leaves_out_what_says_nothing(shown):
    blocks = [make(shown) for make in everything.EVERYTHING]
    assert None in blocks  # it was measured, so nothing cautions of a model
    assert all(block is None or isinstance(block, Block) for block in blocks)


@pytest.mark.slow
def test_a_block_of_a_finding_is_there_where_the_finding_has_it(shown):
    first = find_all(shown.diagnosis)[0]
    made = {make.__name__: make(finding._Asked(shown, 1, first)) for make in finding.FINDING}
    assert made["_describe_answers"] is not None
    assert (made["_describe_saving"] is None) == (first.saving is None)
    assert (made["_describe_slow_steps"] is None) == (first.slow is None)
