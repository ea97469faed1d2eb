"""NVTX ranges for the layers of any model, forward and backward, in one NVTX domain, for every tool
that reads NVTX.

A range is named after the module's path, with its class as category, and `PATH backward` around
each autograd node that the module's forward pass created; the innermost module owns a node. Ranges
nest like modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..attribution.range_names import OWN_DOMAIN
from ..collect.startup.torch_windows import list_parts

# Attribute of a module meanwhile: collect/startup/torch_ranges.py puts no range of its own around
# it.
ANNOTATED = "_curvescope_annotated"


@contextmanager
def annotate(model: Any) -> Iterator[None]:
    """Mark the layers of a `torch.nn.Module` with NVTX ranges while the block runs; afterwards the
    model is unchanged.

    Without an attached tool, a layer's forward and backward ranges cost about 10 us together (on
    two cores of an AMD EPYC). A submodule compiled with
    torch.compile gets one range: hooks inside it would cause a recompilation. Graphs built inside
    the block stop marking when it ends.
    """
    marks = _Marks()
    handles = []
    layers = list(layers_of(model))
    for path, module in layers:
        vars(module)[ANNOTATED] = True
        handles.append(
            module.register_forward_pre_hook(
                marks.enter(path, module), prepend=True, with_kwargs=True
            )
        )
        handles.append(
            module.register_forward_hook(marks.leave(path), always_call=True, with_kwargs=True)
        )
    try:
        yield
    finally:
        marks.close()
        for handle in handles:
            handle.remove()
        for _, module in layers:
            vars(module).pop(ANNOTATED, None)


def layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Every named module once, except the root and submodules of a compiled module.

    A root without submodules is a layer, by the name of its class, e.g. `Linear`.
    """
    compiled: list[str] = []
    for path, module in list_parts(model):
        if any(path.startswith(prefix) for prefix in compiled):
            continue
        if (
            type(module).__name__ == "OptimizedModule"
            or getattr(module, "_compiled_call_impl", None) is not None
        ):
            compiled.append(f"{path}." if path else "")
        if path:
            yield path, module
        elif not any(True for _ in module.children()):
            yield type(module).__name__, module


class _Marks:
    """Pushes and pops ranges, and remembers which module owns which autograd node."""

    def __init__(self) -> None:
        import nvtx

        self._domain = nvtx.get_domain(OWN_DOMAIN)
        self._key = f"{OWN_DOMAIN}.{id(self)}"  # marks owned nodes in their metadata
        self._active = True
        self._inputs: list[set[Any]] = []  # autograd nodes of the inputs of each running module

    def close(self) -> None:
        self._active = False

    def enter(self, path: str, module: Any) -> Any:
        attributes = self._domain.get_event_attributes(message=path, category=type(module).__name__)

        def hook(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._inputs.append(
                {t.grad_fn for t in tensors_in((arguments, named)) if t.grad_fn is not None}
            )
            self._domain.push_range(attributes)

        return hook

    def leave(self, path: str) -> Any:
        attributes = self._domain.get_event_attributes(message=f"{path} backward")

        def hook(_: Any, __: Any, ___: Any, output: Any) -> None:
            self._domain.pop_range()
            inputs = self._inputs.pop()
            pending = [t.grad_fn for t in tensors_in(output)]
            while pending:
                node = pending.pop()
                if node is None or node in inputs or type(node).__name__ == "AccumulateGrad":
                    continue  # no backward pass, owned by another module, or a shared weight
                inputs.add(node)
                pending += [following for following, _ in node.next_functions]
                # Inner modules have returned before, and have marked their own nodes.
                if self._key not in node.metadata:
                    node.metadata[self._key] = None
                    self._mark(node, attributes)

        return hook

    def _mark(self, node: Any, attributes: Any) -> None:
        open_ranges: list[None] = []

        def before(_: Any) -> None:
            if self._active:
                self._domain.push_range(attributes)
                open_ranges.append(None)

        def after(_: Any, __: Any) -> None:
            if open_ranges:
                open_ranges.pop()
                self._domain.pop_range()

        node.register_prehook(before)
        node.register_hook(after)


def tensors_in(value: Any) -> Iterator[Any]:
    """All tensors in a value, of any nesting of dicts, lists and tuples."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)
