"""Changes of a program in its own process, for experiments: its optimizer, model and loader, and
settings of torch.

Each is a function of torch, of a function that takes the reason if the change cannot be made, and
of a function that is called whenever it was made.
The program's own Python loads this file by path, so it needs only the standard library and torch.
"""

from __future__ import annotations

import functools
import os
from typing import Any

_FORMS = ("foreach", "fused")  # at most one of them may be on


def apply(torch: Any, names: Any, refuse: Any, note: Any) -> None:
    """Make changes by their names, as soon as the program has the changed object; `note` gets the
    name whenever one was made.
    """
    for name in names:
        change, _ = _CHANGES[name]
        change(torch, refuse, functools.partial(note, name))


def why_not_made(name: str) -> str:
    """Why a change was never made in a program, as a clause."""
    return _CHANGES[name][1]


def _optimizer_form(flag: Any) -> Any:
    def change(_: Any, refuse: Any, note: Any) -> None:
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
                    note()

        register_optimizer_step_pre_hook(before_step)

    return change


def _on_model(change_model: Any, reason_against: Any = lambda _: None) -> Any:
    """A change of the model: the first module that is called."""

    def change(torch: Any, refuse: Any, note: Any) -> None:
        from torch.nn.modules import module as modules

        def change_first(model: Any, arguments: Any) -> Any:
            handle.remove()
            if (why := reason_against(model)) is not None:
                refuse(why)
                return None
            note()
            return change_model(torch, model, arguments)

        handle = modules.register_module_forward_pre_hook(change_first)

    return change


def _reason_against_channels_last(model: Any) -> str | None:
    has_one = any(parameter.dim() == 4 for parameter in model.parameters())
    return None if has_one else "the program has no two-dimensional convolution"


def _channels_last(torch: Any, model: Any, arguments: Any) -> Any:
    model.to(memory_format=torch.channels_last)

    def store(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value

    def before_call(_: Any, arguments: Any) -> Any:
        return tuple(map(store, arguments))

    model.register_forward_pre_hook(before_call)
    return before_call(model, arguments)


def _compile_model(torch: Any, model: Any, _: Any) -> None:
    forward = model.forward

    def call(*positional: Any, **named: Any) -> Any:
        return forward(*positional, **named)

    model.forward = torch.compile(call, dynamic=False)


def _in_bf16(torch: Any, model: Any, _: Any) -> None:
    forward = model.forward
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")

    def call(*positional: Any, **named: Any) -> Any:
        with torch.autocast(device, torch.bfloat16):
            return forward(*positional, **named)

    model.forward = call


def _tf32(torch: Any, refuse: Any, note: Any) -> None:
    if torch.backends.cuda.matmul.allow_tf32:
        refuse("the program uses TF32 already")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    note()


def _cudnn_benchmark(torch: Any, _: Any, note: Any) -> None:
    torch.backends.cudnn.benchmark = True
    note()


def _loader_workers(_: Any, __: Any, note: Any) -> None:
    from torch.utils.data import DataLoader, IterableDataset

    loaders: Any = DataLoader
    iterate = loaders.__iter__

    def with_workers(loader: Any) -> Any:
        if not loader.num_workers and not isinstance(loader.dataset, IterableDataset):
            loader.num_workers = len(os.sched_getaffinity(0))
            loader.prefetch_factor = 2
            note()
        return iterate(loader)

    loaders.__iter__ = with_workers


_NO_OPTIMIZER = "the program steps no optimizer of torch"
_NO_MODEL = "the program calls no model of torch"
_NO_LOADER = "the program iterates no DataLoader without workers"
_NO_TORCH = "the program loads no torch"
# By the name of its factor each change, and why a program may never have it.
_CHANGES = {
    "fused_optimizer": (_optimizer_form("fused"), _NO_OPTIMIZER),
    "foreach_optimizer": (_optimizer_form("foreach"), _NO_OPTIMIZER),
    "channels_last": (_on_model(_channels_last, _reason_against_channels_last), _NO_MODEL),
    "compiled": (_on_model(_compile_model), _NO_MODEL),
    "bf16_autocast": (_on_model(_in_bf16), _NO_MODEL),
    "loader_workers": (_loader_workers, _NO_LOADER),
    "tf32": (_tf32, _NO_TORCH),
    "cudnn_benchmark": (_cudnn_benchmark, _NO_TORCH),
}
NAMES = tuple(_CHANGES)
