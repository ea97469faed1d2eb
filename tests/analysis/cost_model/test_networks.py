import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.constants import load_fitted
from curvescope.analysis.cost_model.frameworks import FRAMEWORKS
from curvescope.analysis.cost_model.networks import estimate_step, load_operations
from curvescope.analysis.cost_model.recording import machine_for
from curvescope.analysis.cost_model.streaming import ELEMENTWISE
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.devices import get_device

from ...tables import ask_each

PUBLISHED = Path(__file__).parents[3] / "benchmarks" / "published"
GTX1080 = get_device("gtx1080")
LIBRARY = get_library("cudnn5.1")


def step(network, batches, device=GTX1080, **kwargs):
    return estimate_step(load_operations(network), batches, machine_for(device), LIBRARY, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        "alexnet",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("googlenet", "bert_base")),
    ],
)
def test_the_committed_table_is_what_the_network_does_today(network):
    pytest.importorskip("torch")
    from curvescope.profiling.workload.networks import get_network
    from curvescope.profiling.workload.networks.operations import operations

    assert json.loads(json.dumps(operations(get_network(network)))) == load_operations(network)


def test_an_unknown_network_is_refused_by_name():
    with pytest.raises(CurvescopeError, match=r"'lenet'.*vgg_a"):
        load_operations("lenet")


@pytest.mark.slow
def test_the_flops_of_a_step_are_the_networks_own():
    pytest.importorskip("torch")
    from curvescope.profiling.workload.networks import get_network
    from curvescope.profiling.workload.networks.facts import facts

    terms = step("vgg_a", [4]).terms
    forward, training = (
        sum(t.flops[0] for t in terms if t.flops is not None and t.phase in phases) / 4
        for phases in (("forward",), ("forward", "backward"))
    )
    known = facts(get_network("vgg_a"))
    assert forward == pytest.approx(known.forward_flops)
    assert training == pytest.approx(known.training_flops)


def test_the_first_convolution_has_no_data_gradient():
    kernels = [
        (t.layer, t.kernel[0]) for t in step("vgg_a", [4]).terms if t.kind == "backward_data"
    ]
    assert "conv1_1" not in dict(kernels)
    assert "conv2_1" in dict(kernels)


def test_a_convolution_behind_parameters_has_a_data_gradient():
    vgg = load_operations("vgg_a")
    images = vgg["operations"][0]["inputs"][0]
    normalise = {
        "layer": "images",
        "op": "native_batch_norm",
        "inputs": [images],
        "outputs": [images],
    }
    modelled = estimate_step(
        {**vgg, "operations": [normalise, *vgg["operations"]]}, [4], machine_for(GTX1080), LIBRARY
    )
    assert "conv1_1" in {t.layer for t in modelled.terms if t.kind == "backward_data"}


def test_torch7_computes_the_gradient_of_the_images():
    rules = FRAMEWORKS["torch7"]
    with_images, without = (
        step("vgg_a", [16], kind="forward+backward", framework=framework)
        for framework in (rules, replace(rules, image_gradient=False))
    )
    (first,) = (t for t in with_images.terms if (t.layer, t.kind) == ("conv1_1", "backward_data"))
    assert with_images.device_s[0] == pytest.approx(without.device_s[0] + first.time_s[0])
    # Three channels leave most of an output tile empty: more than their FLOPs at the peak.
    assert first.time_s[0] > 2 * first.flops[0] / GTX1080.peak_flops_per_s()


def test_a_normalisation_reads_its_input_once_in_inference_only():
    def times(framework):
        terms = step("resnet50", [16], kind="forward", framework=FRAMEWORKS[framework]).terms
        return [(t.bytes_compulsory[0], t.time_s[0]) for t in terms if t.op == "native_batch_norm"]

    for (inferred, inferred_s), (trained, trained_s) in zip(
        times("mxnet"), times("torch7"), strict=True
    ):
        assert inferred == pytest.approx(2 / 3 * trained)
        assert inferred_s < trained_s


