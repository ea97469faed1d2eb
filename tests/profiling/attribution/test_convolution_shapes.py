"""Work of convolutions in traces without scalars, e.g. of PyTorch 1.9, whose calls do not show all
three tensors.
"""

import numpy as np

from curvescope.profiling.attribution.convolution_shapes import with_third_shapes
from curvescope.profiling.attribution.nesting import NONE
from curvescope.profiling.attribution.operation import UNKNOWN, Operation
from curvescope.profiling.attribution.operator_work import count_work

from ...tables import ask_each

IMAGE, WEIGHT, RESULT = [2, 3, 9, 9], [4, 3, 3, 3], [2, 4, 4, 4]  # stride 2
PRODUCTS = 2 * 4 * 4 * 4 * 27


def call(name, *shapes):
    return Operation(f"aten::{name}", [*shapes, [], []], ["float", "float", "float"])


FORWARD = call("conv2d", IMAGE, WEIGHT)
BACKWARD = call("cudnn_convolution_backward", IMAGE, RESULT, WEIGHT)
OF_IMAGE = call("cudnn_convolution_backward_input", [], RESULT, WEIGHT)
OF_WEIGHT = call("cudnn_convolution_backward_weight", [], RESULT, IMAGE)


def works(*spans):
    """The work of spans, each a call and the position of the span around it."""
    calls, parents = zip(*spans, strict=True)
    distinct = []
    for one in calls:
        if one not in distinct:
            distinct.append(one)
    operations, of_span = with_third_shapes(
        distinct, np.array([distinct.index(c) for c in calls]), np.array(parents)
    )
    return [count_work(operations[number]) for number in of_span]


def test_the_backward_call_tells_the_tensor_that_other_calls_lack():
    forward, _, *gradients = works((FORWARD, NONE), (BACKWARD, NONE), (OF_IMAGE, 1), (OF_WEIGHT, 1))
    elements = 2 * 3 * 9 * 9 + 4 * 27 + 2 * 4 * 16
    for work in (forward, *gradients):
        assert (work.flops, work.bytes_compulsory) == (2 * PRODUCTS, 4 * elements)


def test_gradients_of_equal_shapes_have_the_weights_of_the_call_around_them():
    """Kernels of 3 x 3 and, with a padding, of 5 x 5 make the same result of the same image."""
    larger = call("cudnn_convolution_backward", IMAGE, RESULT, [4, 3, 5, 5])
    first, second = works((BACKWARD, NONE), (OF_WEIGHT, 0), (larger, NONE), (OF_WEIGHT, 2))[1::2]
    assert (first.flops, second.flops) == (2 * PRODUCTS, 2 * PRODUCTS * 25 // 9)
    assert works((OF_WEIGHT, NONE), (larger, NONE), (OF_IMAGE, 1))[::2] == [UNKNOWN, UNKNOWN]
    newer, _ = works((FORWARD, NONE), (call("convolution_backward", RESULT, IMAGE, WEIGHT), NONE))
    assert newer.flops == 2 * PRODUCTS  # it tells the result of the forward call


@ask_each(
    "others",
    [
        [],
        # The same image and weights with two strides: either may be meant.
        [BACKWARD, call("cudnn_convolution_backward", IMAGE, [2, 4, 7, 7], WEIGHT)],
        # A result larger than the image may be that of a transposed convolution.
        [call("convolution_backward", [2, 4, 19, 19], IMAGE, WEIGHT)],
        [call("cudnn_convolution_backward", IMAGE, RESULT, [5, 3, 3, 3])],
        [call("cudnn_convolution_backward", IMAGE, [2, None, 4, 4], WEIGHT)],
    ],
)
def test_work_stays_unknown_where_the_third_tensor_is_not_certain(others):
    assert works((FORWARD, NONE), *((one, NONE) for one in others))[0] == UNKNOWN


def test_a_recorded_stride_counts_before_other_calls():
    known = FORWARD._replace(concrete=["", "", "", [1, 1], [0, 0], [1, 1], 1])
    assert works((known, NONE), (BACKWARD, NONE))[0].flops == 2 * 2 * 4 * 7 * 7 * 27
