"""Paths of operators around a launch, and the shapes of the outermost one."""

from curvescope.profiling.attribution.events import DeviceEvent, HostEvent, kernel_rows
from curvescope.profiling.attribution.placement import shapes_text
from curvescope.profiling.attribution.range_names import LONGEST_NAME

from ...tables import ask_each


def launched_in(*spans):
    """Row of a kernel that is launched inside these spans, the outermost first."""
    events = [
        HostEvent(
            name,
            depth,
            100 - 2 * depth,
            1,
            correlation_id=depth + 1,
            shapes=shapes,
            is_range=is_range,
        )
        for depth, (name, shapes, is_range) in enumerate(spans)
    ]
    kernel = DeviceEvent("k", 200, 5, 0, 7, 1, len(spans))
    (row,) = kernel_rows(events, [kernel], host_rows=False).kernels
    return row["op"], row["op_path"], row["op_shapes"]


def test_the_path_leads_from_the_outermost_operator_inwards():
    inner = ("aten::convolution", [[8, 3, 32, 32], [16, 3, 3, 3], [], [[1, 1]]], False)
    outer = ("aten::conv2d", [[8, 3, 32, 32], [16, 3, 3, 3]], False)
    path, shapes = "aten::conv2d > aten::convolution", "8x3x32x32, 16x3x3x3"
    assert launched_in(outer, inner) == ("aten::conv2d", path, shapes)
    # An autograd node has no shapes: those of the operator in it count.
    name = "ConvolutionBackward0"
    node = (f"autograd::engine::evaluate_function: {name}", [], False)
    assert launched_in(node, inner) == (name, f"{name} > aten::convolution", f"{shapes}, [1x1]")


def test_a_new_path_begins_in_an_annotation():
    outer, mark = ("aten::linear", [[8, 4]], False), ("curvescope.layer:fc", [], True)
    assert launched_in(outer, mark, ("aten::addmm", [[4]], False)) == (
        "aten::addmm",
        "aten::addmm",
        "4",
    )
    assert launched_in(outer, mark) == (None, None, None)


def test_a_path_has_a_bounded_length():
    spans = [(f"aten::{'x' * 1000}{depth}", [], False) for depth in range(9)]
    op, path, _ = launched_in(*spans)
    assert path.startswith(f"{op} > ")
    assert len(path) <= LONGEST_NAME


@ask_each(
    ("shapes", "text"),
    [
        ([[8, 4], [], [2]], "8x4, 2"),
        ([[[8, 4], [8, 2]], [1]], "[8x4, 8x2], 1"),
        ([[], "x", None], None),
        ([["x", 2]], None),
        ([[[[1]], [2]]], "[2]"),
    ],
)
def test_shapes_as_text(shapes, text):
    assert shapes_text(shapes) == text
