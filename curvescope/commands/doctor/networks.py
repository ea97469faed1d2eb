"""The networks with their parameters, FLOPs and activations.

FLOPs count convolutions and matrix products, one FMA as two. Activations are the values that the
forward pass keeps for the backward pass, in fp32. All numbers are per sample and computed from the
structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...analysis.render import terminal
from ...analysis.render.tables import table
from ...base.numbers import number
from ...base.torch_runtime import import_torch
from ...profiling.workload import networks as known
from ...profiling.workload.networks.facts import Facts, facts


@dataclass(frozen=True, kw_only=True)
class ListedNetwork(Facts):
    """A network known by name; work is per sample."""

    name: str  # its name
    paper: str  # where it was published
    input_shape: Sequence[int]  # shape of a sample


@dataclass(frozen=True)
class NetworksDocument:
    """The networks known by name: `doctor --list networks`."""

    networks: Sequence[ListedNetwork]  # one per network


def list_networks(*, as_json: bool) -> None:
    """Print all networks."""
    import_torch()
    networks = [known.get_network(name) for name in known.names()]
    costs = [facts(network) for network in networks]
    if as_json:
        from ...analysis.render.documents import print_document

        listed_networks = [
            ListedNetwork(
                name=network.name,
                paper=network.paper,
                input_shape=network.input_shape,
                **vars(cost),
            )
            for network, cost in zip(networks, costs, strict=True)
        ]
        print_document(NetworksDocument(listed_networks))
        return

    listed = table(
        "network", "input", "parameters", "forward", "training", "kept", whole=("network",)
    )
    for network, cost in zip(networks, costs, strict=True):
        listed.add_row(
            network.name,
            "×".join(map(str, network.input_shape)),
            f"{cost.parameters:,}",
            number(cost.forward_flops / 1e9),
            number(cost.training_flops / 1e9),
            number(cost.activation_bytes / 1e6),
        )
    console = terminal.console()
    console.print(listed)
    console.print(
        "Forward and training in GFLOP, kept activations in MB (10⁶ bytes), all per sample and "
        "computed from the structure; nothing is measured.",
        style="dim",
    )
