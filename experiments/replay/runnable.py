"""One call of a term at one batch size, ready to run; and settings of the process that hold while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from .rebuild import Replayed
from .recorded_call import CallFamily, RecordedCall


@dataclass(frozen=True, kw_only=True)
class Runnable:
    """One call of a term at one batch size, ready to run."""

    family: CallFamily
    call: RecordedCall
    overload: Any
    arguments: tuple[Any, ...]  # values in the order of the operator's schema
    run: Callable[[], Any]  # function that runs the call once and returns its results
    notes: tuple[str, ...] = ()  # assumptions, one clause each
    # Weights in another form, by factor and identity of the weights; calls at all batch sizes share it.
    converted: dict[tuple[str, int], Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, family: CallFamily, replayed: Replayed, converted: dict[tuple[str, int], Any] | None = None
    ) -> Runnable:
        """The call as it was rebuilt."""
        return cls(
            family=family,
            call=replayed.call,
            overload=replayed.overload,
            arguments=tuple(replayed.arguments),
            run=replayed.bind(),
            notes=replayed.notes,
            converted={} if converted is None else converted,
        )

    def with_arguments(self, arguments: tuple[Any, ...]) -> Runnable:
        """The same operator on other arguments."""
        return replace(self, arguments=arguments, run=self.bind(arguments))

    def bind(self, arguments: tuple[Any, ...]) -> Callable[[], Any]:
        """A function that runs the operator on these arguments."""
        return Replayed(self.call, self.overload, list(arguments)).bind()


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
