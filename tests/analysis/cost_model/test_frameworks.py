from dataclasses import replace

import numpy as np
import pytest

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.frameworks import (
    ENGINE_S,
    FRAMEWORKS,
    HOST_LAUNCH_S,
    PCIE_BYTES_PER_S,
    WAIT_S,
    copying_s,
    waiting_s,
)
from curvescope.analysis.cost_model.networks import estimate_step, load_operations
from curvescope.analysis.cost_model.recording import _tables, machine_for
from curvescope.profiling.hardware.devices import get_device

from ...tables import ask_each

# ResNet-50: 53 convolutions without bias, 53 batch normalisations, 49 ReLUs, 16 sums, a pool, a
# mean, a product with bias, and the loss; 53 + 2 * 53 + 2 parameter tensors.
OPERATORS, WITH_PARAMETERS, TENSORS = 175, 107, 161
CHAINED_S = WAIT_S + ENGINE_S  # of an operator that the next one needs


def test_a_framework_that_waits_for_every_operator_idles_for_each():
    resnet = load_operations("resnet50")
    # Seven operators update a tensor, and two threads share all that is not a chain.
    assert waiting_s(resnet, FRAMEWORKS["mxnet0.9"], "training", {}) == pytest.approx(
        (CHAINED_S * 2 * OPERATORS + WAIT_S * 7 * TENSORS) / 2
    )
    assert waiting_s(resnet, FRAMEWORKS["mxnet0.9"], "forward+backward", {}) == pytest.approx(
        CHAINED_S * 2 * OPERATORS
    )


def test_what_lies_between_two_gradients_of_parameters_is_waited_for_once():
    # Backward: the product and the 106 operators of the trunk alone, and between them what comes
    # before each in the table: the mean, the sums with their ReLUs, the ReLUs between, the pool
    # with the first ReLU; the loss comes first.
    runs = 1 + 16 + 32 + 1
    assert waiting_s(
        load_operations("resnet50"), FRAMEWORKS["mxnet"], "forward+backward", {}
    ) == pytest.approx(CHAINED_S * (WITH_PARAMETERS + WITH_PARAMETERS + runs))


def test_what_is_waited_for_hides_its_launches_behind_its_own_kernels_only():
    two = {
        "operations": [{"op": "convolution", "inputs": [[], [], []]}, {"op": "relu_", "inputs": []}]
    }
    apart = {("forward", 0): (2, np.array([0.0, 1.0])), ("forward", 1): (1, np.array([0.0, 1.0]))}
    # Forward both are one segment of three launches; backward each is its own.
    assert waiting_s(two, FRAMEWORKS["mxnet"], "forward+backward", apart) == pytest.approx(
        [3 * CHAINED_S + 2 * HOST_LAUNCH_S, 3 * CHAINED_S]
    )
    assert waiting_s(two, FRAMEWORKS["mxnet0.9"], "forward+backward", apart) == pytest.approx(
        [4 * CHAINED_S + HOST_LAUNCH_S, 4 * CHAINED_S]
    )


def test_images_come_over_pcie_before_a_training_step_of_mxnet():
    resnet, sizes = load_operations("resnet50"), np.array([1.0, 8.0])
    bytes_per_image = 4 * 3 * 224 * 224
    assert copying_s(resnet, FRAMEWORKS["mxnet"], "training", sizes) == pytest.approx(
        sizes * bytes_per_image / PCIE_BYTES_PER_S
    )
    assert copying_s(resnet, FRAMEWORKS["mxnet"], "forward", sizes) == 0.0
    assert copying_s(resnet, FRAMEWORKS["torch"], "training", sizes) == 0.0


@ask_each(("framework", "kind"), [("torch", "training"), ("mxnet0.9", "forward")])
def test_nothing_is_waited_for_in_an_eager_step_or_in_inference(framework, kind):
    assert waiting_s(load_operations("resnet50"), FRAMEWORKS[framework], kind, {}) == 0


def test_a_step_takes_its_kernels_and_its_waits():
    step = estimate_step(
        load_operations("resnet50"), [8], machine_for(get_device("p100")), get_library("cudnn5.1"),
        framework=FRAMEWORKS["mxnet0.9"],
    )  # fmt: skip
    assert step.waiting_s[0] > 0.01
    # The update runs beside the passes, and is the last term.
    assert step.beside_s == pytest.approx(step.terms[-1].time_s)
    assert step.time_s == pytest.approx(step.device_s - step.beside_s + step.waiting_s)


def test_an_update_hides_behind_convolutions_only():
    def step_s(batch, passes):
        rules = replace(FRAMEWORKS["mxnet0.9"], update_passes=passes, update_operators=0)
        step = estimate_step(load_operations("alexnet"), [batch], machine_for(get_device("p100")),
                             get_library("cudnn6"), framework=rules)  # fmt: skip
        return step.time_s[0], step.beside_s[0]

    (hidden_s, _), (same_s, _) = step_s(256, 5), step_s(256, 19)
    assert hidden_s == same_s
    # A step of one image has few convolutions: the longer update shows, beyond what they hide.
    (short_s, short_update_s), (long_s, long_update_s) = step_s(1, 19), step_s(1, 38)
    assert long_s - short_s == pytest.approx(long_update_s - short_update_s)


def test_the_kernels_of_an_update_that_runs_beside_lie_in_their_step():
    step = estimate_step(
        load_operations("alexnet"), [1, 64], machine_for(get_device("p100")), get_library("cudnn6"),
        framework=FRAMEWORKS["mxnet0.9"],
    )  # fmt: skip
    kernels, steps = _tables(step, "training")
    ends = dict(zip(steps["step"], np.add(steps["start_ns"], steps["duration_ns"]), strict=True))
    rows = list(
        zip(
            *(kernels[name] for name in ("step", "phase", "stream", "start_ns", "duration_ns")),
            strict=True,
        )
    )
    assert all(start + duration <= ends[number] + 1 for number, _, _, start, duration in rows)
    assert {stream for _, phase, stream, *_ in rows if phase == "optimizer"} == {1}
    assert {stream for _, phase, stream, *_ in rows if phase != "optimizer"} == {0}


def test_an_update_moves_its_passes_over_the_parameters():
    machine = machine_for(get_device("p100"))
    alexnet = load_operations("alexnet")

    def update_s(framework):
        step = estimate_step(
            alexnet, [1], machine, get_library("cudnn6"), framework=FRAMEWORKS[framework]
        )
        return step.terms[-1].time_s[0]

    bandwidth = machine.device.memory_bytes_per_s * machine.constants["stream"]
    more_bytes = (FRAMEWORKS["mxnet0.9"].update_passes - 5) * 4 * alexnet["parameters"]
    assert update_s("mxnet0.9") - update_s("torch") == pytest.approx(more_bytes / bandwidth)
