"""A visit: a condition, how it is visited, the steps, and the facts that a rule looks at."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from ..attribution.events import StepRows
from .protocol import Protocol

# What is visited: a batch size or another value of an axis, with a factor, a version or devices.
Condition = TypeVar("Condition", bound=Hashable)
StepRow = dict[str, Any]  # a row of the `steps` table

# Reasons of an `Empty`.
OUT_OF_MEMORY = "out of memory"
KILLED = "killed"
FAILED = "failed"


@dataclass(frozen=True)
class VisitPlan:
    """How a visit is made."""

    protocol: Protocol
    round_: int = 0  # from 0
    profile: bool = True  # whether steps are profiled; else some are marked only
    spare_s: float = math.inf  # that marked and profiled steps may take
    # marks are known to cost next to nothing of a step: then all timed steps are marked
    light: bool = False
    # the page faults of operators are counted: once for each batch size
    operators: bool = False
    is_probe: bool = False  # a few steps, with nothing beside them


@dataclass(frozen=True)
class Empty:
    """The reason why a condition has no measurement."""

    why: str  # e.g. out of memory, killed or failed
    detail: str  # message of the library or the operating system


@dataclass(frozen=True)
class Visit:
    """The steps of one visit; rows lack the columns that `VisitWriter` adds, as `batch`."""

    # rows of `steps`; of marked steps too, where their marks cost next to nothing
    unprofiled: list[StepRow]
    profiled: list[StepRows] = field(default_factory=list)  # of each step, with one window
    profile_fits: bool = True  # False if a step fitted the memory only without the profiler
    marked: list[list[dict[str, Any]]] = field(default_factory=list)  # rows of `marks`, by step
    clocks: list[dict[str, Any]] = field(default_factory=list)  # rows of `clocks`
    layer_classes: dict[str, str] = field(default_factory=dict)  # by path
    # that ran it beside PyTorch, with their versions
    frameworks: dict[str, str | None] = field(default_factory=dict)
    # of these, the threads that each computes with on a CPU
    framework_threads: dict[str, int | None] = field(default_factory=dict)
    # of making the step and running it first, where this visit did that; compilation is in it
    setup_ns: int | None = None
    discarded_steps: int = 1  # that were not recorded
    # growth of the memory that is held, a timed step; None if unknown
    grown_bytes: float | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)  # rows of `lines`
    peak: Sequence[dict[str, Any]] = ()  # rows of `peaks`
    warning: str | None = None  # what disturbed it, as a sentence

    @property
    def timed_steps(self) -> int:
        """Number of steps without the profiler, with marks or not."""
        unmarked = sum(not row.get("marked") for row in self.unprofiled)
        return unmarked + len(self.marked)


@dataclass(frozen=True, kw_only=True)
class Look(Generic[Condition]):
    """The state of a run before a round."""

    round_: int  # from 0
    elapsed_s: float  # since the run began
    conditions: Sequence[Condition]  # that need a visit, in the order of the round
    # of the last visit of each condition, which predicts the next
    visit_s: Mapping[Condition, float]
    rows: Callable[[], Sequence[StepRow]]  # of all steps so far

    @property
    def end_s(self) -> float:
        """Seconds at which a round over the conditions is expected to end."""
        return self.elapsed_s + sum(
            self.visit_s.get(condition, 0.0) for condition in self.conditions
        )

    def of(self, chosen: Collection[Condition]) -> Look[Condition]:
        """The same state for a round over some of the conditions."""
        return replace(
            self, conditions=[condition for condition in self.conditions if condition in chosen]
        )
