"""Compiles modules with torch.compile and Inductor, and keeps which layers and operators are in
each kernel.

Inductor's own names and graphs tell it while it compiles: `compile_fx` calls the function
`inner_compile` for each graph, whose nodes name their modules (`nn_module_stack`;
`fwd_nn_module_stack` in a backward graph) and the operators that they were written as
(`original_aten`), and Inductor notes the nodes of each kernel it writes. A version of torch without
one of these compiles all the same, and its kernels have no layer.

A user's own `torch.compile` has its kernels kept by the same means, see `keep_kernels`.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

from ..attribution.fused_kernels import VIEWS, FusedKernel, FusedOperator
from ..attribution.node_work import Elements, node_flops
from ..attribution.operation import Operation
from ..attribution.operator_work import count_work
from ..recording.operators import TORCH_DTYPES

# Of every graph that this process compiled, by the name in the profiler's annotation of its calls.
COMPILED: dict[str, tuple[FusedKernel, ...]] = {}

# Paths of the modules of a user's model by their `id`, which is how a graph's `nn_module_stack`
# numbers them.
_PATHS: dict[int, str] = {}
_DTYPES = {f"torch.{dtype}": name for name, dtype in reversed(TORCH_DTYPES.items())}
# Each switch, with the part of `torch._inductor.config` that has it: C++ kernels have events of the
# profiler; the nodes of kernels are noted; and a graph is compiled even if an equal one of other
# modules is in the cache. Compiled C++ and Triton code stays cached.
_SWITCHES = {
    "cpp.enable_kernel_profile": True,
    "trace.provenance_tracking_level": 2,
    "fx_graph_cache": False,
}
# of one function, for batch sizes; above torch's limit of 8 it would run uncompiled
_MOST_VERSIONS = 256
_ROOT = re.compile(r"^[LG]\['\w+'\]\.?")
_SUBMODULE = re.compile(r"\.?_modules\['([^']+)'\]")
_WRAPPER = re.compile(r"\b_orig_mod(?:\.|$)")  # torch.compile's module around a compiled one
_HANDLE = re.compile(r":\d+$")  # Inductor's number of a kernel's call, after its name


def allow_versions() -> None:
    """Let torch.compile compile one function for many batch sizes."""
    import torch._dynamo.config

    torch._dynamo.config.cache_size_limit = max(
        torch._dynamo.config.cache_size_limit, _MOST_VERSIONS
    )


def compile_module(module: Any) -> Any:
    """The module through torch.compile, for each shape of inputs separately; its kernels are kept
    in `COMPILED`.
    """
    import torch

    allow_versions()
    return torch.compile(module, backend=_compile_graph, dynamic=False)


def keep_kernels() -> None:
    """Keep, in `COMPILED`, the kernels of everything that this process compiles with torch.compile
    from now on.

    A process that has not imported torch is left as it is. The compiler itself is loaded by the
    first compilation.
    """
    wrapper = getattr(sys.modules.get("torch"), "_TorchCompileInductorWrapper", None)
    if wrapper is None or getattr(wrapper.__call__, "__module__", None) == __name__:
        return
    original = wrapper.__call__

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        from torch._inductor import compile_fx as module

        if getattr(module.compile_fx, "__module__", None) != __name__:
            module.compile_fx = _keeping(module.compile_fx)
        return original(self, *arguments, **options)

    wrapper.__call__ = call


def name_modules(model: Any) -> None:
    """Name the layers of code that is compiled from now on by the paths of their modules in a
    model; None for no model.
    """
    _PATHS.clear()
    if model is not None:
        _PATHS.update(
            (id(module), _WRAPPER.sub("", path).rstrip("."))
            for path, module in model.named_modules()
        )


def _keeping(compile_fx: Callable[..., Any]) -> Callable[..., Any]:
    """The function `compile_fx`, which also keeps the kernels; other options of a caller stay."""

    def keeping(graph: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if (
            arguments or "inner_compile" in options
        ):  # a caller with an inner function of its own, e.g. itself
            return compile_fx(graph, inputs, *arguments, **options)
        with _switches() as switches:
            options["config_patches"] = {**switches, **(options.get("config_patches") or {})}
            return compile_fx(graph, inputs, inner_compile=_compile_part, **options)

    return keeping


def _compile_graph(graph: Any, inputs: Any) -> Any:
    from torch._inductor.compile_fx import compile_fx

    return _keeping(compile_fx)(graph, inputs)


@contextlib.contextmanager
def _switches() -> Iterator[dict[str, Any]]:
    """The switches that this version of Inductor has; autograd's cache, which would keep kernels
    too, is off inside.
    """
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    kept = {"enable_autograd_cache": False} if hasattr(functorch, "enable_autograd_cache") else {}
    with functorch.patch(kept):
        yield {name: value for name, value in _SWITCHES.items() if _has(inductor, name)}


def _compile_part(graph: Any, inputs: Any, **options: Any) -> Any:
    from torch._inductor import debug
    from torch._inductor.compile_fx import compile_fx_inner

    if not hasattr(debug, "reset_provenance_globals"):
        return compile_fx_inner(graph, inputs, **options)
    with debug.reset_provenance_globals():
        compiled = compile_fx_inner(graph, inputs, **options)
        noted = getattr(debug, "_inductor_triton_kernel_to_post_grad_node_info", {})
        nodes_of = {name: list(nodes) for name, nodes in noted.items()}
    if hasattr(compiled, "_fx_graph_cache_key"):
        name = f"curvescope {len(COMPILED)}"
        compiled._fx_graph_cache_key = name
        COMPILED[name] = kernels_of(graph, nodes_of)
    return compiled


def _has(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(config, part):
            return False
        config = getattr(config, part)
    return True


def kernels_of(graph: Any, nodes_of: dict[str, list[str]]) -> tuple[FusedKernel, ...]:
    """The kernels of a graph after compilation, in order of their calls, from the names of the
    nodes in each.
    """
    nodes = {node.name: node for node in graph.graph.nodes}
    kernels = []
    for handle, names in nodes_of.items():
        name = _HANDLE.sub("", handle)
        generated = name.startswith(("cpp_", "triton_"))
        inside = [nodes[node_name] for node_name in names if node_name in nodes]
        computing = [node for node in inside if _operator(node) is not None]
        # A call of a library is one operator; those before it may be noted with it.
        named = [
            node
            for node in computing
            if str(_operator(node)).rpartition("::")[2] in name.split(".")
        ]
        computing = computing if generated or not named else named[:1]
        moving = [node for node in computing if _target(node) not in VIEWS] or computing
        operators = tuple(
            FusedOperator(
                _layer(node), str(_operator(node)), sum(map(_bytes, (node, *node.all_input_nodes)))
            )
            for node in moving
        )
        # A kernel of inputs alone changes their memory format for the operators that read them.
        operators = operators or tuple(_for_users(inside))
        flops, size = (_flops(computing), _size_of(inside)) if generated else (None, None)
        kernels.append(FusedKernel(name, operators, generated, flops, size))
    return tuple(kernels)


def _for_users(inputs: Iterable[Any]) -> Iterable[FusedOperator]:
    for node in inputs:
        if users := [user for user in node.users if _operator(user) is not None]:
            yield FusedOperator(_layer(users[0]), "aten::copy_", 2 * _bytes(node))


def _target(node: Any) -> str | None:
    name = getattr(getattr(node.target, "_overloadpacket", None), "_qualified_op_name", None)
    return None if name is None else str(name)


def _operator(node: Any) -> str | None:
    """The operator that the node was written as, e.g. `aten::silu`; None for a node that calls
    none.
    """
    if _target(node) is None:
        return None
    packet = getattr(node.meta.get("original_aten"), "_overloadpacket", None)
    return str(getattr(packet, "_qualified_op_name", None) or _target(node))


def _layer(node: Any) -> str | None:
    """Path of the node's module; None if it is no submodule."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    key, (source, *_) = next(reversed(stack.items()), ("", ("",)))
    number = str(key).partition("@")[0]  # of the module; after it stands the number of its call
    if number.isdecimal() and int(number) in _PATHS:
        return _PATHS[int(number)] or None
    return _SUBMODULE.sub(r".\1", _ROOT.sub("", str(source))).lstrip(".") or None


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if hasattr(value, "shape") and hasattr(value, "dtype") else []


