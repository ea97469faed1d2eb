"""Kernels that a compiler generated: their place in a profile, their layers and operators, and
their work.
"""

import pytest

from curvescope.profiling.attribution.events import HostEvent, kernel_rows
from curvescope.profiling.attribution.fused_kernels import (
    FusedKernel,
    FusedOperator,
    OperatorShare,
    common_layer,
    decode_shares,
    encode_shares,
    shares_of,
)

from ...tables import ask_each

NORM = FusedOperator("block.0.norm", "aten::native_layer_norm", 300)
RELU = FusedOperator("block.1", "aten::relu", 100)
ADDMM = FusedKernel(
    "extern_kernels.addmm", (FusedOperator("block.0.fc", "aten::addmm", 9),), generated=False
)
FUSED = FusedKernel(
    "cpp_fused_native_layer_norm_relu_0", (NORM, RELU), flops=70, bytes_compulsory=250
)
AGAIN = FusedKernel("cpp_fused_relu_1", (FusedOperator("block.2", "aten::relu", 8),))


def test_the_layer_of_a_kernel_is_the_smallest_module_around_its_layers():
    layers = (["a.b.c", "a.b.d"], ["a.b", "a.b"], ["ab", "a"], ["a.b", None], [])
    assert list(map(common_layer, layers)) == ["a.b", "a.b", None, None, None]


def test_shares_go_by_bytes_or_are_equal_where_none_are_known_and_are_read_again():
    norm, relu = OperatorShare(NORM.layer, NORM.op, 0.6), OperatorShare(RELU.layer, RELU.op, 0.4)
    assert shares_of([RELU, NORM, RELU]) == [norm, relu]
    unknown = [FusedOperator(None, "aten::add"), FusedOperator(None, "aten::mul")]
    assert [one.share for one in shares_of(unknown)] == [0.5, 0.5]
    assert encode_shares([]) is None
    thirds = shares_of(FusedOperator(None, f"aten::{name}", 1) for name in ("a", "b", "c"))
    assert sum(one.share for one in decode_shares(encode_shares(thirds))) == pytest.approx(
        1, abs=1e-12
    )


@ask_each(
    "text",
    [
        "",
        "[1]",
        "[[null, 3]]",
        '[["a", "b", "c"]]',
        "[]",
        '[[5, "a", 1]]',
        "[[null, 3, NaN]]",
        "{",
        *('[[null, "a", -1], [null, "b", 2]]', '[[null, "aten::add", 0]]'),
    ],
)
def test_a_damaged_list_of_operators_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        decode_shares(text)


def compiled_step():
    """A forward call of a graph: a product, then the fused kernel, then two kernels of one name."""
    yield HostEvent("curvescope.step", 0, 1000, 1, is_range=True)
    yield HostEvent("curvescope.phase:forward", 0, 900, 1, is_range=True)
    yield HostEvent("## Call CompiledFxGraph g ##", 100, 700, 1, is_range=True)
    yield HostEvent("aten::empty", 100, 10, 1)
    yield HostEvent("aten::addmm", 110, 90, 1)
    yield HostEvent("aten::copy_", 120, 10, 1)
    yield HostEvent("graph_0_cpp_fused_native_layer_norm_relu_0", 200, 400, 1)
    yield HostEvent("graph_0_cpp_fused_relu_1", 600, 50, 1)
    yield HostEvent("graph_0_cpp_fused_relu_1", 650, 50, 1)
    yield HostEvent("aten::addmm", 850, 20, 1)  # after the graph: not its product


def test_kernels_of_a_compiled_graph_have_the_layers_and_operators_they_were_fused_from():
    last = FusedKernel("cpp_fused_relu_1", (FusedOperator("block.3", "aten::relu", 8),))
    rows = kernel_rows(compiled_step(), compiled={"g": [ADDMM, FUSED, AGAIN, last]}).kernels
    known = {(row["name"], row["start_ns"]): row for row in rows}
    fused = known["cpp_fused_native_layer_norm_relu_0", 200]
    assert (fused["layer"], fused["phase"], fused["duration_ns"]) == ("block", "forward", 400)
    assert (fused["flops"], fused["bytes_compulsory"]) == (70, 250)
    assert decode_shares(fused["fused"]) == [
        OperatorShare("block.0.norm", NORM.op, 0.75),
        OperatorShare("block.1", RELU.op, 0.25),
    ]
    assert known["cpp_fused_relu_1", 600]["layer"] == "block.2"
    assert known["cpp_fused_relu_1", 650]["layer"] == "block.3"
    assert known["aten::copy_", 120]["layer"] == "block.0.fc"
    assert known["aten::copy_", 120]["op"] == "aten::addmm"
    assert known["aten::addmm", 850]["layer"] is None
    assert "fused" not in known["aten::addmm", 110]
    assert (
        sum(row["duration_ns"] for row in rows) == 10 + 90 + 400 + 50 + 50 + 20
    )  # own times stay a partition


def test_graphs_of_unknown_names_change_nothing():
    assert kernel_rows(compiled_step(), compiled={"other": [FUSED]}) == kernel_rows(compiled_step())
