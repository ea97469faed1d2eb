"""A site: a place where steps run. It makes visits, and says its work around timed steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...recording.remote_store import AnyPath
from ..protocol import Protocol
from ..visits import Empty, Visit, VisitPlan

RUN = "run"
ROUND = "round"
ONE_VISIT = "visit"
AS_LEFT = "as left"  # caches with what earlier steps left in them


@dataclass(frozen=True)
class Facts:
    """The work of a site around the timed steps of every visit."""

    kept: str  # how long the process of the steps lives: for a run, a round or one visit
    discards: int = 0  # steps that are not recorded, besides those of the protocol
    warm_up_s: float = 0.0  # least seconds of discarded steps, and of those before a profiled one
    runs_reference: bool = False  # between timed steps
    samples_clocks: bool = False  # around a visit and between timed steps
    waits: bool = False  # after a visit, until the threads of the process leave the cores
    compiles: bool = False  # a size that has not run would be compiled
    caches: str = AS_LEFT  # what is done to the caches before each timed step


# Of a process that stays while others run: between its visits it must not disturb them.
STAYS = Facts(RUN, waits=True)


class Site(ABC):
    """A place where the steps of one network, function, program, kernel or term run."""

    @abstractmethod
    def facts(self) -> Facts:
        """What the site does around timed steps."""

    @abstractmethod
    def visit(self, condition: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit of a batch size, or of another value of the steps' axis."""

    def end(self) -> None:  # noqa: B027 - every run of a program has ended
        """Release the steps, and end what the site started."""


class SweptSite(Site):
    """A site whose steps a sweep records."""

    @property
    @abstractmethod
    def spec(self) -> Mapping[str, Any]:
        """Entries of `recording.json` that describe the steps."""

    @abstractmethod
    def begin(self, batches: Sequence[int], protocol: Protocol, recording: AnyPath) -> None:
        """Run a step of the smallest size, to check the steps before anything is recorded.

        A run may begin twice; `recording` is the folder that it will write.
        """

    @abstractmethod
    def machine_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of `recording.json` that describe the machine, with what only the steps'
        process knows.
        """

    def start_s(self, condition: int) -> float | None:  # noqa: ARG002 - a program's starts depend on it
        """Expected seconds of a visit beside its steps; None if the visit is made already."""
        return 0.0

    def keep_only(self, sizes: Sequence[int]) -> None:
        """Release the memory of other sizes."""

    def closing_entry(self) -> dict[str, Any]:
        """Further entries of `recording.json`, of what all visits showed."""
        return {}
