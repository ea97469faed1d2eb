from pathlib import Path

import pytest

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.frameworks import FRAMEWORKS, WAIT_S, waiting_s
from curvescope.analysis.cost_model.networks import estimate_step, load_operations
from curvescope.analysis.cost_model.published import read_mxnet_operators
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.profiling.devices import get_device

PUBLISHED = Path(__file__).parents[3] / "benchmarks" / "published"
# ResNet-50: 53 convolutions without bias, 53 batch normalisations, 49 ReLUs, 16 sums, a pool, a mean, a product with
# bias, and the loss; 53 + 2 * 53 + 2 parameter tensors.
OPERATORS, WITH_PARAMETERS, TENSORS = 175, 107, 161


def test_a_wait_is_what_small_operators_take_beyond_their_kernel():
    table = read_mxnet_operators(PUBLISHED)
    median_s = table[table.elements == 10_000].forward_ms.median() * 1e-3
    machine = machine_for(get_device("v100"))
    assert median_s - machine.start_s == pytest.approx(WAIT_S, abs=1.5e-6)


def test_a_framework_that_waits_for_every_operator_idles_for_each():
    resnet = load_operations("resnet50")
    # Seven operators update a tensor, and two threads share all that is not a chain.
    assert waiting_s(resnet, FRAMEWORKS["mxnet0.9"], "training") == pytest.approx(
        WAIT_S * (2 * OPERATORS + 7 * TENSORS) / 2
    )
    assert waiting_s(resnet, FRAMEWORKS["mxnet0.9"], "forward+backward") == pytest.approx(WAIT_S * 2 * OPERATORS)
    assert waiting_s(resnet, FRAMEWORKS["mxnet"], "forward+backward") == pytest.approx(WAIT_S * 2 * WITH_PARAMETERS)


@pytest.mark.parametrize(("framework", "kind"), [("torch", "training"), ("mxnet0.9", "forward")])
def test_nothing_is_waited_for_in_an_eager_step_or_in_inference(framework, kind):
    assert waiting_s(load_operations("resnet50"), FRAMEWORKS[framework], kind) == 0


def test_a_step_takes_its_kernels_and_its_waits():
    step = estimate_step(
        load_operations("resnet50"), [8], machine_for(get_device("p100")), get_library("cudnn5.1"),
        framework=FRAMEWORKS["mxnet0.9"],
    )  # fmt: skip
    assert step.waiting_s > 0.01
    assert step.time_s[0] == pytest.approx(step.device_s[0] + step.waiting_s)


def test_an_update_moves_its_passes_over_the_parameters():
    machine = machine_for(get_device("p100"))
    alexnet = load_operations("alexnet")

    def update_s(framework):
        step = estimate_step(alexnet, [1], machine, get_library("cudnn6"), framework=FRAMEWORKS[framework])
        return step.terms[-1].time_s[0]

    bandwidth = machine.device.memory_bytes_per_s * machine.constants["stream"]
    more_bytes = (FRAMEWORKS["mxnet0.9"].update_passes - 5) * 4 * alexnet["parameters"]
    assert update_s("mxnet0.9") - update_s("torch") == pytest.approx(more_bytes / bandwidth)
