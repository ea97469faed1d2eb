"""Frameworks that run a step: what of each is loaded, how to wait for its work, and its message
without memory.

Each module here has one adapter. None imports its framework: it asks the one that the program has
loaded. Adding a framework is one module and its line in `ADAPTERS`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .adapter import Adapter as Adapter
from .jax import Jax
from .others import Mlx, OnnxRuntime, Paddle
from .pytorch import PyTorch
from .tensorflow import TensorFlow

PYTORCH = PyTorch()
ADAPTERS: tuple[Adapter, ...] = (
    PYTORCH,
    Jax(),
    TensorFlow(),
    OnnxRuntime(),
    Paddle(),
    Mlx(),
)


def list_used_frameworks() -> list[Adapter]:
    """The frameworks other than PyTorch that this process uses; one that is only
    imported is none.
    """
    return [adapter for adapter in ADAPTERS if adapter is not PYTORCH and adapter.is_used()]


def own_profiler() -> Adapter | None:
    """The framework whose own profiler records the steps of this process: one that runs them on a
    CPU, beside torch.
    """
    if PYTORCH.is_used() or accelerator_in_use() is not None:
        return None
    return next((adapter for adapter in list_used_frameworks() if adapter.profiles), None)


def wait_for(result: object, device: str) -> None:
    """Wait until all frameworks of this process have done their work; for the arguments see
    `Adapter.wait`.
    """
    for adapter in ADAPTERS:
        if adapter.is_used():
            adapter.wait(result, device)


def framework_versions() -> dict[str, str | None]:
    """The entry `frameworks` of a recording: versions of the frameworks other than PyTorch that
    this process uses.
    """
    return {adapter.name: adapter.version() for adapter in list_used_frameworks()}


def framework_threads() -> dict[str, int | None]:
    """The entry `framework_threads` of a recording: what each of these frameworks computes with on
    a CPU.
    """
    return {adapter.name: adapter.threads() for adapter in list_used_frameworks()}


def device_entry(entry: Mapping[str, Any], accelerator: Mapping[str, str] | None) -> dict[str, Any]:
    """The entries of a machine, as `recording.json` has them, where a framework worked on another
    device than torch.
    """
    if accelerator is None or entry["device"]["kind"] == "cuda":
        return dict(entry)
    return {**entry, "device": dict(accelerator), "ceilings": None}


def accelerator_in_use() -> dict[str, str] | None:
    """Kind and name of the device of the first framework beside PyTorch that works on none of the
    CPU.
    """
    return next(filter(None, (adapter.accelerator() for adapter in list_used_frameworks())), None)


def memory_ran_out(error: BaseException) -> bool:
    """Whether an error of any library means that memory ran out."""
    return isinstance(error, MemoryError) or any(adapter.ran_out(error) for adapter in ADAPTERS)


def restart_names() -> None:
    """Let Keras number the layers that it names from one again: layers and scopes then have the
    same names at each batch size.
    """
    reset = getattr(sys.modules.get("keras.src.utils.naming"), "reset_uids", None)
    if callable(reset):
        reset()


def module_advice(module: Any) -> str | None:
    """What to do with a `module` that is not PyTorch's, as a sentence; None if its framework is
    unknown.
    """
    of = type(module).__module__.partition(".")[0]
    return next(
        (adapter.layers for adapter in ADAPTERS if of in adapter.modules and adapter.layers), None
    )