def _bytes(node: Any) -> int:
    """Bytes of the node's result; 0 if its shape is unknown: asking for a symbolic extent would
    change the graph.
    """
    tensors = _tensors(node.meta.get("val"))
    if not all(isinstance(extent, int) for tensor in tensors for extent in tensor.shape):
        return 0
    return sum(prod(tensor.shape) * int(tensor.dtype.itemsize) for tensor in tensors)


def _size_of(inside: list[Any]) -> int | None:
    """Bytes of what enters the kernel and of what leaves it, each once; None if nothing
    is known.
    """
    fused = set(inside)
    computing = [node for node in inside if _operator(node) is not None]
    read = {
        operand for node in computing for operand in node.all_input_nodes if operand not in fused
    }
    read |= {node for node in inside if node.op == "placeholder"}
    written = [node for node in computing if not fused.issuperset(node.users)]
    copied = [node for node in inside if node.op == "placeholder" and not computing]
    return sum(map(_bytes, [*read, *written, *copied])) or None


def _flops(nodes: list[Any]) -> int | None:
    total = 0
    for node in nodes:
        if (name := _target(node)) is None:
            continue
        operand = next(iter(node.all_input_nodes), None)
        flops = node_flops(name, _elements(node), None if operand is None else _elements(operand))
        if flops is None and node.args:
            arguments = [_argument(argument) for argument in node.args]
            flops = count_work(Operation(name, *zip(*arguments, strict=True))).flops
        if flops is None:
            return None
        total += flops
    return total if nodes else None


def _elements(node: Any) -> Elements | None:
    tensors = _tensors(node.meta.get("val"))
    if len(tensors) != 1 or not all(isinstance(extent, int) for extent in tensors[0].shape):
        return None
    return Elements(prod(tensors[0].shape), bool(tensors[0].dtype.is_floating_point))


def _argument(value: Any) -> tuple[Any, str, Any]:
    if (tensor := next(iter(_tensors(getattr(value, "meta", {}).get("val"))), None)) is not None:
        is_static = all(isinstance(extent, int) for extent in tensor.shape)
        return (
            list(tensor.shape) if is_static else [],
            _DTYPES.get(str(tensor.dtype), "") if is_static else "",
            "",
        )
    return [], "Scalar", value if isinstance(value, (int, float, bool, list, tuple)) else ""
