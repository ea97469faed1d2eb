"""What a test can leave behind in the process of the tests, for whichever comes next."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

# Answers that a process keeps, although they depend on what a test may change: PATH, or which
# devices there are.
_ANSWERS = (
    ("tests.kernels.disassembly", "find_disassemblers"),
    ("curvescope.profiling.hardware.energy", "meter_of"),
    ("curvescope.profiling.hardware.stream_clock", "_open_clock"),
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def forget_answers() -> None:
    """Let the next that asks find out anew, as a process of its own would."""
    for module, function in _ANSWERS:
        # a test may have put another function in its place
        kept = getattr(sys.modules.get(module), function, None)
        if hasattr(kept, "cache_clear"):
            kept.cache_clear()


class ProcessState:
    """The variables, path, folder and handlers of this process, and torch's settings if it is
    loaded.
    """

    def __init__(self) -> None:
        """Look at the process."""
        self._variables, self._path = dict(os.environ), list(sys.path)
        self._values = {name: read() for name, (read, _) in _settings().items()}

    def put_back(self) -> dict[str, Any]:
        """Make the process as it was; return what was another, but for variables and path, by name.

        Libraries set variables of their own, and `--step` adds a folder to the path.
        """
        sys.path[:] = self._path
        for name in os.environ.keys() - self._variables.keys():
            del os.environ[name]
        os.environ.update(self._variables)
        changed = {}
        for name, (read, write) in _settings().items():
            if name in self._values and (now := read()) != self._values[name]:
                changed[name] = now
                write(self._values[name])
        return changed


_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]


def _settings() -> dict[str, _Setting]:
    """How each is read and written."""
    settings: dict[str, _Setting] = {"working directory": (os.getcwd, os.chdir)}
    for number in _SIGNALS:
        settings[number.name] = (
            lambda number=number: signal.getsignal(number),
            lambda handler, number=number: signal.signal(number, handler),
        )
    torch = sys.modules.get("torch")
    if hasattr(torch, "set_default_dtype"):  # else a test's double, or none
        settings |= _settings_of(torch)
    return settings


def _settings_of(torch: Any) -> dict[str, _Setting]:
    tiny = torch.full((1,), 1e-30, dtype=torch.float32, device="cpu")
    onednn, cudnn = torch.backends.mkldnn, torch.backends.cudnn
    return {
        "torch's threads": (torch.get_num_threads, torch.set_num_threads),
        "torch's type of numbers": (torch.get_default_dtype, torch.set_default_dtype),
        "torch's gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
        "torch's deterministic operators": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "torch's precision of products": (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        "torch's denormal numbers": (
            lambda: bool(tiny * 1e-10),
            lambda kept: torch.set_flush_denormal(not kept),
        ),
        "torch's oneDNN": (
            lambda: onednn.enabled,
            lambda enabled: setattr(onednn, "enabled", enabled),
        ),
        "torch's search of cuDNN": (
            lambda: cudnn.benchmark,
            lambda benchmark: setattr(cudnn, "benchmark", benchmark),
        ),
    }
