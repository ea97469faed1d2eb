from __future__ import annotations

import pytest
import torch

from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.networks import from_factory, get_network, names

# AlexNet: torchvision's single tower; VGG: table 2 of arXiv:1409.1556 rounds to 133, 138 and 144 million.
PARAMETERS = {"alexnet": 61_100_840, "vgg_a": 132_863_336, "vgg16": 138_357_544, "vgg19": 143_667_240}


@pytest.mark.parametrize("name", names())
def test_parameter_counts_are_the_published_ones(name):
    with torch.device("meta"):
        model = get_network(name).build()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", names())
def test_a_sample_goes_through(name):
    network = get_network(name)
    with torch.device("meta"):
        output = network.build()(torch.empty(2, *network.input_shape))
    assert output.shape == (2, network.classes)


def test_layers_have_the_names_of_the_paper():
    with torch.device("meta"):
        layers = dict(get_network("vgg_a").build().named_modules())
    assert {"conv1_1", "conv3_1", "conv3_2", "conv5_2", "fc6", "fc8"} <= set(layers)
    assert layers["conv3_1"].weight.shape == (256, 128, 3, 3)


def test_unknown_networks_name_what_comes_close():
    with pytest.raises(CurvescopeError, match="did you mean alexnet"):
        get_network("AlexNet1")


@pytest.mark.parametrize("shape", [(), (0, 3), (3, -1)])
def test_bad_input_shapes_are_refused(shape):
    with pytest.raises(CurvescopeError, match="--input-shape"):
        from_factory("a:b", shape)


def test_loss_of_a_users_model_takes_whatever_it_returns(tmp_path, monkeypatch):
    network = from_factory("torch.nn:Identity", (3,))
    two, three = torch.full((2, 2), 2.0), torch.full((4,), 3.0)
    assert network.loss(two, None).item() == 4.0
    assert network.loss({"a": two, "b": [three, torch.ones(2, dtype=torch.long)]}, None).item() == 13.0
    with pytest.raises(CurvescopeError, match="--phase forward"):
        network.loss(torch.ones(2, dtype=torch.long), None)