def test_a_relu_takes_as_long_as_cudnn_scope_measured():
    # cudnn_scope (cuDNN 7.6): ReLUs of 4 to 300 MB in benchmarks/published/cudnn_other_layers.csv.
    table = pd.read_csv(PUBLISHED / "cudnn_other_layers.csv")
    relus = table[table.layer == "CUDNN_ACTIVATION_FWD"]
    moved = 2 * 4 * relus.n * relus.c * relus.h * relus.w
    cards = {"K80": "k80", "M60": "m60", "V100": "v100", "TITAN_V": "titan_v",
             "RTX_6000": "quadro_rtx6000"}  # fmt: skip
    errors = {}
    for card, key in cards.items():
        rows = relus.card.str.contains(card) & moved.between(8e6, 600e6)
        device = get_device(key)
        launch = machine_for(device).stream("relu", moved[rows].to_numpy(), ELEMENTWISE)
        error = np.median(np.log(launch.time_s * 1e3 / relus.time_ms[rows]))
        errors.setdefault(device.architecture, []).append(error)
    by_architecture = [np.mean(logs) for logs in errors.values()]
    assert np.mean(by_architecture) == pytest.approx(0, abs=0.02)
    # No one share fits all architectures: the spread of the model's error holds the difference.
    spread = load_fitted().spreads["streaming"].gpu
    assert np.std(by_architecture, ddof=1) == pytest.approx(spread, abs=0.02)


# One for each of ResNet-50's 16 shortcuts, three for each of GoogLeNet's nine modules of four
# branches.
@ask_each(("network", "sums"), [("resnet50", 16), ("googlenet", 27), ("vgg_a", 0)])
def test_gradients_are_summed_where_branches_part(network, sums):
    terms = step(network, [4]).terms
    assert [t.kernel[0] for t in terms].count("sum_gradients") == sums
    assert "sum_gradients" not in {t.kernel[0] for t in step(network, [4], kind="forward").terms}


def test_the_gradients_of_branches_take_as_long_as_caffe_sums_them():
    # convnet-benchmarks: the `split` layers of GoogLeNet on Titan X (Maxwell), 128 images, all that
    # only sum gradients.
    table = pd.read_csv(PUBLISHED / "titanx_maxwell_caffe_per_layer.csv")
    table = table[(table.network == "googlenet") & (table["pass"] == "backward")]
    published_ms = table[table.layer.str.endswith("_split")].time_ms.sum()
    terms = step("googlenet", [128], get_device("titanx_maxwell"), kind="forward+backward").terms
    modelled_ms = sum(t.time_s[0] * 1e3 for t in terms if t.kernel[0] == "sum_gradients")
    assert modelled_ms == pytest.approx(published_ms, rel=0.05)


def test_the_operators_are_in_the_order_of_the_step():
    phases = [t.phase for t in step("alexnet", [4]).terms]
    assert phases == sorted(phases, key=("forward", "backward", "optimizer").index)
    layers = [t.layer for t in step("vgg_a", [4]).terms if t.kind == "backward_weights"]
    assert layers == sorted(layers, reverse=True)


def test_memory_pressure_takes_the_workspace_then_the_step():
    batches = [64, 128, 192]
    tight = step("vgg_a", batches)
    roomy = step("vgg_a", batches, memory_bytes=64e9)
    assert tight.fits.tolist() == [True, True, False]
    assert roomy.fits.all()
    assert tight.device_s[0] == roomy.device_s[0]
    assert tight.device_s[1] > roomy.device_s[1]
    assert max(t.workspace_bytes[1] for t in tight.terms) < max(
        t.workspace_bytes[1] for t in roomy.terms
    )


def test_the_memory_of_a_step_holds_its_weights_and_what_the_backward_pass_needs():
    operations = load_operations("vgg_a")
    modelled = step("vgg_a", [64])
    least = 3 * 4 * operations["parameters"] + 64 * operations["activation_bytes"]
    assert least <= modelled.memory_bytes[0] < 1.5 * least
    forward = step("vgg_a", [64], kind="forward")
    assert forward.memory_bytes[0] < least / 2


def test_twice_the_sms_and_the_bandwidth_nearly_halve_a_large_step():
    machine = machine_for(GTX1080)
    double = machine_for(GTX1080.with_facts({"sm_count": 40, "memory_bytes_per_s": 640.6e9}))
    one, other = (
        estimate_step(load_operations("resnet50"), [32], m, LIBRARY).device_s[0]
        for m in (machine, double)
    )
    assert 1.6 < one / other < 2.0
    with pytest.raises(CurvescopeError, match="no fact 'cores'"):
        GTX1080.with_facts({"cores": 1})


def test_a_small_batch_is_limited_by_the_host():
    modelled = step("resnet152", [1, 64], get_device("h200"))
    assert modelled.device_s[0] < modelled.host_s < modelled.device_s[1]
    assert modelled.time_s.tolist() == [modelled.host_s, modelled.device_s[1]]


