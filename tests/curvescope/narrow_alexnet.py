"""AlexNet for tests that ask whether commands run, not how long a step takes."""

from dataclasses import replace

import torch

from curvescope.profiling.workload.networks import plain

ALEXNET = plain.NETWORKS["alexnet"]


def build():
    """AlexNet with 64 outputs of its two wide layers: matrices of 4 MB in all instead of 230."""
    with torch.device("meta"):
        model = ALEXNET.build()
        model.fc6, model.fc7, model.fc8 = (
            torch.nn.Linear(*size) for size in ((9216, 64), (64, 64), (64, 1000))
        )
    if torch.get_default_device().type == "meta":
        return model
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def narrow(monkeypatch):
    """Make `alexnet` the narrow one in this process."""
    monkeypatch.setitem(plain.NETWORKS, "alexnet", replace(ALEXNET, build=build))
