"""The door to torch: everything imports it here, late, with its libraries prepared; a machine
without it is normal.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from .errors import BackendMissingError, CurvescopeError


def prepare_libraries() -> None:
    """Enable oneDNN's timestamps and silence Kineto; call this before torch does any work.

    Each library reads its variable only once.
    """
    os.environ.setdefault("ONEDNN_VERBOSE_TIMESTAMP", "1")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def has_torch() -> bool:
    """Whether torch is installed; steps of other frameworks run without it."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def load_torch() -> None:
    """Import torch as `import_torch` does, if it is installed."""
    if has_torch():
        import_torch()


def import_torch() -> Any:
    """Import torch, after `prepare_libraries`.

    Raises:
        BackendMissingError: torch is not installed.
    """
    prepare_libraries()
    try:
        import torch
    except ImportError as error:
        raise BackendMissingError(
            "This needs PyTorch, which runs the networks by name and records layers and kernels. "
            "Install it with `pip install 'curvescope[torch]'`; for a GPU, choose the build that "
            "fits its driver at pytorch.org."
        ) from error
    return torch


def pick_device(name: str | None) -> str:
    """Find a device by name: `cpu` or `cuda:N`.

    Without a name, the first CUDA device if there is one, else the CPU.

    Without torch, it is the CPU: a step of another framework runs on its own device.

    Raises:
        CurvescopeError: the name is unknown, or there is no such device.
    """
    if name in (None, "cpu") and not has_torch():
        return "cpu"
    torch = import_torch()
    if name is None:
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CurvescopeError(f"Unknown device {name!r}: use cpu, cuda or cuda:N.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BackendMissingError(
            "No CUDA device is usable: `curvescope doctor` shows what is missing. Without --device "
            "the CPU is used."
        )
    if device.type not in ("cpu", "cuda"):
        raise CurvescopeError(f"Device {name!r} is not supported: use cpu, cuda or cuda:N.")
    return f"cuda:{device.index or 0}" if device.type == "cuda" else "cpu"


def describe_cuda() -> tuple[bool, str]:
    """Whether torch can use a CUDA device, and the names of the devices or the reason.

    Raises:
        ImportError: torch is not installed.
    """
    import torch

    if torch.version.cuda is None:
        return False, "this PyTorch is a CPU build"
    if not torch.cuda.is_available():
        return False, "no usable driver or device"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return True, ", ".join(names)
