"""How a factor changes the runs of an operator call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ..rebuild import Replayed
from ..recorded_call import CallFamily, RecordedCall


class Caches(Enum):
    """What the caches have of the operands when a run begins."""

    AS_IN_STEP = "what the step leaves there"
    COLD = "nothing"
    WARM = "what the run before left there"


@dataclass(frozen=True)
class Runnable:
    """One call of a term at one batch size, ready to run.

    Attributes:
        family: the call over batch sizes.
        call: the call at this batch size.
        overload: torch's operator.
        arguments: values in the order of the operator's schema.
        run: function that runs the call once and returns its results.
        notes: assumptions, one clause each.
        converted: weights in another form, by factor and identity of the weights; calls at all batch sizes share it.
    """

    family: CallFamily
    call: RecordedCall
    overload: Any
    arguments: tuple[Any, ...]
    run: Callable[[], Any]
    notes: tuple[str, ...] = ()
    converted: dict[tuple[str, int], Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, family: CallFamily, replayed: Replayed, converted: dict[tuple[str, int], Any] | None = None
    ) -> Runnable:
        """The call as it was rebuilt."""
        arguments, notes = tuple(replayed.arguments), replayed.notes
        shared = {} if converted is None else converted
        return cls(family, replayed.call, replayed.overload, arguments, replayed.bind(), notes, shared)

    def with_arguments(self, arguments: tuple[Any, ...]) -> Runnable:
        """The same operator on other arguments."""
        return replace(self, arguments=arguments, run=self.bind(arguments))

    def bind(self, arguments: tuple[Any, ...]) -> Callable[[], Any]:
        """A function that runs the operator on these arguments."""
        return Replayed(self.call, self.overload, list(arguments)).bind()


@dataclass(frozen=True)
class Change:
    """What a factor changes; without an entry nothing.

    Attributes:
        around: function that makes the context of all runs of a visit.
        call: function that returns the changed call, from the call and the increasing batch sizes of the experiment.
            It raises `CannotReplay` with the reason if this call cannot be changed, or returns the same object if the
            change leaves it as it is.
        piece: takes the calls of a term and the batch sizes of the experiment; gives the batch size of the pieces in
            which the term runs larger batch sizes, or None if there is nothing to divide.
        caches: content of the caches when a run begins.
        discarded: number of runs to discard in a visit.
        same_work: whether the operators do the same in every case, so that their results need no comparison.
    """

    around: Callable[[], AbstractContextManager[object]] = nullcontext
    call: Callable[[Runnable, tuple[int, ...]], Runnable] | None = None
    piece: Callable[[Sequence[CallFamily], Sequence[int]], int | None] | None = None
    caches: Caches = Caches.AS_IN_STEP
    discarded: int = 1
    same_work: bool = False

    @property
    def only_chooses(self) -> bool:
        """Whether it changes nothing but the library's choice of kernels."""
        return self.call is None and self.piece is None and not self.same_work


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
