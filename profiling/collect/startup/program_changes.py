"""Changes of a program in its own process, for experiments: its optimizer, model and loader, and
settings of torch.

Each is a function of torch and of a function that takes the reason if the change cannot be made.
The program's own Python loads this file by path, so it needs only the standard library and torch.
"""

from __future__ import annotations

import os
from typing import Any

_FORMS = ("foreach", "fused")  # at most one of them may be on


def apply(torch: Any, names: Any, refuse: Any) -> None:
    """Make changes by their names, as soon as the program has what they change."""
    for name in names:
        _CHANGES[name](torch, refuse)


def _optimizer_form(flag: Any) -> Any:
    def change(_: Any, refuse: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def before_step(optimizer: Any, *_: Any) -> None:
            if getattr(optimizer, "_curvescope_changed", False):
                return
            optimizer._curvescope_changed = True
            for group in optimizer.param_groups:
                if flag not in group:
                    refuse(f"{type(optimizer).__name__} has no option {flag}")
                elif group[flag]:
                    refuse(f"{type(optimizer).__name__} has {flag}=True already")
                else:
                    group.update({**dict.fromkeys(_FORMS, False), flag: True})

        register_optimizer_step_pre_hook(before_step)

    return change


def _on_model(change_model: Any) -> Any:
    """A change of the model: the first module that is called."""

    def change(torch: Any, refuse: Any) -> None:
        from torch.nn.modules import module as modules

        def called(model: Any, arguments: Any) -> Any:
            handle.remove()
            return change_model(torch, model, arguments, refuse)

        handle = modules.register_module_forward_pre_hook(called)

    return change


def _channels_last(torch: Any, model: Any, arguments: Any, refuse: Any) -> Any:
    if not any(parameter.dim() == 4 for parameter in model.parameters()):
        refuse("the program has no two-dimensional convolution")
        return None
    model.to(memory_format=torch.channels_last)

    def store(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value

    def before_call(_: Any, arguments: Any) -> Any:
        return tuple(map(store, arguments))

    model.register_forward_pre_hook(before_call)
    return before_call(model, arguments)


def _compiled(torch: Any, model: Any, arguments: Any, refuse: Any) -> None:
    del arguments, refuse
    forward = model.forward

    def call(*positional: Any, **named: Any) -> Any:
        return forward(*positional, **named)

    model.forward = torch.compile(call, dynamic=False)


def _in_bf16(torch: Any, model: Any, arguments: Any, refuse: Any) -> None:
    del arguments, refuse
    forward = model.forward
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")

    def call(*positional: Any, **named: Any) -> Any:
        with torch.autocast(device, torch.bfloat16):
            return forward(*positional, **named)

    model.forward = call


def _tf32(torch: Any, refuse: Any) -> None:
    if torch.backends.cuda.matmul.allow_tf32:
        refuse("the program uses TF32 already")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def _cudnn_benchmark(torch: Any, refuse: Any) -> None:
    del refuse
    torch.backends.cudnn.benchmark = True


def _loader_workers(_: Any, refuse: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    from torch.utils.data import DataLoader, IterableDataset

    loaders: Any = DataLoader
    iterate, changed = loaders.__iter__, []

    def with_workers(loader: Any) -> Any:
        if not loader.num_workers and not isinstance(loader.dataset, IterableDataset):
            loader.num_workers, loader.prefetch_factor = len(os.sched_getaffinity(0)), 2
            changed.append(loader)
        return iterate(loader)

    def before_step(*_: Any) -> None:
        if not changed:
            refuse("the program iterates no DataLoader without workers before its first step")

    loaders.__iter__ = with_workers
    register_optimizer_step_pre_hook(before_step)


_CHANGES = {
    "fused_optimizer": _optimizer_form("fused"),
    "foreach_optimizer": _optimizer_form("foreach"),
    "channels_last": _on_model(_channels_last),
    "compiled": _on_model(_compiled),
    "bf16_autocast": _on_model(_in_bf16),
    "loader_workers": _loader_workers,
    "tf32": _tf32,
    "cudnn_benchmark": _cudnn_benchmark,
}
NAMES = tuple(_CHANGES)
