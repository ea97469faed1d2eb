"""Measurers, and the one of this machine, which runs each visit in its own process.

A visit that runs out of memory or crashes its process is a result. Processes are forked from a server that has torch
loaded and has never used a device.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from ..errors import CurvescopeError
from ..hardware.clocks import ClockSampler
from ..hardware.memory_usage import limit_memory
from ..workload.network_step import Workload, import_torch, pick_device, prepare_libraries
from .experiment import Empty, Visit
from .machine import Machine, describe_machine
from .protocol import Protocol
from .visit import OUT_OF_MEMORY, visit

if TYPE_CHECKING:
    from .configuration import Configuration

FAILED = "failed"
KILLED = "killed"
_SAMPLING_S = 0.5
# Optimizers and the profiler import torch._dynamo, 1.5 s of CPU for every visit. None of these modules opens a device
# or starts a thread; neither would survive a fork.
PRELOADED = ("torch", "torch._dynamo", "torch.profiler")


class Measurer:
    """Measures visits, one at a time.

    Attributes:
        machine: where it measures; set by `describe`.
    """

    machine: Machine

    def describe(self, device: str) -> Machine | Empty:
        """Describe the machine and the device, or the reason why it cannot measure."""
        result: Machine | Empty = self._run("describe", device)
        if isinstance(result, Machine):
            self.machine = result
        return result

    def visit(self, configuration: Configuration, batch: int, protocol: Protocol) -> Visit | Empty:
        """Make one visit."""
        result: Visit | Empty = self._run("visit", configuration, batch, protocol)
        return result

    def fits(self, configuration: Configuration, batch: int) -> bool:
        """Whether a step of this batch size runs."""
        return self._run("fits", configuration, batch) is True

    def done(self) -> None:
        """Release what it holds: no more visits follow."""

    def stop(self) -> None:
        """From another thread: end the running call, and later ones, with a KeyboardInterrupt."""

    def _run(self, name: str, *arguments: Any) -> Any:
        """Run one of `_FUNCTIONS` where it measures; returns its result or `Empty`."""
        raise NotImplementedError


class LocalMeasurer(Measurer):
    """Measures on this machine, each visit in its own process; a context manager that ends the running process.

    SIGINT reaches the waiting call by itself, so `stop` does nothing.
    """

    def __init__(self, while_waiting: Callable[[], None] = lambda: None) -> None:
        """Prepare the server of processes.

        Args:
            while_waiting: called twice a second; an error that it raises ends the visit.
        """
        prepare_libraries()  # the server inherits this environment, and loads torch with it
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, __name__])
        self._running: Any = None
        self._while_waiting = while_waiting

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.join()

    def pick(self, name: str | None) -> str | Empty:
        """Find a device of this machine by name; see `pick_device`."""
        device: str | Empty = self._run("pick", name)
        return device

    def visit(self, configuration: Configuration, batch: int, protocol: Protocol) -> Visit | Empty:
        """Make one visit, and sample clocks meanwhile."""
        with ClockSampler(configuration.device) as clocks:
            result: Visit | Empty = self._run("visit", configuration, batch, protocol, clocks=clocks)
        return result if isinstance(result, Empty) else replace(result, clocks=clocks.take())

    def _run(self, name: str, *arguments: Any, clocks: ClockSampler | None = None) -> Any:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(sender, _FUNCTIONS[name], arguments))
        process.start()
        self._running = process  # from here on it can be killed; before, it ends with the server
        sender.close()
        result: Any = None
        while result is None:
            try:
                if receiver.poll(_SAMPLING_S):
                    result = receiver.recv()
                    continue
                if clocks is not None:
                    clocks.sample()
                self._while_waiting()
            except EOFError:
                break
        process.join()
        self._running = None
        receiver.close()
        return _describe_exit(process.exitcode) if result is None else result


def _describe_exit(exitcode: int | None) -> Empty:
    """The outcome of a process that ended without a result."""
    if exitcode == -signal.SIGKILL:
        return Empty(KILLED, "SIGKILL, which the system sends when memory runs out")
    if exitcode is not None and exitcode < 0:
        return Empty(KILLED, signal.Signals(-exitcode).name)
    return Empty(KILLED, f"its process ended with exit code {exitcode}")


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the new process: run the function and send its result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends this process
    end_with_parent()
    try:
        result = function(*arguments)
    except CurvescopeError as error:
        result = Empty(FAILED, str(error))
    except MemoryError as error:
        result = Empty(OUT_OF_MEMORY, str(error) or "the system gave no more memory")
    except Exception as error:  # any error of a network costs this batch size alone
        result = Empty(FAILED, f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0])
    connection.send(result)
    connection.close()


def end_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Make the system send this process a signal when its parent ends, so that a killed run leaves no process."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, by)


def _visit(configuration: Configuration, batch: int, protocol: Protocol) -> Visit | Empty:
    workload = _build(configuration)
    # The first step of a process also loads the libraries' kernels and creates the optimizer's state.
    return visit(workload, batch, replace(protocol, discarded_steps=protocol.discarded_steps + 1))


def _fits(configuration: Configuration, batch: int) -> bool:
    # Two steps, because the first creates the optimizer's state.
    trial = Protocol("trial", (1, 1), 1, (1, 1), 0.0, 0, None)
    return isinstance(visit(_build(configuration), batch, trial), Visit)


def _build(configuration: Configuration) -> Workload:
    import_torch()
    if configuration.memory_limit_bytes is not None:
        limit_memory(configuration.device, configuration.memory_limit_bytes)
    network = configuration.find_network()
    return Workload(network, configuration.device, configuration.mode, configuration.precision, configuration.compiled)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pick": pick_device,
    "describe": describe_machine,
    "visit": _visit,
    "fits": _fits,
}
