"""Windows of steps that ranges mark."""

import numpy as np

from curvescope.profiling.attribution import steps
from curvescope.profiling.attribution.nesting import NONE
from curvescope.profiling.attribution.placement import HostSpans
from curvescope.profiling.attribution.range_names import RangeNames

from ...tables import ask_each


@ask_each(("until_ns", "begin_ns"), [(90, 100), (125, 125), (140, 130)])
def test_a_step_begins_after_work_that_was_launched_before_it(until_ns, begin_ns):
    """Kernels before the first step of a trace ran on after its mark: their time was called idle
    time of the step.
    """
    two = np.array([0, 1], np.int32)
    starts, ends = np.array([100, 200]), np.array([150, 250])
    marked = steps.MarkedSteps(
        [steps.StepMarks(7, starts, ends, np.full(2, NONE), np.zeros(2, np.int64))]
    )
    marked.reach(two, np.array([130, 260]), np.array([180, 300]))
    marked.hold(np.array([7, 8]), np.array([50, 60]), np.array([until_ns, 145]))
    assert [(window.start_ns, window.end_ns) for window in marked.windows()] == [
        (begin_ns, 180),
        (200, 300),
    ]


@ask_each("name", ["token_12_processing", "token 3", "decode_step_7", "generate_token_9"])
def test_a_token_is_a_step(name):
    assert RangeNames().read(name).step
    assert _family_of(name) == _family_of(name.translate(str.maketrans("0123456789", "9876543210")))


@ask_each(
    "name", ["layer_12", "tokenizer", "decode", "token_embedding_2", "ensure_layer_3_weights"]
)
def test_other_names_are_none(name):
    assert not RangeNames().read(name).step


def _family_of(name):
    return steps._family(name, None)


def test_marks_that_come_again_go_before_a_single_longer_one():
    """Found by use: on a busy machine a first step waited longer for its kernels than eighteen
    others took, and was the only step.
    """
    names = ["step 0", "step batch_size=16"]
    meanings = [RangeNames().read(name) for name in names]
    start_ns = np.array([0, 1_000, 1_100])
    end_ns = np.array([900, 1_050, 1_150])
    zeros = np.zeros(3, np.int64)
    ranges = HostSpans(start_ns, end_ns, zeros, zeros, np.array([0, 1, 1]), meanings)
    (marks,) = steps.find_marks(ranges, names)
    assert marks.start_ns.tolist() == [1_000, 1_100]
    assert marks.batch.tolist() == [16, 16]
