"""Networks as data: the rows of a network's forward pass, from which builders make it in any
framework.

`describe` derives them from the torch network by torch.fx; `described_networks.json.gz` holds those
of the named networks, so a builder needs no torch. A row is an operator of the list `OPERATORS`
with its settings, the numbers of the rows whose outputs it takes (-1 is the network's input), and
the path of its layer, empty for what the network itself computes between its layers. Shapes are of
one sample, in torch's order: channels, height, width. A network of text takes any number of tokens,
so its rows have none.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ....base.errors import CurvescopeError
from . import Network, get_network, names
from .bert import Bert

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


def describe(network: Network) -> Description:
    """Derive the description of a torch network; refuses an operator that is not in `OPERATORS`."""
    import torch
    from torch import fx
    from torch.fx.passes.shape_prop import ShapeProp

    with torch.device("meta"):
        model = network.build().train()  # whose attention has its dropouts
        traced = _trace_model(model, network)
        if not network.reads_text:
            sample = torch.empty(1, *network.input_shape)
            ShapeProp(traced.eval()).propagate(sample)
    shared = _find_shared_weights(model)
    rows: list[Row] = []
    row_of: dict[fx.Node, int] = {}
    flattened: dict[int, tuple[int, ...]] = {}  # shape before a flatten, by the row after it
    outputs: tuple[int, ...] = ()
    for node in traced.graph.nodes:
        inputs = tuple(row_of[source] for source in node.all_input_nodes)
        if node.op == "placeholder":
            row_of[node] = -1
            continue
        if node.op == "output":
            outputs = inputs
            continue
        if node.op == "call_module":
            layer = str(node.target)
            module = traced.get_submodule(node.target)
            op, settings = _of_module(network, module)
            if (tied := shared.get(f"{layer}.weight")) is not None:
                settings["weight_of"] = tied
        else:
            layer = next(reversed(node.meta.get("nn_module_stack", ())), "")
            op, settings = _of_call(network, traced, node)
            inputs = inputs or (-1,)  # of a constant, as many as tokens
        shape = () if network.reads_text else tuple(node.meta["tensor_meta"].shape[1:])
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
    made = Description(
        network.name, network.input_shape, network.classes, tuple(rows), outputs=outputs
    )
    if not isinstance(network, Bert):
        return made
    return replace(made, vocabulary=network.size.vocabulary, predicts_words=network.heads)


def _trace_model(model: Any, network: Network) -> Any:
    """The graph of a module, whose extents are numbers: a result of them is a constant."""
    import torch
    from torch import fx

    class Sized(fx.Proxy):
        shape = (1, *network.input_shape)
        device = torch.device("meta")

    class Tracer(fx.Tracer):
        def proxy(self, node: fx.Node) -> fx.Proxy:
            return (Sized if node.op == "placeholder" else fx.Proxy)(node, self)

    return fx.GraphModule(model, Tracer().trace(model))


def _find_shared_weights(model: Any) -> dict[str, str]:
    """The path of a parameter by the further paths that it has."""
    first: dict[int, str] = {}
    shared = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        own = first.setdefault(id(parameter), path)
        if own != path:
            shared[path] = own
    return shared


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
        case nn.Embedding(padding_idx=None, max_norm=None):
            return "embedding", {"count": module.num_embeddings, "width": module.embedding_dim}
        case nn.LayerNorm(elementwise_affine=True) if len(module.normalized_shape) == 1:
            return "layer_norm", {"width": module.normalized_shape[0], "epsilon": module.eps}
        case nn.GELU(approximate="none"):
            return "gelu", {}
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


def _of_call(network: Network, traced: Any, node: Any) -> tuple[str, dict[str, Any]]:
    """The operator of a function or method that a network calls, or of a constant of its own."""
    import operator

    import torch
    from torch.nn import functional

    match node.op, node.target, node.args[1:]:
        case "get_attr", name, ():
            constant = getattr(traced, name)
            if constant.dtype == torch.int64 and constant.shape == network.input_shape:
                return "positions", {}
        case "call_function", torch.cat, _:
            return "concatenate", {}
        case "call_function", operator.add, (torch.fx.Node(),):
            return "add", {}
        case "call_function", torch.zeros_like, ():
            return "zeros", {}
        case "call_function", torch.tanh, ():
            return "tanh", {}
        case "call_function", functional.gelu, () if not node.kwargs:
            return "gelu", {}
        case "call_function", operator.getitem, ((slice(start=None, stop=None, step=None), 0),):
            return "take_first", {}
        case "call_function", functional.scaled_dot_product_attention, (_, _):
            if node.kwargs.keys() <= {"dropout_p"}:
                return "attention", {"rate": node.kwargs.get("dropout_p", 0.0)}
        case "call_method", "unflatten", (-1, (parts, -1)):
            return "split_last", {"parts": parts}
        case "call_method", "transpose", axes:
            return "swap", {"axes": list(axes)}
        case "call_method", "flatten", (2,):  # of three axes
            return "join_last", {}
    raise CurvescopeError(f"{network.name}: {node.target} has no counterpart in other frameworks.")


def _window(module: Any) -> dict[str, list[int]]:
    """Size, stride and padding of a window, each (height, width)."""
    return {
        "size": _pair(module.kernel_size),
        "stride": _pair(module.stride),
        "padding": _pair(module.padding),
    }


def _pair(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value, value]
    return list(value)


def write(path: Path) -> None:
    """Write `described_networks.json.gz`, e.g. after a change of a network."""
    path.write_bytes(gzip.compress(describe_networks().encode(), mtime=0))


def describe_networks() -> str:
    """The text of `described_networks.json.gz` for all networks that can be described."""
    entries = []
    for name in names():
        made = describe(get_network(name))
        rows = []
        for row in made.rows:
            entry = [row.op, row.layer, row.inputs, row.shape, row.settings]
            rows.append(json.dumps(entry))
        text = {}
        if made.vocabulary is not None:
            text = {"vocabulary": made.vocabulary, "predicts_words": made.predicts_words}
        head = json.dumps({"classes": made.classes, "outputs": made.outputs, "text": text})
        listed = ",\n  ".join(rows)
        entries.append(f'"{name}": {head[:-1]}, "rows": [\n  {listed}]}}')
    return "{" + ",\n".join(entries) + "}\n"