@pytest.mark.parametrize(
    "make",
    [lambda nn: nn.Conv2d(4, 8, 3, dilation=2), lambda nn: nn.ConvTranspose2d(4, 8, 3)],
    ids=["dilated", "transposed"],
)
def test_a_convolution_that_the_model_does_not_know_is_refused(make):
    torch = pytest.importorskip("torch")
    from curvescope.profiling.workload.networks import Network
    from curvescope.profiling.workload.networks.operations import operations

    network = Network(
        "own", "user's own", (4, 16, 16), lambda: torch.nn.Sequential(make(torch.nn)), classes=None
    )
    with pytest.raises(CurvescopeError, match="only plain 2-d convolutions; 0 is"):
        estimate_step(operations(network), [4], machine_for(GTX1080), LIBRARY)


def separable():
    """A 3x3 kernel for each of 64 channels, then one of 4 groups; as a table of operators, linear
    in the batch.
    """

    def row(layer, k, group_c, groups):
        image = [[1, 0], [0, 64], [0, 28], [0, 28]]
        weight = [[0, k], [0, group_c], [0, 3], [0, 3]]
        shapes = {"inputs": [image, weight], "outputs": [image]}
        settings = {"stride": [1, 1], "padding": [1, 1], "groups": groups}
        return {"layer": layer, "op": "convolution", **shapes, "settings": settings}

    rows = [row("depthwise", 64, 1, 64), row("grouped", 64, 16, 4)]
    common = {
        "parameters": 64 * 9 + 64 * 16 * 9,
        "parameter_tensors": 2,
        "activation_bytes": 2 * 200704,
    }
    return {**common, "input_bytes": 200704, "operations": rows}


def test_grouped_and_depthwise_convolutions_are_modelled_from_volta_on():
    modelled = estimate_step(
        separable(), [4, 8], machine_for(get_device("v100")), get_library("cudnn8")
    )
    kernels = [(term.layer, term.kernel[0]) for term in modelled.terms if term.op == "convolution"]
    assert kernels[0] == ("depthwise", "forward_DEPTHWISE")
    assert kernels[1] in [
        ("grouped", f"forward_IMPLICIT_{name}") for name in ("GEMM", "PRECOMP_GEMM")
    ]
    assert {("grouped", "backward_data_ALGO_1"), ("depthwise", "backward_weights_DEPTHWISE")} < set(
        kernels
    )
    assert modelled.terms[0].flops.tolist() == [2 * n * 64 * 9 * 28 * 28 for n in (4, 8)]
    assert modelled.terms[0].bytes_compulsory.tolist() == [
        4 * (2 * n * 64 * 28 * 28 + 64 * 9) for n in (4, 8)
    ]


@ask_each(("device", "precision"), [("gtx1080", "fp32"), ("v100", "fp16")])
def test_groups_are_refused_where_their_kernels_are_not_known(device, precision):
    with pytest.raises(CurvescopeError, match="only in fp32 and from Volta on"):
        estimate_step(
            separable(), [4], machine_for(get_device(device)), LIBRARY, precision=precision
        )


def test_a_network_of_the_users_is_modelled():
    torch = pytest.importorskip("torch")
    from curvescope.profiling.workload.networks import Network
    from curvescope.profiling.workload.networks.operations import operations

    def build():
        nn = torch.nn
        return nn.Sequential(
            nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)
        )

    network = Network("own", "user's own", (4, 16, 16), build, classes=None)
    modelled = estimate_step(operations(network), [4, 8], machine_for(GTX1080), LIBRARY)
    assert [t.layer for t in modelled.terms if t.flops is not None and t.phase == "forward"] == [
        "0",
        "3",
    ]


def test_a_curve_over_128_batch_sizes_takes_about_a_second_at_most():
    # A bound far above what it takes: it catches a loop over batch sizes, not a slow machine.
    step("vgg_a", [1])
    began = time.process_time()
    step("vgg_a", list(range(1, 129)))
    assert time.process_time() - began < 5


def test_a_max_pool_forward_is_slower_than_a_stream_on_old_cards():
    # cudnn_scope: 1.8 times as long as a ReLU of as many bytes on K80.
    (pool,) = (
        t
        for t in step("alexnet", [32], get_device("k40")).terms
        if t.layer == "pool1" and t.phase == "forward"
    )
    machine = machine_for(get_device("k40"))
    relu_s = machine.stream("relu", pool.bytes_compulsory, ELEMENTWISE).time_s
    assert pool.time_s == pytest.approx(1.8 * relu_s)


def test_linear_layers_are_refused_where_their_kernels_are_not_known():
    def model(device, library):
        return estimate_step(
            load_operations("alexnet"),
            [8],
            machine_for(get_device(device)),
            get_library(library),
            "forward",
        )

    with pytest.raises(CurvescopeError, match="does not know linear layers with cuDNN 8"):
        model("gtx1080", "cudnn8")
    assert model("v100", "cudnn8").time_s > 0
