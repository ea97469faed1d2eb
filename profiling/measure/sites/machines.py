"""Machines that make each visit in a process of its own: this one and, in workers' modules, others.

Such a process costs seconds: if it crashes, that is a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....base.torch_runtime import pick_device
from ...hardware.clocks import ClockSampler
from ..configuration import Configuration
from ..machine import Machine, describe_machine
from ..processes import ChildProcess
from ..protocol import Protocol
from ..visits import Empty, Visit, VisitPlan
from .here import LocalSteps, build_workload
from .site import ONE_VISIT, Facts

# The first step of a process also loads the libraries' kernels and creates the optimizer's state.
IN_VISIT = Facts(ONE_VISIT, discards=1, samples_clocks=True)
_TRIAL = Protocol("trial", (1, 1), 0, (1, 1), 0.0, 0, None)  # one step after the discarded one


class Measurer:
    """Makes visits of any configuration, one at a time, each in a process of its own."""

    machine: Machine  # set by `describe`

    def describe(self, device: str) -> Machine | Empty:
        """Describe the machine and the device, or the reason why it cannot measure."""
        result: Machine | Empty = self._run("describe", device)
        if isinstance(result, Machine):
            self.machine = result
        return result

    def visit(self, configuration: Configuration, batch: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit, in a process of its own."""
        result: Visit | Empty = self._run("visit", configuration, batch, how)
        return result

    def fits(self, configuration: Configuration, batch: int) -> bool:
        """Whether a step of this batch size runs."""
        return isinstance(self.visit(configuration, batch, VisitPlan(_TRIAL)), Visit)

    def done(self) -> None:
        """Release its resources: no more visits follow."""

    def stop(self) -> None:
        """From another thread: end the running call, and later ones, with a KeyboardInterrupt."""

    def _run(self, name: str, *arguments: Any) -> Any:
        """Run one of `_Functions` where it measures; returns its result or `Empty`."""
        raise NotImplementedError


class LocalMeasurer(Measurer):
    """Measures on this machine, each visit in its own process; a context manager that ends the
    running process.

    SIGINT reaches the waiting call by itself, so `stop` does nothing.
    """

    def __init__(self, while_waiting: Callable[[], None] = lambda: None) -> None:
        """Prepare to measure; an error of a function that is called twice a second ends
        the visit.
        """
        self._running: ChildProcess | None = None
        self._while_waiting = while_waiting

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.end()

    def pick(self, name: str | None) -> str | Empty:
        """Find a device of this machine by name; see `pick_device`."""
        device: str | Empty = self._run("pick", name)
        return device

    def visit(self, configuration: Configuration, batch: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit, and sample clocks meanwhile, also where its process takes no sample
        between steps.
        """
        with ClockSampler(configuration.device) as clocks:
            result: Visit | Empty = self._run("visit", configuration, batch, how, clocks=clocks)
        if isinstance(result, Empty):
            return result
        return replace(result, clocks=[*clocks.take(), *result.clocks])

    def _run(self, name: str, *arguments: Any, clocks: ClockSampler | None = None) -> Any:
        def wait() -> None:
            if clocks is not None:
                clocks.sample()
            self._while_waiting()

        self._running = ChildProcess(_Functions)
        result = self._running.call(name, *arguments, while_waiting=wait)
        self._running.end()
        self._running = None
        return result


class _Functions:
    """The task of a process of a visit."""

    pick = staticmethod(pick_device)
    describe = staticmethod(describe_machine)

    @staticmethod
    def visit(configuration: Configuration, batch: int, how: VisitPlan) -> Visit | Empty:
        workload = build_workload(configuration)
        workload.finds_peak = how.operators  # both once for each batch size
        return LocalSteps(workload, IN_VISIT).visit(batch, how)
