"""FLOPs and compulsory bytes: by hand for single calls, against torch's own counter for whole
networks.
"""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from curvescope.profiling.attribution.operation import UNKNOWN, Work
from curvescope.profiling.attribution.operator_work import _RULES, work
from curvescope.profiling.workload.networks import get_network

from ...tables import ask_each

F4 = ["float"] * 6


HALF, BF16, FP8 = (
    ["c10::Half"] * 3,
    ["c10::BFloat16"] * 2 + ["int"],
    ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2,
)


@ask_each(
    ("op", "shapes", "dtypes", "concrete", "expected"),
    [
        # 2 × 3 times 3 × 5: 30 products and sums; 6 + 15 + 10 elements of 4 bytes
        ("mm", [[2, 3], [3, 5]], F4, [], Work(60, 124)),
        ("mm", [[2, 3], [3, 5]], BF16, [], Work(60, 62)),
        ("addmm", [[5], [2, 3], [3, 5], [], []], F4, [], Work(70, 144)),
        ("linear", [[2, 3], [5, 3], [5]], F4, [], Work(70, 144)),
        ("bmm", [[4, 2, 3], [4, 3, 5]], F4, [], Work(240, 496)),
        ("baddbmm", [[4, 2, 5], [4, 2, 3], [4, 3, 5]], F4, [], Work(240, 496)),
        ("_foreach_mul_", [[[2, 3], [4]], []], F4, [], Work(10, 80)),  # over a list of tensors
        # 6 + 15 bytes of operands, two scales of 4, results of bf16 (type 15)
        ("_scaled_mm", [[2, 3], [3, 5], [1], [1], [], [], [], []], FP8, [None] * 6 + [15], Work(60, 6 + 15 + 8 + 20)),
        # results of unknown type
        ("_scaled_mm", [[2, 3], [3, 5], [1], [1], [], [], [], []], FP8, [], Work(60, None)),
        ("_int_mm", [[2, 3], [3, 5]], ["signed char"] * 2, [], Work(60, 6 + 15 + 40)),
        # Grouped products: rows in groups, e.g. tokens by expert; the sum in groups, e.g. the
        # gradient of weights
        ("_grouped_mm", [[7, 3], [2, 3, 5], [2]], BF16, [], Work(2 * 7 * 15, 2 * (21 + 30 + 35))),
        ("_grouped_mm", [[2, 7, 3], [2, 3, 5], [2]], BF16, [], Work(2 * 2 * 7 * 15, 2 * (42 + 30 + 70))),
        ("_grouped_mm", [[4, 7], [7, 5], [2]], BF16, [], Work(2 * 4 * 7 * 5, 2 * (28 + 35 + 40))),
        ("_grouped_mm", [[2, 4, 3], [3, 6], [2]], BF16, [], Work(2 * 4 * 18, 2 * (24 + 18 + 24))),
        ("rms_norm", [[2, 8], [], [8]], HALF, [], Work(64, 2 * 32)),
        ("silu", [[2, 8]], HALF, [], Work(64, 2 * 32)),
        ("layer_norm", [[2, 8], []], HALF, [], Work(80, 2 * 32)),
        ("_softmax", [[2, 8], []], HALF, [], Work(80, 2 * 32)),
        # 6 indices of 8 bytes look up rows of 4 elements in a table of 100
        ("embedding", [[100, 4], [2, 3]], ["c10::Half", "long int"], [], Work(0, 2 * 2 * 24 + 48)),
        ("embedding_dense_backward", [[2, 3, 4], [2, 3]], ["float", "long int"], [None, None, 100],
         Work(24, 4 * (24 + 400) + 48)),
        # 1 image 3×4×4, 2 filters 3×3 without padding: 2×2×2 results of 27 products each
        ("conv2d", [[1, 3, 4, 4], [2, 3, 3, 3], []], F4, [None, None, None, [1, 1], [0, 0], [1, 1], 1],
         Work(2 * 8 * 27, 4 * (48 + 54 + 8))),
        # 4 channels in 2 groups, 6 filters over 2 channels each, stride 2, padding 1 on 5×5: 3×3
        # results
        ("conv2d", [[2, 4, 5, 5], [6, 2, 3, 3], [6]], F4, [None, None, None, [2, 2], [1, 1], [1, 1], 2],
         Work(2 * 108 * 18 + 108, 4 * (200 + 108 + 108 + 6))),
        *(("copy_", [[16], [16]], [f"c10::Float8_{kind}"] * 2, [], Work(0, 32))
          for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")),
        ("mm", [[2, 3], [3, 5]], ["", ""], [], UNKNOWN),  # elements of unknown type
        ("no_such_operator", [[2, 3]], F4, [], UNKNOWN),
        ("mm", [[2, 3]], F4, [], UNKNOWN),  # an operand was not recorded
        ("conv2d", [[1, 3, 4, 4], [2, 3, 3, 3], []], F4, [], UNKNOWN),  # nor the stride
        ("convolution", [[1, 3, 4, 4], [3, 2, 3, 3], []], F4, [None] * 3 + [[1, 1], [0, 0], [1, 1], True], UNKNOWN),
        ("convolution_backward", [[1, 2, 2, 2], [1, 3, 4, 4], [2, 3, 3, 3]], F4, [], UNKNOWN),
    ],
)  # fmt: skip
def test_calls_by_hand(op, shapes, dtypes, concrete, expected):
    assert work(f"aten::{op}", shapes, dtypes, concrete) == expected


def test_backward_of_a_convolution_counts_only_what_is_wanted():
    shapes = [[1, 2, 2, 2], [1, 3, 4, 4], [2, 3, 3, 3]] + [[]] * 8

    def backward(mask):
        return work("aten::convolution_backward", shapes, F4, [None] * 10 + [mask])

    one = 2 * 8 * 27
    assert backward([True, True, False]).flops == 2 * one
    assert backward([False, True, True]).flops == one + 8
    assert backward([True, False, False]) == Work(one, 4 * (8 + 54 + 48))


@ask_each("groups", [1, 2, 4])
@ask_each("transposed", [False, True])
def test_gradients_of_grouped_and_depthwise_convolutions_have_the_products_of_the_forward_pass(
    groups, transposed
):
    """4 channels and 4 filters on 5x5, 3x3, stride 2: a group has 4 / groups of each, depthwise
    one.
    """
    image, weight = [2, 4, 5, 5], [4, 4 // groups, 3, 3]
    result = [2, 4, 11, 11] if transposed else [2, 4, 2, 2]
    settings = [[2, 2], [0, 0], [1, 1], transposed, [0, 0], groups]
    forward = work("aten::convolution", [image, weight, []], F4, [None] * 3 + settings)
    products = 2 * 4 * (5 * 5 if transposed else 2 * 2) * 4 // groups * 9
    moved = 4 * (2 * 4 * 25 + 4 * 4 // groups * 9 + 2 * 4 * result[2] ** 2)
    assert forward == Work(2 * products, moved)
    shapes = [result, image, weight] + [[]] * 8

    def backward(mask):
        return work("aten::convolution_backward", shapes, F4, [None] * 4 + settings + [mask])

    assert backward([True, False, False]) == forward
    assert backward([False, True, False]) == forward
    assert backward([True, True, True]).flops == 2 * forward.flops + 2 * 4 * result[2] ** 2
    assert backward([False, True, True]).bytes_compulsory == moved + 4 * 4


def test_a_transposed_convolution_has_the_result_that_torch_computes():
    with torch.device("meta"):
        image, layer = (
            torch.empty(2, 6, 7, 5),
            torch.nn.ConvTranspose2d(6, 8, 3, (2, 3), 1, 1, groups=2, dilation=2),
        )
        result = layer(image)
    call = [
        [list(image.shape), list(layer.weight.shape), [8]],
        F4,
        [*[None] * 3, [2, 3], [1, 1], [1, 1], 2, [2, 2]],
    ]
    expected = 2 * image.numel() * 4 * 9 + result.numel()
    elements = image.numel() + layer.weight.numel() + 8 + result.numel()
    assert work("aten::conv_transpose2d", *call) == Work(expected, 4 * elements)


@ask_each("name", ["alexnet", "vgg_a"])
def test_a_training_step_has_the_flops_that_torch_counts(name):
    """torch's counter leaves bias and elementwise work out; the products must agree exactly."""
    network = get_network(name)
    with torch.device("meta"):
        model = network.build()
        images = torch.empty(2, *network.input_shape)
    seen = {}
    for module in model.modules():
        module.register_forward_pre_hook(
            lambda module, inputs: seen.update({module: list(inputs[0].shape)})
        )
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    forward = []
    for module in seen:
        if isinstance(module, torch.nn.Conv2d):
            settings = [
                None,
                None,
                None,
                list(module.stride),
                list(module.padding),
                list(module.dilation),
                1,
            ]
            forward.append(
                work(
                    "aten::conv2d", [seen[module], list(module.weight.shape), []], F4, settings
                ).flops
            )
        elif isinstance(module, torch.nn.Linear):
            forward.append(
                work("aten::linear", [seen[module], list(module.weight.shape), []], F4).flops
            )
    assert counter.get_total_flops() == 3 * sum(forward) - forward[0]  # the images need no gradient


@ask_each(
    ("op", "further"),
    [
        *(("scaled_dot_product_attention", 5), ("_scaled_dot_product_attention_math", 3)),
        *(
            (f"_scaled_dot_product_{name}_attention", n)
            for name, n in (("flash", 3), ("efficient", 4), ("cudnn", 4))
        ),
    ],
)
def test_attention_by_hand_in_every_backend(op, further):
    """2 samples, 3 heads, 4 queries of 8, 5 keys, values of 8: two products of 2 x 3 x
    4 x 5 x 8.
    """
    shapes = [[2, 3, 4, 8], [2, 3, 5, 8], [2, 3, 5, 8]] + [[]] * further
    assert work(f"aten::{op}", shapes, HALF) == Work(
        2 * 2 * (2 * 3 * 4 * 5 * 8), 2 * (2 * 3 * 8) * (4 + 5 + 5 + 4)
    )


def test_a_causal_mask_leaves_the_pairs_below_the_diagonal_and_a_shared_key_counts_once():
    shapes, unmasked = [[1, 1, 4, 8]] * 3 + [[]] * 3, 2 * 2 * 8 * 16
    op = "aten::scaled_dot_product_attention"
    # Not recorded, the mask leaves an upper bound.
    for concrete, flops in (
        ([None] * 5 + [True], 2 * 2 * 8 * 10),
        ([None] * 5 + [False], unmasked),
        ([], unmasked),
    ):
        assert work(op, shapes, F4, concrete).flops == flops
    shared = [[1, 8, 4, 16], [1, 2, 4, 16], [1, 2, 4, 16]]
    assert work(op, shared, F4) == Work(2 * 2 * 8 * 16 * 16, 4 * 16 * 4 * (8 + 2 + 2 + 8))


@pytest.mark.parametrize("op", [op for op in _RULES if "attention" in op])
def test_the_rules_of_attention_know_the_arguments_of_torch(op):
    """Query, key, value and the mask stand where torch's own schema has them."""
    schemas = {
        schema.name: schema
        for schema in torch._C._jit_get_all_schemas()
        if not schema.overload_name
    }
    if f"aten::{op}" not in schemas:
        pytest.skip("this torch does not have the operator")
    names = [argument.name for argument in schemas[f"aten::{op}"].arguments]
    mask = names.index("is_causal" if "is_causal" in names else "custom_mask_type")
    query = names.index("query")
    assert names[query : query + 3] == ["query", "key", "value"]
    shapes = [
        [1, 1, 4, 8] if name not in ("is_causal", "custom_mask_type") else [] for name in names
    ]
    if "_attention_forward" in op or op in (
        "_flash_attention_backward",
        "_efficient_attention_backward",
    ):
        shapes = [[1, 4, 1, 8] if shape else [] for shape in shapes]
    causal = [None] * mask + [True]
    assert work(op, shapes, F4, causal).flops == pytest.approx(work(op, shapes, F4).flops * 10 / 16)


@ask_each("backward", [False, True])
def test_attention_has_the_flops_that_torch_counts(backward):
    with torch.device("meta"):
        q, k, v = (torch.empty(2, 3, n, 8, requires_grad=True) for n in (4, 5, 5))
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        if backward:
            out.sum().backward()
    shapes = [list(x.shape) for x in (q, k, v)]
    ours = work("aten::scaled_dot_product_attention", shapes, F4).flops
    if backward:
        # Flash and efficient attention compute the scores again; the math that torch counts here
        # does not.
        whole = [list(out.shape), *shapes]
        again = work("aten::mm", [[2 * 3 * 4, 8], [8, 5]], F4).flops
        ours += work("aten::_scaled_dot_product_flash_attention_backward", whole, F4).flops - again
    assert counter.get_total_flops() == ours


def test_a_kernel_of_torch_compile_moves_its_buffers():
    """Its FLOPs stay unknown, and so do the bytes of kernels that read parts of a buffer."""
    shapes, dtypes = [[64, 32], [32], [64, 32], []], ["c10::Half", "float", "c10::Half", "int"]
    assert work("triton_poi_fused_add_relu_0", shapes, dtypes) == Work(
        None, 2 * 2048 + 4 * 32 + 2 * 2048
    )
    assert work("triton_poi_fused_embedding_0", shapes, dtypes) == UNKNOWN
    assert work("triton_poi_fused_add_0", [[4, 4]], ["Unknown"]).bytes_compulsory is None


@ask_each(
    ("op", "shapes", "flops"),
    [
        ("triton_tem_fused_mm_0", [[2, 3], [3, 5], [2, 5]], 60),
        (
            "triton_tem_fused_addmm_relu_3",
            [[5], [2, 3], [3, 5], [2, 5], []],
            60,
        ),  # the bias comes first
        ("triton_tem_fused_bmm_1", [[4, 2, 3], [4, 3, 5], [4, 2, 5]], 240),
        (
            "triton_tem_fused__unsafe_view_mm_mul_2",
            [[2, 3], [3, 5], [2, 5], [2, 5]],
            60,
        ),  # with a factor
        ("triton_tem_fused_mm_0", [[2, 3], [3, 5]], None),  # the result was not recorded
        ("triton_tem_fused_flex_attention_0", [[2, 3], [3, 5], [2, 5]], None),
        ("triton_poi_fused_add_0", [[3, 3], [3, 3], [3, 3]], None),
    ],
)
def test_products_of_torch_compile_have_the_flops_of_their_shapes(op, shapes, flops):
    assert work(op, shapes, ["c10::Half"] * len(shapes)).flops == flops
