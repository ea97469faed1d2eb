from dataclasses import replace

import pandas as pd
import pytest
import torch

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.visit import record_step
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import from_factory, get_network, names
from curvescope.profiling.workload.networks.facts import facts

from ...tables import ask_each, grade

# Parameters: torchvision's published counts for alexnet, vgg, googlenet (without auxiliary
# classifiers), inception_v3 (likewise) and resnet; OverFeat: 145 million in table 3 of its paper;
# Inception-BN: 11,295,240 with biases on its 10,016 convolution outputs, which batch normalisation
# makes redundant; BERT: the authors' checkpoints. Multiply-adds of one forward pass, in 10⁹, as
# published: OverFeat table 3, ResNet table 1 (VGG-19 in its text), GoogLeNet section 5, and
# torchvision's tables for the others; BERT: 128 tokens over 85 million weights, and attention.
PUBLISHED = {
    "alexnet": (61_100_840, 0.71),
    "overfeat": (145_920_872, 2.81),
    "vgg_a": (132_863_336, 7.61),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.6),
    "googlenet": (6_998_552, 1.5),
    "inception_bn": (11_295_240 - 10_016, None),
    "inception_v3": (23_834_568, 5.71),
    "resnet50": (25_557_032, 3.8),
    "resnet50_v1.5": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.6),
    "resnet101_v1.5": (44_549_160, None),
    "resnet152": (60_192_808, 11.3),
    "resnet152_v1.5": (60_192_808, None),
    "bert_base": (110_106_428, None),
    "bert_base_encoder": (109_482_240, 11.17),
}


@pytest.mark.parametrize(
    "name",
    grade(names(), quick=("alexnet", "googlenet", "resnet50"), in_ci=names()),
)
def test_costs_are_the_published_ones(name):
    """The papers round to two digits, and GoogLeNet's to one and a half.

    A backward pass does the work twice.
    """
    found, (parameters, multiply_adds_e9) = facts(get_network(name)), PUBLISHED[name]
    assert found.parameters == parameters
    if multiply_adds_e9 is not None:
        assert found.forward_flops / 2e9 == pytest.approx(multiply_adds_e9, rel=0.06)
    assert 2.85 <= found.training_flops / found.forward_flops <= 3.0  # but for the first layer


def test_activations_of_alexnet_by_hand():
    """Inputs of every convolution, pool and product, ReLU outputs (in place: the same), dropout
    masks, pool indices.
    """
    # input, conv outputs after ReLU (pooled ones are inputs too), in elements of one sample
    floats = (
        3 * 224 * 224
        + 64 * 55**2
        + 64 * 27**2
        + 192 * 27**2
        + 192 * 13**2
        + 384 * 13**2
        + 2 * 256 * 13**2
    )
    floats += 256 * 6 * 6  # pool5
    floats += 2 * 9216 + 2 * 4096 + 4096 * 2 + 1000 + 1  # dropped, mask, fc6, fc7, log-softmax
    indices = 8 * (64 * 27**2 + 192 * 13**2 + 256 * 6 * 6)
    assert facts(get_network("alexnet")).activation_bytes == pytest.approx(
        4 * floats + indices, rel=0.02
    )


def with_small_input(network):
    """The network on an input of 16 words or 64 pixels a side; of 107 where the pools leave nothing
    of 64.

    The first product of some classifiers takes a fixed number of inputs. One that takes any number
    replaces it.
    """
    pixels = {"overfeat": 107, "inception_v3": 107}.get(network.name, 64)
    small = replace(network, input_shape=(16,) if network.reads_text else (3, pixels, pixels))
    if network.name not in ("alexnet", "overfeat", "vgg_a", "vgg16", "vgg19"):
        return small

    def build():
        with torch.device("meta"):
            model = network.build()
        outputs, model.fc6 = model.fc6.out_features, torch.nn.Identity()
        model.to_empty(device="cpu")
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        model.fc6 = torch.nn.LazyLinear(outputs)
        return model

    return replace(small, build=build)


# The same blocks as another network, or more of them; `facts` runs all of them without data.
DEEPER = (
    "vgg16",
    "vgg19",
    "resnet50_v1.5",
    "resnet101",
    "resnet101_v1.5",
    "resnet152",
    "resnet152_v1.5",
    "bert_base_encoder",
)


