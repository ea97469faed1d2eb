"""Networks of torch whose numbers those of other frameworks are compared with."""

import dataclasses
from functools import partial

import numpy as np

from curvescope.profiling.workload.networks import get_network
from curvescope.profiling.workload.networks.bert import Bert, Size, build

SMALL = Size(width=16, layers=1, heads=4, inner=32, vocabulary=50, positions=8)


def without_dropout(made):
    """The description with dropouts that keep everything: frameworks draw different numbers."""
    rows = [
        dataclasses.replace(row, settings={"rate": 0.0}) if "rate" in row.settings else row
        for row in made.rows
    ]
    return dataclasses.replace(made, rows=tuple(rows))


def weights_of(description, of_torch):
    """Parameters as NumPy arrays, by layer and name, from torch's by name; so are gradients."""
    made = {}
    for row in description.rows:
        for name in row.parameters:
            array = np.asarray(of_torch[f"{row.layer}.{name}"])
            if row.op == "convolution" and array.ndim == 4:
                array = array.transpose(2, 3, 1, 0)
            elif row.op == "linear" and array.ndim == 2:
                flat = row.settings["before_flat"]
                if len(flat) == 3:  # flattened channels last
                    images = array.reshape(-1, *flat).transpose(0, 2, 3, 1)
                    array = images.reshape(len(array), -1)
                array = array.T
            made[f"{row.layer}.{name}"] = np.ascontiguousarray(array)
    return made


def of_torch(name, *, doubles=False):
    """Images, targets, a torch network without dropout, its logits in evaluation."""
    import torch

    torch.manual_seed(0)
    kind = torch.float64 if doubles else torch.float32
    network = get_network(name)
    model = network.build().to(kind)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    images = torch.randn(2, *network.input_shape, dtype=kind)
    return network, model, images, torch.tensor([3, 5])


def small_bert(*, heads):
    """BERT with one layer, and texts of six tokens."""
    return Bert("small", "", (6,), partial(build, heads, SMALL), None, heads, SMALL)


def of_small_bert(*, heads, doubles=False):
    """The network, a torch module that keeps all dropouts, tokens, and targets or none."""
    import torch

    torch.manual_seed(0)
    network = small_bert(heads=heads)
    model = network.build().to(torch.float64 if doubles else torch.float32).eval()
    (tokens,), targets = network.sample(3, "cpu", torch.Generator().manual_seed(0))
    return network, model, tokens, targets or ()


def difference(found, expected):
    """The largest, as a share of the largest number."""
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def largest_difference(found, expected):
    """The largest of gradients by path, each as a share of its largest number.

    A gradient that is zero but for rounding, as that of a bias of keys, which changes no attention,
    is held against a millionth of the largest of all.
    """
    assert found.keys() == expected.keys()
    floor = 1e-6 * max(np.abs(gradient).max() for gradient in expected.values())
    return float(
        max(
            np.abs(np.asarray(found[path]) - gradient).max() / max(np.abs(gradient).max(), floor)
            for path, gradient in expected.items()
        )
    )
