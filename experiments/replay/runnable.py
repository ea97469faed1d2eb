"""One call of a term at one batch size, ready to run, and settings of the process while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from .rebuild import Replayed, bind
from .recorded_call import CallFamily


@dataclass(frozen=True, kw_only=True)
class Runnable(Replayed):
    """One call of a term at one batch size, ready to run."""

    family: CallFamily
    # other forms of weights, for all batch sizes
    converted: dict[tuple[str, int], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, family: CallFamily, replayed: Replayed, **shared: Any) -> Runnable:
        """The call as it was rebuilt."""
        return cls(family=family, **vars(replayed), **shared)

    def with_arguments(self, arguments: tuple[Any, ...]) -> Runnable:
        """The same operator on other arguments."""
        return replace(self, arguments=arguments, run=bind(self.overload, arguments))


@contextmanager
def setting(owner: Any, name: str, value: object) -> Iterator[None]:
    """Set an attribute, and set it back at the end."""
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, and set it back at the end."""
    former = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if former is None:
            del os.environ[name]
        else:
            os.environ[name] = former
