"""JAX, and what builds on it, as Flax or Keras: every call returns before its work is done, also on
a CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .adapter import Adapter

_BACKENDS = "jax._src.xla_bridge"  # where it keeps the backends that have begun
_THREAD = "tf_XLAEigen"  # the name of the threads that compute on a CPU


class Jax(Adapter):
    """JAX."""

    name = "jax"
    modules = ("jax", "jaxlib", "flax", "haiku", "equinox")
    distributions = ("jax",)
    waiting = "return jax.block_until_ready(result)"
    out_of_memory = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")
    profiles = True
    errors = ("XlaRuntimeError", "JaxRuntimeError")
    layers = (
        "Its layers are named by scopes of JAX's own profile: record one with jax.profiler.trace "
        "and read it with `curvescope import`."
    )

    def __init__(self) -> None:
        self._numbers: dict[Any, Any] = {}  # by device, what `wait` computes with

    def is_used(self) -> bool:
        """Whether one of its backends has begun; asking JAX would begin one, which takes most of a
        GPU's memory.
        """
        if self.module is None:
            return False
        backends = getattr(sys.modules.get(_BACKENDS), "_backends", None)
        return backends is None or bool(backends)

    def accelerator(self) -> dict[str, str] | None:
        """The first device of its default backend."""
        first = self.module.devices()[0]
        if first.platform == "cpu":
            return None
        return {
            "kind": "cuda" if first.platform in ("gpu", "cuda") else str(first.platform),
            "name": first.device_kind,
        }

    def threads(self) -> int | None:
        """The threads of this process that XLA computes with; JAX itself tells no number."""
        names = map(_name_of, Path("/proc/self/task").glob("*/comm"))
        return sum(name == _THREAD for name in names) or None

    def profile(self, run: Callable[[], object], folder: str) -> None:
        """Record by jax.profiler."""
        profiler = self.module.profiler
        profiler.start_trace(folder)
        try:
            with profiler.StepTraceAnnotation("step", step_num=0):
                run()
        finally:
            profiler.stop_trace()

    def wait(self, result: object, device: str) -> None:
        """Wait for the arrays of the result, and for all others: a step may keep its results and
        return nothing.

        Work whose results are gone runs before a computation that is begun now: a device computes
        in order. That takes 8 us on a CPU.
        """
        del device
        jax = self.module
        jax.block_until_ready(result)
        jax.block_until_ready(_alive(jax))
        for used in jax.local_devices():
            number = self._numbers.get(used)
            if number is None or number.is_deleted():
                number = self._numbers[used] = jax.device_put(0.0, used)
            jax.block_until_ready(number + 1.0)


def _name_of(task: Path) -> str | None:
    """The name of a thread; None if it has ended."""
    try:
        return task.read_text().strip()
    except OSError:
        return None


def _alive(jax: Any) -> list[Any]:
    """The arrays that exist and were not given to another computation to write over."""
    return [array for array in jax.live_arrays() if not array.is_deleted()]
