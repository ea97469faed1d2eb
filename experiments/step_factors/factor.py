"""What a factor of complete steps is: a change of one thing, made in a worker process of its own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...base.errors import CurvescopeError
from ...profiling.measure.configuration import Configuration
from ...profiling.measure.loop import StepRow
from ...profiling.measure.visit import Steps
from ...profiling.recording.experiments import FactorFacts

# Threads of a step wait for each other too: a smaller share of the time without a core is no contention.
LEAST_WAIT = 0.05


@dataclass(frozen=True)
class Target:
    """The steps that an experiment runs.

    Attributes:
        configuration: network or step, and how it runs, as in the recording.
        batches: batch sizes of the experiment, increasing.
        full_bytes: by batch size, the memory with which its steps are as full as those of the largest batch size of the
            experiment were with all memory of the CUDA device; empty if unknown.
    """

    configuration: Configuration
    batches: tuple[int, ...]
    full_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether the steps run on a CUDA device."""
        return self.configuration.device != "cpu"


class StepFactor:
    """One change of an experiment's steps; without an override nothing changes.

    Attributes:
        FACTS: description of the change, for readers of a recording.
        target: the steps that it changes.
    """

    FACTS: ClassVar[FactorFacts]

    def __init__(self, target: Target) -> None:
        """Take the steps that it changes."""
        self.target = target

    @property
    def facts(self) -> FactorFacts:
        """What it changes in these steps."""
        return self.FACTS

    def reason_against(self) -> str | None:
        """The reason why these steps cannot be changed; None if they can, as far as is known before a worker starts."""
        return None

    def changed_results(self) -> str | None:
        """What the change does to the results by its nature, beyond rounding; None if nothing.

        With None, the results of the first steps are compared.
        """
        return None

    def configure(self) -> Configuration:
        """The configuration of the changed steps."""
        return self.target.configuration

    def prepare(self) -> None:
        """Change the worker process, before the steps are built.

        Raises:
            CurvescopeError: this machine or installation does not allow the change; the message is the reason.
        """

    def change(self, workload: Any) -> Steps:
        """Change the built steps.

        Args:
            workload: workload of the configuration.

        Raises:
            CurvescopeError: these steps do not allow the change; the message is the reason.
        """
        steps: Steps = workload
        return steps

    def without_effect(self, unchanged: Sequence[StepRow], changed: Sequence[StepRow]) -> str | None:  # noqa: ARG002
        """The reason why the change did not take effect, as a clause; None if it did, or if nothing shows it.

        Args:
            unchanged: rows of the table `experiments` of the steps as they are, without the columns of the experiment.
            changed: the same of the changed steps.
        """
        return None


class ChangedSteps:
    """Steps of a workload that load or run in another way; without an override they are the workload's."""

    def __init__(self, workload: Any) -> None:
        """Wrap a workload."""
        self.workload = workload

    @property
    def device(self) -> str:
        """See `Steps`."""
        return str(self.workload.device)

    def load(self, batch: int) -> None:
        """See `Steps`."""
        self.workload.load(batch)

    def submit(self) -> object:
        """See `Steps`."""
        return self.workload.submit()

    def time_step(self) -> tuple[int, int]:
        """See `Steps`."""
        start_ns, duration_ns = self.workload.time_step()
        return start_ns, duration_ns


class ChangedModule(ChangedSteps):
    """Steps whose module is changed in place, before its first step."""

    def __init__(self, workload: Any, change: Callable[[Any], object]) -> None:
        """Wrap a workload.

        Args:
            workload: the workload; a user's step may name another module after each `load`.
            change: changes a module in place.
        """
        super().__init__(workload)
        self._change, self._changed = change, weakref.WeakSet[Any]()

    def load(self, batch: int) -> None:
        """See `Steps`."""
        super().load(batch)
        module = self.workload.model
        if module is None:
            raise CurvescopeError("the step names no module: give it the attribute `module`")
        if module not in self._changed:
            self._change(module)
            self._changed.add(module)


def waiting_share(rows: Iterable[StepRow]) -> float | None:
    """Share of the runnable time in which threads waited for a core; None if unknown."""
    used = [(row.get("cpu_time_ns"), row.get("run_queue_wait_ns")) for row in rows]
    known = [(cpu, wait) for cpu, wait in used if cpu is not None and wait is not None]
    runnable = sum(cpu + wait for cpu, wait in known)
    return sum(wait for _, wait in known) / runnable if runnable else None
