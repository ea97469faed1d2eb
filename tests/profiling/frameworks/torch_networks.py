"""Networks of torch whose numbers those of other frameworks are compared with."""

import dataclasses

from curvescope.profiling.workload.networks import get_network


def without_dropout(made):
    """The description with dropouts that keep everything: frameworks draw different numbers."""
    rows = [
        dataclasses.replace(row, settings={"rate": 0.0}) if row.op == "dropout" else row
        for row in made.rows
    ]
    return dataclasses.replace(made, rows=tuple(rows))


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
