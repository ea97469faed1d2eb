"""FLOPs of the nodes of a compiled graph."""

from curvescope.profiling.attribution.node_work import Elements, node_flops

from ...tables import ask_each

SMALL, LARGE, INTEGERS = Elements(8, True), Elements(64, True), Elements(64, False)


@ask_each(
    ("op", "result", "operand", "flops"),
    [
        ("aten::add", LARGE, SMALL, 64),  # the first operand is broadcast
        ("aten::rsqrt", SMALL, SMALL, 8),
        ("aten::sigmoid", LARGE, LARGE, 4 * 64),
        ("prims::fma", LARGE, LARGE, 2 * 64),
        ("aten::sum", SMALL, LARGE, 64),
        ("aten::var_mean", None, LARGE, 2 * 64),  # two results
        ("aten::add", INTEGERS, INTEGERS, 0),
        ("aten::sum", SMALL, INTEGERS, 0),
        ("prims::convert_element_type", LARGE, INTEGERS, 0),
        ("aten::where", None, None, 0),
        ("aten::view", None, None, 0),
        ("aten::add", None, LARGE, None),
        ("aten::sum", SMALL, None, None),
        ("aten::mm", LARGE, LARGE, None),
        ("prims::inductor_random", LARGE, None, None),
        ("mine::add", LARGE, LARGE, None),
        ("mine::where", LARGE, LARGE, None),
    ],
)
def test_a_node_counts_by_the_tensor_that_decides(op, result, operand, flops):
    assert node_flops(op, result, operand) == flops
