"""The operands of terms: types, weights and shares of numbers, from rows of the table
`operators`.
"""

import pyarrow as pa

from curvescope.analysis.causes.case import TermOperands
from curvescope.analysis.causes.context import OPERAND_COLUMNS, read_operands, weights_of
from curvescope.analysis.causes.expert_tokens import NO_EXPERTS
from curvescope.analysis.decompose.terms import KERNELS, Key
from curvescope.profiling.recording.operand_numbers import CallNumbers, Numbers, encode_numbers
from curvescope.profiling.recording.operators import TensorArgument, encode_arguments


def row(op, shapes, duration_ns, operands=None, dtype="float", layer="fc", calls=1, **numbers):
    arguments = encode_arguments([TensorArgument(shape, dtype) for shape in shapes])
    text = None if operands is None else encode_numbers(CallNumbers(operands, **numbers))
    values = (8, layer, "forward", op, arguments, duration_ns, text, calls)
    return dict(zip(OPERAND_COLUMNS, values, strict=True))


def operands_of(*rows, names=None):
    return read_operands(pa.Table.from_pylist(list(rows)), names or {})[8]


FC = Key.of("fc", "forward", KERNELS)


def test_shares_are_means_by_time():
    half = {0: Numbers(8, "float", denormals=0.5)}
    found = operands_of(
        row("aten::mul", [(8, 8)], 300, half),
        row("aten::exp", [(8, 8)], 100, {}, denormal_results=0.9),
        row("aten::embedding", [(8, 8)], 600, {1: Numbers(9, "long int", distinct=0.25)}),
        row("aten::add", [(8, 8)], 10_000),  # nobody looked
    )[FC]
    # (0.5 * 300 + 0.9 * 100 + 0 * 600) / 1000
    assert (round(found.denormals, 9), found.distinct) == (0.24, 0.25)
    assert operands_of(row("aten::add", [(8, 8)], 10))[FC] == TermOperands(
        {"aten::add": frozenset({"float32"})}
    )


def test_weights_are_the_parameters_that_products_multiply_by():
    def numbers(name):
        return {
            0: Numbers(32, "float"),
            1: Numbers(64, "float", parameter=name),
            2: Numbers(8, "float", parameter="b"),
        }

    found = operands_of(
        row("aten::linear", [(4, 8), (8, 8), (8,)], 100, numbers("small.weight")),
        row("aten::mm", [(4, 8), (8, 8)], 500, numbers("table.weight")),
        row("aten::embedding", [(8, 8), (4, 4)], 900, numbers("not.multiplied")),
        row("aten::linear", [(4, 8), (8, 8)], 50, numbers("h.0.weight"), layer="h.0"),
        names={"h.0": "h.*"},
    )
    assert found[FC].weights == ("table.weight", "small.weight")
    assert found[Key.of("h.*", "forward", KERNELS)].weights == ("h.0.weight",)
    assert weights_of({8: found, 16: found}) == ("table.weight", "small.weight", "h.0.weight")


def test_types_are_kept_by_operator():
    found = operands_of(
        row("aten::to", [(8,)], 9, dtype="float"),
        row("aten::to", [(8,)], 8, dtype="c10::BFloat16"),
        row("aten::embedding", [(8,)], 8, dtype="long int"),
    )[FC]
    assert found.dtypes == {"aten::to": frozenset({"float32", "bfloat16"})}


def test_tokens_of_experts_are_the_rows_of_their_products():
    """Two of four experts have tokens: 5 and 1, whatever form their product has."""
    layers = [f"mlp.experts.{index}.up" for index in range(4)]
    names = dict.fromkeys(layers, "mlp.experts.*.up")
    rows = [
        row("aten::linear", [(5, 8), (16, 8), (16,)], 10, layer=layers[2]),
        row("aten::addmm", [(16,), (1, 8), (8, 16)], 10, layer=layers[0]),
        row("aten::relu", [(9, 16)], 10, layer=layers[1]),
    ]
    of = operands_of(*rows, names=names)[Key.of("mlp.experts.*.up", "forward", KERNELS)]
    assert of.experts == ((5, 1), 4, True)
    assert operands_of(row("aten::linear", [(5, 8)], 10))[FC].experts == NO_EXPERTS


def of_experts(*rows, layer="mlp.experts", names=None):
    found = operands_of(*rows, names=names)
    return found[Key.of(layer, "forward", KERNELS)].experts


def part(name, parts):
    return {0: Numbers(8, "float"), 1: Numbers(128, "float", part_of=name, parts=parts)}


def test_a_loop_over_the_parts_of_one_tensor_has_a_call_for_each_expert():
    """Experts of 2 tokens and two of 1, which make one row of equal calls."""
    rows = [
        row("aten::linear", [(2, 8), (16, 8)], 9, part("up", 8), layer="mlp.experts"),
        row("aten::linear", [(1, 8), (16, 8)], 9, part("up", 8), layer="mlp.experts", calls=2),
        row("aten::linear", [(2, 16), (8, 16)], 9, part("down", 8), layer="mlp.experts"),
        row("aten::linear", [(1, 16), (8, 16)], 9, part("down", 8), layer="mlp.experts", calls=2),
    ]
    assert of_experts(*rows) == ((2, 1, 1), 8, True)
    chunks = [row("aten::linear", [(2, 8), (8, 8)], 9, part("in_proj", 3), calls=3)]
    assert of_experts(*chunks, layer="fc") == NO_EXPERTS


def test_a_batched_product_of_all_experts_has_all_tokens_for_each():
    numbers = {1: Numbers(1024, "float", parameter="experts.down")}
    shapes = [(8, 4, 16), (8, 16, 8)]
    product = row("aten::bmm", shapes, 9, numbers, layer="mlp.experts")
    assert of_experts(product) == ((4,) * 8, 8, True)
    gathered = row("aten::bmm", shapes, 9, {1: Numbers(1024, "float")}, layer="mlp.experts")
    assert of_experts(gathered) == NO_EXPERTS


def test_a_grouped_product_tells_by_the_ends_of_its_groups_or_by_how_many_rows_it_has():
    shapes = [(6, 8), (4, 8, 16), (4,)]
    ends = {2: Numbers(4, "int", values=(3, 3, 4, 6))}
    known = row("aten::_grouped_mm", shapes, 9, ends)
    assert of_experts(known, layer="fc") == ((3, 2, 1), 4, True)
    guessed = row("aten::_grouped_mm", shapes, 9)
    assert of_experts(guessed, layer="fc") == ((2, 2, 1, 1), 4, False)
    few = row("aten::_grouped_mm", [(2, 8), (4, 8, 16), (4,)], 9)
    assert of_experts(few, layer="fc") == ((1, 1), 4, False)
    layers = {f"h.{index}.experts": "h.*.experts" for index in range(2)}
    rows = [row("aten::_grouped_mm", shapes, 9, ends, layer=layer) for layer in layers]
    of_both = of_experts(*rows, layer="h.*.experts", names=layers)
    assert of_both == ((3, 3, 2, 2, 1, 1), 8, True)
