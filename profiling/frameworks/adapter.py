"""What Curvescope asks of a framework."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any


class Adapter:
    """One framework. A new one overrides what differs."""

    name: str  # as the recording and tables call it
    # packages whose objects are its own; the first is there when it is loaded
    modules: tuple[str, ...]
    distributions: tuple[str, ...]  # whose version is its version; the first that is installed
    out_of_memory: tuple[str, ...] = ()  # parts of its messages when memory runs out
    errors: tuple[str, ...] = ()  # names of its error types beside RuntimeError's
    waiting: str  # the line that makes a step wait
    profiles: bool = False  # whether it has a profiler, see `profile`
    layers: str | None = None  # how its layers are named, as a sentence

    @property
    def module(self) -> Any:
        """The loaded framework; None if the program has not imported it."""
        return sys.modules.get(self.modules[0])

    def is_used(self) -> bool:
        """Whether the program has imported it and, as far as that is known, let it work."""
        return self.module is not None

    def accelerator(self) -> dict[str, str] | None:
        """Kind and name of the device that it works on if that is not the CPU; None if it is, or is
        unknown.
        """
        return None

    def version(self) -> str | None:
        """Its version; None if unknown."""
        own = getattr(self.module, "__version__", None)
        return str(own) if own else next(filter(None, map(_version, self.distributions)), None)

    def threads(self) -> int | None:
        """Number of threads that it computes with on a CPU; None if unknown."""
        return None

    def wait(self, result: object, device: str) -> None:
        """Wait until it has done all its work; by default a call returns when it is done.

        `result` is the value of a step, `device` the device of the steps, `cpu` or `cuda:N`.
        """

    def profile(self, run: Callable[[], object], folder: str) -> None:
        """Run one step, which ends when its work is done, under its own profiler, which writes into
        a folder.
        """
        raise NotImplementedError(self.name)

    def ran_out(self, error: BaseException) -> bool:
        """Whether an error of its kind means that memory ran out."""
        if not isinstance(error, RuntimeError) and type(error).__name__ not in self.errors:
            return False
        text = str(error)
        return any(words in text for words in self.out_of_memory)


@cache
def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
