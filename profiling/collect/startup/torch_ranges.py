"""Marks what torch runs on a GPU: NVTX ranges around layers, forward and backward, and optimizers;
and the steps.

CUPTI gives the kernels, so torch's own profiler is not needed: ranges on the thread that launches a
kernel name its layer and phase. Steps end as on the CPU (see `torch_windows.py`), whose files they
are told by, without events. An autograd node is the innermost module's whose forward pass created
it; nodes of no module, e.g. of a loss, have a phase alone. A layer that the program marks itself by
`curvescope.annotate` gets no second range: torch runs the hooks of both in one order, so theirs
would cross. The program's own Python loads this file by path, so it needs only the standard library
and torch.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

from _curvescope_torch_windows import LAYER_RANGE, Recorder  # type: ignore[import-not-found]

_PHASE_RANGE = "curvescope.phase:"
_BACKWARD = "_engine_run_backward"
_OWNED = "curvescope.range"  # in the metadata of an autograd node
_ANNOTATED = "_curvescope_annotated"  # attribute of a module that curvescope.annotate marks


class _Range:
    def __init__(self, nvtx: Any, name: Any) -> None:
        self._nvtx = nvtx
        self._name = name

    def __enter__(self) -> None:
        self._nvtx.rangePushA(self._name)

    def __exit__(self, *_: Any) -> None:
        self._nvtx.rangePop()


class GpuRecorder(Recorder):  # type: ignore[misc]
    """Pushes ranges, and writes where steps end."""

    _least_window_ns = 10_000_000_000

    def attach(self) -> None:
        """Hook modules, backward passes and optimizers."""
        from torch import autograd
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._nvtx = self._torch._C._nvtx
        self._optimizing = threading.local()
        self._follow_calls()
        self._handles.append(
            register_optimizer_step_pre_hook(self._hook(self._steps, "an optimizer's step"))
        )
        run = getattr(autograd, _BACKWARD)
        mark = self._hook(self._note_backward, "a backward pass")

        def run_backward(tensors: Any, *arguments: Any, **named: Any) -> Any:
            mark(tensors)
            return run(tensors, *arguments, **named)

        setattr(autograd, _BACKWARD, run_backward)

    def _mark(self, name: Any) -> Any:
        return _Range(self._nvtx, name)

    def _mark_of(self, module: Any, path: str) -> Any:
        return nullcontext() if _ANNOTATED in vars(module) else super()._mark_of(module, path)

    def _begin_profile(self) -> Any:
        return True

    def _end_profile(self, profile: Any) -> None:
        pass

    def _contents_of(self, profile: Any) -> dict[str, Any]:  # noqa: ARG002
        return {"events": ()}

    def _may_end(self) -> bool:
        return True

    def _enter(self, module: Any, arguments: Any) -> None:
        if not self._calls.open:
            self._nvtx.rangePushA(f"{_PHASE_RANGE}forward")
        super()._enter(module, arguments)
        self._calls.inputs.append(set(self._nodes(arguments)))

    def _leave(self, module: Any, arguments: Any, output: Any) -> None:
        calls = self._calls
        path = self._calls.paths.get(id(module))
        super()._leave(module, arguments, output)
        inputs = calls.inputs[len(calls.open)]
        calls.inputs[len(calls.open) :] = []
        name = f"{LAYER_RANGE}{path} backward" if path else f"{_PHASE_RANGE}backward"
        self._own(output, inputs, None if _ANNOTATED in vars(module) else name)
        if not calls.open:
            self._nvtx.rangePop()

    def _steps(self, *_: Any) -> None:
        self._optimizing.range = _Range(self._nvtx, f"{_PHASE_RANGE}optimizer")
        self._optimizing.range.__enter__()

    def _note_optimizer_step(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if (opened := self._optimizing.__dict__.pop("range", None)) is not None:
            opened.__exit__()
        super()._note_optimizer_step(optimizer, arguments, named)

    def _note_backward(self, tensors: Any) -> None:
        if self._profile is not None:
            self._own(tensors, set(), f"{_PHASE_RANGE}backward", ends_at_owned=True)

    def _own(self, output: Any, seen: Any, name: Any, *, ends_at_owned: bool = False) -> None:
        """Put a range around each autograd node between inputs and an output that has none yet;
        none without a name.
        """
        pending = list(self._nodes(output)) if self._profile is not None else []
        while pending:
            node = pending.pop()
            if node is None or node in seen or type(node).__name__ == "AccumulateGrad":
                continue
            seen.add(node)
            owned = _OWNED in node.metadata
            if not (owned and ends_at_owned):
                pending += [following for following, _ in node.next_functions]
            if not owned:
                node.metadata[_OWNED] = None
                if name is not None:
                    self._surround(node, _Range(self._nvtx, name))

    def _surround(self, node: Any, own: Any) -> None:
        node.register_prehook(lambda _: own.__enter__())
        node.register_hook(lambda *_: own.__exit__())

    def _nodes(self, value: Any) -> Any:
        """The autograd nodes that made the tensors in a value."""
        if isinstance(value, self._torch.Tensor):
            if value.grad_fn is not None:
                yield value.grad_fn
        elif isinstance(value, (dict, list, tuple)):
            for item in value.values() if isinstance(value, dict) else value:
                yield from self._nodes(item)
