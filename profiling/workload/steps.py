"""The interface of everything that is timed, and steps that pass it on to a workload's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Steps:
    """Steps that can be timed: of a workload, or of one that a factor changes."""

    device: str  # `cpu` or `cuda:N`

    def load(self, batch: int) -> None:
        """Prepare the steps of one batch size; what an earlier one needed may be released."""
        raise NotImplementedError

    def submit(self) -> object:
        """Run one step of the loaded batch size, without waiting for the device.

        Returns what describes its result: the loss, the output of a forward pass, or the result of
        a user's step.
        """
        raise NotImplementedError

    def time_step(self) -> tuple[int, int]:
        """Run one step; returns its start on the clock and its duration, both in nanoseconds."""
        return self.time_run(self.submit)

    def time_run(self, run: Callable[[], object]) -> tuple[int, int]:
        """Time a function that runs one step without waiting for the device; see `time_step`."""
        raise NotImplementedError


class ChangedSteps(Steps):
    """Steps of a workload; a method that a subclass does not override is the workload's."""

    def __init__(self, workload: Any) -> None:
        self.workload = workload

    @property
    def device(self) -> str:  # type: ignore[override]  # the workload's may change when it loads
        return str(self.workload.device)

    @property
    def model(self) -> Any:
        """Module whose layers are marked; None if there is none."""
        return self.workload.model

    def load(self, batch: int) -> None:
        self.workload.load(batch)

    def submit(self) -> object:
        return self.workload.submit()

    def time_step(self) -> tuple[int, int]:
        start_ns, duration_ns = self.workload.time_step()
        return start_ns, duration_ns

    def time_run(self, run: Callable[[], object]) -> tuple[int, int]:
        start_ns, duration_ns = self.workload.time_run(run)
        return start_ns, duration_ns
