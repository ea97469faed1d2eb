"""The operators of a network's forward pass with their shapes, determined by running it on tensors
without data.

Each extent of a shape is a pair (factor, constant) with extent = factor × batch + constant, so one
table serves every batch size. The analysis reads the stored table of the named networks and does
not need torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base.errors import CurvescopeError
from ..annotate import tensors_in
from . import Network
from .facts import build_on_meta, facts

# Operators that only create a view of a tensor and launch no kernel.
_VIEW_NAMES = """view _unsafe_view reshape t transpose permute expand unsqueeze squeeze as_strided slice select split
unbind detach alias lift_fresh empty empty_like arange"""  # noqa: E501
_VIEWS = frozenset(_VIEW_NAMES.split())
Row = dict[str, Any]


def operations(network: Network) -> Row:
    """The operators of a training step of the network, with its parameters and its memory per
    sample (`facts`).

    Each has `layer`, `op`, `inputs` and `outputs` (shapes, as above), and a convolution `settings`.
    A shape that is not linear in the batch is an error.
    """
    small = _trace(network, 2)
    large = _trace(network, 4)
    if [row["op"] for row in small] != [row["op"] for row in large]:
        raise CurvescopeError(
            f"{network.name} runs different operators at different batch sizes and cannot be "
            "modelled."
        )
    rows = []
    for at_small, at_large in zip(small, large, strict=True):
        row = {"layer": at_small["layer"], "op": at_small["op"]}
        for side in ("inputs", "outputs"):
            row[side] = []
            for first, second in zip(at_small[side], at_large[side], strict=True):
                extents = zip(first, second, strict=True)
                row[side].append([_linear(network, a, b) for a, b in extents])
        if at_small["settings"]:
            row["settings"] = at_small["settings"]
        rows.append(row)
    cost = facts(network)
    return {
        "parameters": cost.parameters,
        "parameter_tensors": cost.parameter_tensors,
        "activation_bytes": cost.activation_bytes,
        "operations": rows,
    }


def _linear(network: Network, at_two: int, at_four: int) -> list[int]:
    factor, left = divmod(at_four - at_two, 2)
    constant = at_two - 2 * factor
    if left or constant < 0:
        raise CurvescopeError(
            f"{network.name} has an extent that is not linear in the batch size and cannot be "
            "modelled."
        )
    return [factor, constant]


def _trace(network: Network, batch: int) -> list[Row]:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.module_tracker import ModuleTracker

    def shapes(values: Any) -> list[list[int]]:
        return [list(tensor.shape) for tensor in tensors_in(values)]

    rows: list[Row] = []
    model, inputs, targets = build_on_meta(network, batch)

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            if name not in _VIEWS:
                row = {
                    "layer": _deepest(tracker.parents),
                    "op": name,
                    "settings": _settings(name, args),
                }
                rows.append({**row, "inputs": shapes(args), "outputs": shapes(result)})
            return result

    # On tensors without data the dispatcher decomposes attention into products; a GPU runs one
    # kernel, but the products are the same.
    with ModuleTracker() as tracker, Recorder():  # type: ignore[no-untyped-call]
        network.loss(model(*inputs), targets)
    return rows


def _deepest(parents: set[str]) -> str | None:
    """The innermost running module, without the model's own name; None outside all modules."""
    deepest = max(parents - {"Global"}, key=lambda name: name.count("."), default="")
    return deepest.partition(".")[2] or None


def _settings(name: str, args: Sequence[Any]) -> dict[str, Any]:
    if name != "convolution":
        return {}
    settings = {"stride": list(args[3]), "padding": list(args[4]), "groups": args[8]}
    if any(spread != 1 for spread in args[5]):
        settings["dilation"] = list(args[5])
    return {**settings, "transposed": True} if args[6] else settings
