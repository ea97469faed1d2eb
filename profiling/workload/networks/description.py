"""Networks as data: the rows of a network's forward pass, from which builders make it in any
framework.

`benchmarks/network_descriptions.py` derives them from the torch networks and writes
`described_networks.json.gz`, so a builder needs no torch. A row is an operator of the list
`OPERATORS` with its settings, the numbers of the rows whose outputs it takes (-1 is the network's
input), and the path of its layer, empty for what the network itself computes between its layers.
Shapes are of one sample, in torch's order: channels, height, width. A network of text takes any
number of tokens, so its rows have none.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ....base.errors import CurvescopeError
from . import get_network

FILE = "described_networks.json.gz"
# Operators and their settings. `before_flat` of a linear layer is the shape that was flattened
# before it; one that shares its weights has the path of them instead, `weight_of`.
OPERATORS = {
    "convolution": ("channels", "width", "size", "stride", "padding", "bias"),
    "linear": ("channels", "width", "bias", "before_flat"),
    "batch_norm": ("width", "epsilon", "momentum"),
    "relu": (),
    "max_pool": ("size", "stride", "padding", "rounds_up"),
    "average_pool": ("size", "stride", "padding"),
    "mean": (),
    "local_norm": ("size", "alpha", "beta", "k"),
    "dropout": ("rate",),
    "flatten": (),
    "concatenate": (),
    "add": (),
    # Of text. Numbers of the tokens, as many zeros, and the rows of a table for such numbers:
    "positions": (),
    "zeros": (),
    "embedding": ("count", "width"),
    "layer_norm": ("width", "epsilon"),
    "gelu": (),  # exact, by the error function
    "tanh": (),
    "split_last": ("parts",),  # of the last axis: (…, parts, size / parts)
    "swap": ("axes",),
    "join_last": (),  # the last two axes become one
    "attention": ("rate",),  # of queries, keys and values, by the scaled dot product, with dropout
    "take_first": (),  # of each sample
}
NORMALISATIONS = ("batch_norm", "layer_norm")


@dataclass(frozen=True)
class Row:
    """One operator of a forward pass."""

    op: str
    layer: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]  # of its output, of one sample; empty in a network of text
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its parameters by name, as torch stores them."""
        of = self.settings
        if self.op in NORMALISATIONS:
            return {"weight": (of["width"],), "bias": (of["width"],)}
        if self.op == "embedding":
            return {"weight": (of["count"], of["width"])}
        if self.op not in ("convolution", "linear"):
            return {}
        shapes: dict[str, tuple[int, ...]] = {}
        if "weight_of" not in of:
            size = of["size"] if self.op == "convolution" else ()
            shapes["weight"] = (of["width"], of["channels"], *size)
        if of["bias"]:
            shapes["bias"] = (of["width"],)
        return shapes


@dataclass(frozen=True)
class Description:
    """A network as data."""

    name: str
    input_shape: tuple[int, ...]
    classes: int | None  # None for text
    rows: tuple[Row, ...]
    outputs: tuple[int, ...]  # rows whose outputs are the network's
    # Of text: numbers of tokens are below `vocabulary`. Masked words and next sentences are
    # predicted, or the loss is the mean square of each output.
    vocabulary: int | None = None
    predicts_words: bool = False

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all parameters by layer and name, in torch's order."""
        shapes = {}
        for row in self.rows:
            for name, shape in row.parameters.items():
                shapes[f"{row.layer}.{name}"] = shape
        return shapes


def read_description(name: str, sequence_length: int | None = None) -> Description:
    """The description of a named network, maybe with other tokens per sample than published.

    Raises:
        CurvescopeError: it is no named network, or takes no such text.
    """
    networks = _read_stored()
    if ":" in name:
        raise CurvescopeError(
            f"{name} is a module of PyTorch. Other frameworks build {', '.join(networks)}; --step "
            "measures a step of your own in any of them."
        )
    input_shape = get_network(name, sequence_length).input_shape
    stored = networks[name]
    rows = []
    for op, layer, inputs, shape, settings in stored["rows"]:
        rows.append(Row(op, layer, tuple(inputs), tuple(shape), settings))
    outputs = tuple(stored["outputs"])
    return Description(name, input_shape, stored["classes"], tuple(rows), outputs, **stored["text"])


@cache
def _read_stored() -> dict[str, Any]:
    packed = files(__package__).joinpath(FILE).read_bytes()
    networks: dict[str, Any] = json.loads(gzip.decompress(packed))
    return networks
