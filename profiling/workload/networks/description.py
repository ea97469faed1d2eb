"""Networks as data: the rows of a network's forward pass, from which builders make it in any
framework.

`describe` derives them from the torch network by torch.fx; `described_networks.json.gz` holds those
of the named networks, so a builder needs no torch. A row is an operator of the list `OPERATORS`
with its settings, the numbers of the rows whose outputs it takes (-1 is the network's input), and
the path of its layer. Shapes are those of one sample, in torch's order: channels, height, width.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ....base.errors import CurvescopeError
from . import Network, get_network, names

FILE = "described_networks.json.gz"
# Operators and their settings. `before_flat` of a linear layer is the shape that was flattened
# before it.
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
}


@dataclass(frozen=True)
class Row:
    """One operator of a forward pass."""

    op: str
    layer: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]  # of its output, of one sample
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its parameters by name, as torch stores them."""
        of = self.settings
        if self.op == "batch_norm":
            return {"weight": (of["width"],), "bias": (of["width"],)}
        if self.op not in ("convolution", "linear"):
            return {}
        size = tuple(of["size"]) if self.op == "convolution" else ()
        bias = {"bias": (of["width"],)} if of["bias"] else {}
        return {"weight": (of["width"], of["channels"], *size), **bias}


@dataclass(frozen=True)
class Description:
    """A network as data."""

    name: str
    input_shape: tuple[int, ...]
    classes: int
    rows: tuple[Row, ...]

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all parameters by layer and name, in torch's order."""
        return {
            f"{row.layer}.{name}": shape
            for row in self.rows
            for name, shape in row.parameters.items()
        }

    @property
    def parameter_count(self) -> int:
        """Number of all parameters."""
        return sum(math.prod(shape) for shape in self.parameters.values())


def described(name: str) -> Description:
    """The description of a named network.

    Raises:
        CurvescopeError: it is no named network, or none of convolutions.
    """
    get_network(name)
    stored = _stored().get(name)
    if stored is None:
        raise CurvescopeError(
            f"{name} can be built in PyTorch only. Other frameworks build {', '.join(_stored())}."
        )
    rows = tuple(
        Row(op, layer, tuple(at), tuple(shape), of) for op, layer, at, shape, of in stored["rows"]
    )
    return Description(name, tuple(stored["input_shape"]), stored["classes"], rows)


@cache
def _stored() -> dict[str, Any]:
    networks: dict[str, Any] = json.loads(
        gzip.decompress(files(__package__).joinpath(FILE).read_bytes())
    )
    return networks


def describe(network: Network) -> Description:
    """Derive the description of a torch network; refuses an operator that is not in `OPERATORS`."""
    import torch
    from torch import fx
    from torch.fx.passes.shape_prop import ShapeProp

    with torch.device("meta"):
        model = network.build().eval()
        traced = fx.symbolic_trace(model)
        ShapeProp(traced).propagate(torch.empty(1, *network.input_shape))
    rows: list[Row] = []
    row_of: dict[fx.Node, int] = {}
    flattened: dict[int, tuple[int, ...]] = {}  # shape before a flatten, by the row after it
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            row_of[node] = -1
        if node.op not in ("call_module", "call_function"):
            continue
        inputs = tuple(row_of[source] for source in node.all_input_nodes)
        if node.op == "call_module":
            layer, module = str(node.target), traced.get_submodule(node.target)
            op, settings = _of_module(network, module)
        else:
            layer = next(reversed(node.meta["nn_module_stack"]), "")
            op, settings = _of_function(network, node.target), {}
        shape = tuple(node.meta["tensor_meta"].shape[1:])
        before = rows[inputs[0]].shape if inputs[0] >= 0 else network.input_shape
        number = len(rows)
        if op == "flatten":
            flattened[number] = before
        elif inputs[0] in flattened and op in ("relu", "dropout"):
            flattened[number] = flattened[inputs[0]]
        elif op == "linear":
            settings["before_flat"] = list(flattened.get(inputs[0], ()))
        rows.append(Row(op, layer, inputs, shape, settings))
        row_of[node] = number
    assert network.classes is not None
    return Description(network.name, network.input_shape, network.classes, tuple(rows))


def _of_module(network: Network, module: Any) -> tuple[str, dict[str, Any]]:
    """The operator of a torch module and its settings."""
    from torch import nn

    match module:
        case nn.Conv2d(groups=1, dilation=(1, 1)):
            return "convolution", {
                "channels": module.in_channels,
                "width": module.out_channels,
                **_window(module),
                "bias": module.bias is not None,
            }
        case nn.Linear():
            bias = module.bias is not None
            return "linear", {
                "channels": module.in_features,
                "width": module.out_features,
                "bias": bias,
            }
        case nn.BatchNorm2d():
            momentum = module.momentum
            return "batch_norm", {
                "width": module.num_features,
                "epsilon": module.eps,
                "momentum": momentum,
            }
        case nn.ReLU():
            return "relu", {}
        case nn.MaxPool2d():
            return "max_pool", {**_window(module), "rounds_up": module.ceil_mode}
        case nn.AvgPool2d(ceil_mode=False, count_include_pad=True):
            return "average_pool", _window(module)
        case nn.AdaptiveAvgPool2d(output_size=1):
            return "mean", {}
        case nn.LocalResponseNorm():
            of = {"size": module.size, "alpha": module.alpha, "beta": module.beta, "k": module.k}
            return "local_norm", of
        case nn.Dropout():
            return "dropout", {"rate": module.p}
        case nn.Flatten():
            return "flatten", {}
    raise CurvescopeError(f"{network.name}: {module} has no counterpart in other frameworks.")


def _of_function(network: Network, function: Any) -> str:
    """The operator of a function that a network calls."""
    import operator

    import torch

    operations = {torch.cat: "concatenate", operator.add: "add"}
    if function not in operations:
        raise CurvescopeError(f"{network.name}: {function} has no counterpart in other frameworks.")
    return operations[function]


def _window(module: Any) -> dict[str, list[int]]:
    """Size, stride and padding of a window, each (height, width)."""
    pairs = {"size": module.kernel_size, "stride": module.stride, "padding": module.padding}
    return {
        name: [value, value] if isinstance(value, int) else list(value)
        for name, value in pairs.items()
    }


def write(path: Path) -> None:
    """Write `described_networks.json.gz`, e.g. after a change of a network."""
    path.write_bytes(gzip.compress(stored_text().encode(), mtime=0))


def stored_text() -> str:
    """The text of `described_networks.json.gz` for all networks that can be described."""
    entries = []
    for name in names():
        network = get_network(name)
        if network.reads_text:
            continue
        made = describe(network)
        rows = ",\n  ".join(
            json.dumps([row.op, row.layer, row.inputs, row.shape, row.settings])
            for row in made.rows
        )
        head = f'"{name}": {{"input_shape": {list(made.input_shape)}, "classes": {made.classes}'
        entries.append(f'{head}, "rows": [\n  {rows}]}}')
    return "{" + ",\n".join(entries) + "}\n"
