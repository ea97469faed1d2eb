"""What holds the memory at its peak, on allocations built by hand."""

import numpy as np

from curvescope.profiling.attribution.events import kernel_rows
from curvescope.profiling.attribution.memory_peak import Allocations, KnownTensor
from curvescope.profiling.attribution.source_lines import SourceLine, Watched, WatchedCall

from .test_events import STEP, T, mark, node, op

# A convolution makes its output (100 at 0xA) beside a workspace (30 at 0xB). Its backward makes the
# gradient of its input (40 at 0xB again) beside that of its weight (50 at 0xC), then frees the
# output; the optimizer needs 5.
CONVOLUTION = [
    STEP,
    mark("phase:forward", 0, 200),
    mark("layer:conv", 10, 100),
    op("aten::conv2d", 20, 50, sequence=3, shapes=[[1]]),
    mark("phase:backward", 300, 300),
    node("ConvolutionBackward0", 310, 200, sequence=3),
    op("aten::convolution_backward", 320, 100, shapes=[[1]]),
    mark("phase:optimizer", 700, 200),
    op("aten::add_", 710, 50, shapes=[[1]]),
]
EVENTS = [
    (25, 100, 0xA),
    (30, 30, 0xB),
    (60, -30, 0xB),
    (330, 40, 0xB),
    (340, 50, 0xC),
    (450, -100, 0xA),
    *((460, -40, 0xB), (720, 5, 0xD), (800, -5, 0xD)),
]


def allocations(events=EVENTS, **more):
    time_ns, size, address = np.array(events, np.int64).T
    return Allocations(time_ns, np.full(len(time_ns), T), size, address, **more)


def peak(allocated, watched=None):
    rows = kernel_rows(CONVOLUTION, allocations=allocated, watched=watched).peak
    return {(row["kind"], row.get("layer"), row.get("phase")): row["bytes"] for row in rows}, rows


def test_the_peak_is_where_most_is_allocated_at_once():
    found, rows = peak(allocations())
    assert found == {
        ("activations", "conv", "forward"): 100,
        ("activation gradients", "conv", "backward"): 40,
        (
            "gradients",
            "conv",
            None,
        ): 50,  # nothing frees it, so it is no temporary of the backward pass
    }
    (last,) = (row for row in rows if row["makes_peak"])
    assert (last["kind"], last["op"], last["tensors"]) == (
        "gradients",
        "aten::convolution_backward",
        1,
    )


def test_tensors_from_before_the_step_are_what_the_program_says():
    """The weight is used, and the state has a layer; one tensor that no operator takes is apart."""
    known = [
        KnownTensor(-10, 0x1, 50, "parameters", "conv"),
        KnownTensor(-10, 0x2, 60, "optimizer state", "conv"),
        KnownTensor(-10, 0x3, 7, "input"),
        KnownTensor(-10, 0x4, 9, "input"),
        KnownTensor(690, 0xC, 50, "gradients", "conv"),
    ]
    found, _ = peak(allocations(tensors=known, used={0x1, 0x2, 0x3, 0xC}))
    assert found == {
        ("parameters", "conv", None): 50,
        ("optimizer state", "conv", None): 60,
        ("input", None, None): 7,
        ("not used in the step", None, None): 9,
        ("activations", "conv", "forward"): 100,
        ("activation gradients", "conv", "backward"): 40,
        ("gradients", "conv", None): 50,
    }


def test_a_tensor_from_before_the_step_counts_until_the_step_frees_it():
    """The old gradient (80 at 0x9) goes before the peak of the backward pass, and is part of that
    of the forward.
    """
    events = [(15, -80, 0x9), *EVENTS]
    known = [KnownTensor(-10, 0x9, 80, "gradients", "conv")]
    assert peak(allocations(events, tensors=known, used=set()))[0] == peak(allocations())[0]
    late = [(25, 100, 0xA), (30, 30, 0xB), (60, -30, 0xB), (70, -80, 0x9)]
    assert peak(allocations(late, tensors=known, used=set()))[0] == {
        ("activations", "conv", "forward"): 100,
        ("gradients", "conv", None): 80,
        ("workspace", "conv", "forward"): 30,
    }


def test_the_rest_of_the_allocators_own_total_is_said_as_such():
    """Before the step it had given out 64: 50 are the weight's, which it rounds up; it keeps 500 at
    the peak.
    """
    total = 64 + np.cumsum([size for _, size, _ in EVENTS])
    known = [KnownTensor(-10, 0x1, 50, "parameters", "conv")]
    found, _ = peak(
        allocations(tensors=known, total_bytes=total, reserved_bytes=np.full(len(total), 500))
    )
    assert found["other", None, None] == 14
    cached = found.pop(("cached", None, None))
    assert sum(found.values()) == max(total) == 254
    assert cached == 500 - 254


def test_a_tensor_has_the_line_of_its_operator():
    watched = Watched(
        [
            WatchedCall(40, 0, SourceLine("model.py", 7)),
            WatchedCall(350, 0, SourceLine("model.py", 9)),
        ]
    )
    lines = {row["kind"]: (row["file"], row["line"]) for row in peak(allocations(), watched)[1]}
    backward = dict.fromkeys(("activation gradients", "gradients"), ("model.py", 9))
    assert lines == {"activations": ("model.py", 7), **backward}
