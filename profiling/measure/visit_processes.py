"""Measurers, and the one of this machine, which runs each visit in its own process: if that
crashes, it is a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...base.torch_runtime import load_torch, pick_device
from ..hardware.clocks import ClockSampler
from ..hardware.memory_usage import limit_memory
from ..workload.any_workload import AnyWorkload
from .machine import Machine, describe_machine
from .processes import ChildProcess
from .protocol import Protocol
from .visit import count_page_faults, visit
from .visits import Empty, Visit, VisitPlan

if TYPE_CHECKING:
    from .configuration import Configuration


class Measurer:
    """Measures visits, one at a time."""

    machine: Machine  # set by `describe`

    def describe(self, device: str) -> Machine | Empty:
        """Describe the machine and the device, or the reason why it cannot measure."""
        result: Machine | Empty = self._run("describe", device)
        if isinstance(result, Machine):
            self.machine = result
        return result

    def visit(
        self, configuration: Configuration, batch: int, protocol: Protocol, count_faults: bool
    ) -> Visit | Empty:
        """Make one visit; for `count_faults` see `visit.count_page_faults`: a batch size needs one
        such visit.
        """
        result: Visit | Empty = self._run("visit", configuration, batch, protocol, count_faults)
        return result

    def fits(self, configuration: Configuration, batch: int) -> bool:
        """Whether a step of this batch size runs."""
        return self._run("fits", configuration, batch) is True

    def done(self) -> None:
        """Release what it holds: no more visits follow."""

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

    def visit(
        self, configuration: Configuration, batch: int, protocol: Protocol, count_faults: bool
    ) -> Visit | Empty:
        """Make one visit, and sample clocks meanwhile, also where its process takes no sample
        between steps.
        """
        with ClockSampler(configuration.device) as clocks:
            result: Visit | Empty = self._run(
                "visit", configuration, batch, protocol, count_faults, clocks=clocks
            )
        return (
            result
            if isinstance(result, Empty)
            else replace(result, clocks=[*clocks.take(), *result.clocks])
        )

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


def build_workload(configuration: Configuration) -> AnyWorkload:
    """Build the steps of a configuration in this process, under its memory limit."""
    load_torch()
    if configuration.memory_limit_bytes is not None:
        limit_memory(configuration.device, configuration.memory_limit_bytes)
    return configuration.build()


class _Functions:
    """What a process of a visit runs."""

    pick = staticmethod(pick_device)
    describe = staticmethod(describe_machine)

    @staticmethod
    def visit(
        configuration: Configuration, batch: int, protocol: Protocol, count_faults: bool
    ) -> Visit | Empty:
        workload = build_workload(configuration)
        workload.finds_peak = count_faults  # both once for each batch size
        clocks = ClockSampler(configuration.device)
        # The first step of a process also loads the libraries' kernels and creates the optimizer's
        # state.
        protocol = replace(protocol, discarded_steps=protocol.discarded_steps + 1)
        result = visit(workload, batch, VisitPlan(protocol), clocks.sample_sometimes)
        if count_faults:
            count_page_faults(workload, result)
        return result if isinstance(result, Empty) else replace(result, clocks=clocks.take())

    @staticmethod
    def fits(configuration: Configuration, batch: int) -> bool:
        # Two steps, because the first creates the optimizer's state.
        trial = Protocol("trial", (1, 1), 1, (1, 1), 0.0, 0, None)
        return isinstance(visit(build_workload(configuration), batch, VisitPlan(trial)), Visit)