@pytest.mark.parametrize("name", grade(names(), quick=("alexnet",), in_ci=set(names()) - {*DEEPER}))
def test_every_network_trains_a_step_on_the_cpu_and_its_layers_add_up_to_it(name):
    """Small inputs: it is the wiring, the loss, the backward pass and the joins that are tried, at
    batch 1 and 2.
    """
    workload = Workload(with_small_input(get_network(name)))
    workload.load(1)
    _, duration_ns = workload.time_step()
    assert duration_ns > 0
    workload.load(2)
    rows = record_step(workload)
    gradients = [p.grad for p in workload.model.parameters()]
    assert all(g is not None and torch.isfinite(g.sum()) for g in gradients)

    ((start_ns, duration_ns),) = rows.windows
    kernels = pd.DataFrame(rows.kernels)
    kernels["end_ns"] = kernels["start_ns"] + kernels["duration_ns"]
    of_layers = kernels.groupby(["layer", "phase"], dropna=False)["duration_ns"].sum()
    # Rows share no instant, so the sums of the layers and idle make the step to the nanosecond.
    points = sorted([*((t, 1) for t in kernels["start_ns"]), *((t, -1) for t in kernels["end_ns"])])
    running, idle_ns, last = 0, 0, start_ns
    for at, change in points:
        assert running in (0, 1)
        idle_ns += 0 if running else at - last
        running, last = running + change, at
    idle_ns += start_ns + duration_ns - last
    assert idle_ns >= 0
    assert of_layers.sum() + idle_ns == duration_ns

    with_weights = {
        path
        for path, module in workload.model.named_modules()
        if list(module.parameters(recurse=False))
    }
    found = {phase: set(of_phase["layer"].dropna()) for phase, of_phase in kernels.groupby("phase")}
    assert with_weights <= found["forward"]
    assert with_weights <= found["backward"]


@ask_each(
    ("name", "paths"),
    [
        ("vgg_a", {"conv1_1", "conv3_1", "conv3_2", "conv5_2", "fc6", "fc8"}),
        ("googlenet", {"inception_4a", "inception_4a.5x5.5x5", "inception_5b.pool.proj"}),
        ("resnet50", {"res3b", "res3b.residual.res3b_branch2b", "res3a.shortcut.res3a_branch1"}),
        ("resnet101", {"res4b22", "res4a", "res5c"}),
        ("bert_base", {"encoder.layer.3.attention", "embeddings.word", "words.decoder"}),
    ],
)
def test_layers_have_the_names_of_the_paper(name, paths):
    with torch.device("meta"):
        layers = dict(get_network(name).build().named_modules())
    assert paths <= set(layers)


@ask_each(("name", "on_1x1", "on_3x3"), [("resnet50", 2, 1), ("resnet50_v1.5", 1, 2)])
def test_v1_and_v15_differ_in_the_place_of_the_stride(name, on_1x1, on_3x3):
    with torch.device("meta"):
        layers = dict(get_network(name).build().named_modules())
    assert layers["res3a.residual.res3a_branch2a"].stride == (on_1x1, on_1x1)
    assert layers["res3a.residual.res3a_branch2b"].stride == (on_3x3, on_3x3)


def test_bert_predicts_masked_words_only():
    network = get_network("bert_base")
    (tokens,), (words, following) = network.sample(8, "cpu", torch.Generator().manual_seed(0))
    assert tokens.shape == words.shape == (8, 128)
    assert following.shape == (8,)
    masked = words >= 0
    assert (words[masked] == tokens[masked]).all()
    assert 0.1 < masked.float().mean() < 0.2


def test_unknown_networks_name_what_comes_close():
    with pytest.raises(CurvescopeError, match="did you mean alexnet"):
        get_network("AlexNet1")


@ask_each("shape", [(), (0, 3), (3, -1)])
def test_bad_input_shapes_are_refused(shape):
    with pytest.raises(CurvescopeError, match="--input-shape"):
        from_factory("a:b", shape)


def test_loss_of_a_users_model_takes_whatever_it_returns():
    network = from_factory("torch.nn:Identity", (3,))
    two, three = torch.full((2, 2), 2.0), torch.full((4,), 3.0)
    assert network.loss(two, None).item() == 4.0
    assert (
        network.loss({"a": two, "b": [three, torch.ones(2, dtype=torch.long)]}, None).item() == 13.0
    )
    with pytest.raises(CurvescopeError, match="--mode forward"):
        network.loss(torch.ones(2, dtype=torch.long), None)
