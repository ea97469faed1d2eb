"""Derives the descriptions of named networks from torch's modules, by torch.fx (needs torch).

`python -m benchmarks.network_descriptions` writes
profiling/workload/networks/described_networks.json.gz, e.g. after a change of a network.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.workload import networks
from curvescope.profiling.workload.networks import Network, get_network, names
from curvescope.profiling.workload.networks.bert import Bert
from curvescope.profiling.workload.networks.description import FILE, Description, Row


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


if __name__ == "__main__":
    table = Path(networks.__file__).with_name(FILE)
    table.write_bytes(gzip.compress(describe_networks().encode(), mtime=0))
