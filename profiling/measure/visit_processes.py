"""Who measures for a sweep: this machine, each visit in a process of its own.

A visit that runs out of memory, or takes its process down, is a result. Processes are forked from a server that has
torch loaded and has never used a device.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import CurvescopeError
from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_device, describe_host, describe_versions
from ..hardware.memory_usage import limit_memory
from ..workload.network_step import Workload, import_torch, pick_device
from .clock_alignment import clock_identity
from .experiment import Empty, Visit
from .protocol import Protocol as Repeats
from .visit import OUT_OF_MEMORY, visit

if TYPE_CHECKING:
    from .configuration import Setting

FAILED = "failed"
KILLED = "killed"
_SAMPLING_S = 0.5
# Optimizers and the profiler import torch._dynamo, 1.5 s of CPU that every visit would pay. None of these asks for a
# device or starts a thread, which a fork would not survive.
PRELOADED = ("torch", "torch._dynamo", "torch.profiler")


@dataclass(frozen=True)
class Machine:
    """Where is measured.

    Attributes:
        device: as `describe_device` has it.
        host: as `describe_host` has it.
        versions: as `describe_versions` has them.
        ceilings: measured peaks of the device; null where there are none.
        cudnn_workspace_limit_mib: cap of the workspace of cuDNN's convolutions (CUDNN_CONV_WSCAP_DBG).
        clocks_missing: why clocks are not sampled there; null where they are.
        identity: tells machines apart, and on one machine GPUs; only ever compared, never stored.
    """

    device: dict[str, Any]
    host: dict[str, Any]
    versions: dict[str, str | None]
    ceilings: dict[str, Any] | None
    cudnn_workspace_limit_mib: str | None
    clocks_missing: str | None
    identity: str

    @property
    def entry(self) -> dict[str, Any]:
        """What `recording.json` says of it."""
        return {key: value for key, value in asdict(self).items() if key != "identity"}

    @property
    def kind(self) -> dict[str, Any]:
        """What has to be alike for two of them to measure one recording."""
        torch = {"torch": self.versions["torch"], "cpu": self.host["cpu"], "cores": self.host["usable_cores"]}
        return {**self.device, **torch}


class Measurer(Protocol):
    """Measures visits, in turn.

    Attributes:
        machine: where it does, once that was described.
    """

    machine: Machine

    def describe(self, device: str) -> Machine | Empty:
        """Where it measures, or why it cannot."""

    def visit(self, setting: Setting, batch: int, protocol: Repeats) -> Visit | Empty:
        """One visit."""

    def fits(self, setting: Setting, batch: int) -> bool:
        """Whether a step of that batch size can be run."""

    def done(self) -> None:
        """Say that nothing more is asked."""

    def stop(self) -> None:
        """From another thread: have what is asked for now, or later, end in a KeyboardInterrupt."""


class LocalMeasurer:
    """Measures on this machine, each visit in a process of its own; a context manager that ends what still runs."""

    def __init__(self, while_waiting: Callable[[], None] = lambda: None) -> None:
        """Get the server of processes ready.

        Args:
            while_waiting: called twice a second; what it raises ends the visit.
        """
        self.machine: Machine
        self._processes = _Processes()
        self._while_waiting = while_waiting

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.end()

    def pick(self, name: str | None) -> str | Empty:
        """The device of that name here; see `pick_device`."""
        found: str | Empty = self._processes.ask(pick_device, name, while_waiting=self._while_waiting)
        return found

    def describe(self, device: str) -> Machine | Empty:
        """Where it measures, or why it cannot."""
        found: Machine | Empty = self._processes.ask(_describe, device, while_waiting=self._while_waiting)
        if isinstance(found, Machine):
            self.machine = found
        return found

    def visit(self, setting: Setting, batch: int, protocol: Repeats) -> Visit | Empty:
        """One visit."""
        clocks = ClockSampler(setting.device)

        def wait() -> None:
            clocks.sample()
            self._while_waiting()

        with clocks:
            found = self._processes.ask(_visit, setting, batch, protocol, while_waiting=wait)
        assert isinstance(found, (Visit, Empty))
        return found if isinstance(found, Empty) else replace(found, clocks=clocks.take())

    def fits(self, setting: Setting, batch: int) -> bool:
        """Whether a step of that batch size can be run."""
        found = self._processes.ask(_try, setting, batch, while_waiting=self._while_waiting)
        return not isinstance(found, Empty)

    def done(self) -> None:
        """Nothing: the next visit may begin whenever it is asked for."""

    def stop(self) -> None:
        """Nothing: who interrupts this process interrupts what waits here."""


class _Processes:
    """Runs functions each in a process of its own."""

    def __init__(self) -> None:
        from ..collect.onednn import prepare_libraries

        prepare_libraries()  # the server takes this process's environment, and loads torch with it
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, __name__])
        self._running: Any = None

    def end(self) -> None:
        """End what still runs."""
        if self._running is not None:
            self._running.kill()
            self._running.join()

    def ask(
        self, function: Callable[..., Any], *arguments: Any, while_waiting: Callable[[], None] = lambda: None
    ) -> Any:
        """What the function returns there, or how it failed or its process ended instead (`Empty`)."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(theirs, function, arguments))
        process.start()
        self._running = process  # from here on there is something to kill; before, it ends with the server
        theirs.close()
        answer: Any = None
        while answer is None:
            try:
                if ours.poll(_SAMPLING_S):
                    answer = ours.recv()
                else:
                    while_waiting()
            except EOFError:
                break
        process.join()
        self._running = None
        ours.close()
        if answer is None:
            return _ended(process.exitcode)
        return answer


def _ended(exitcode: int | None) -> Empty:
    """A process that ended without an answer."""
    if exitcode == -signal.SIGKILL:
        return Empty(KILLED, "SIGKILL, which the system sends when memory runs out")
    if exitcode is not None and exitcode < 0:
        return Empty(KILLED, signal.Signals(-exitcode).name)
    return Empty(KILLED, f"its process ended with exit code {exitcode}")


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the process of its own: run the function and send what it returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asking process is interrupted, and ends this one
    end_with_parent()
    try:
        answer = function(*arguments)
    except CurvescopeError as error:
        answer = Empty(FAILED, str(error))
    except MemoryError as error:
        answer = Empty(OUT_OF_MEMORY, str(error) or "the system gave no more memory")
    except Exception as error:  # whatever a network raises costs this cell alone
        answer = Empty(FAILED, f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0])
    connection.send(answer)
    connection.close()


def end_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have the system send this process a signal when its parent ends: a killed run leaves nothing running."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, by)


def _describe(device: str) -> Machine:
    described = describe_device(device)
    return Machine(
        described,
        describe_host(),
        describe_versions(),
        ceilings.entry_for(described),
        os.environ.get("CUDNN_CONV_WSCAP_DBG"),
        ClockSampler(device).missing,
        f"{clock_identity()} {_gpu(device)}",
    )


def _gpu(device: str) -> str:
    """What tells a GPU from others of its machine."""
    if device == "cpu":
        return device
    facts = import_torch().cuda.get_device_properties(device)
    return str(getattr(facts, "uuid", device))


def _visit(setting: Setting, batch: int, protocol: Repeats) -> Visit | Empty:
    workload = _build(setting)
    # Fresh processes pay for more than a change of batch size does: the libraries' kernels, the optimizer's state.
    return visit(workload, batch, replace(protocol, discarded_steps=protocol.discarded_steps + 1))


def _try(setting: Setting, batch: int) -> Visit | Empty:
    # The optimizer's state is there from the second step on.
    once = Repeats("trial", (1, 1), 1, (1, 1), 0.0, 0, None)
    return visit(_build(setting), batch, once)


def _build(setting: Setting) -> Workload:
    import_torch()
    if setting.memory_limit_bytes is not None:
        limit_memory(setting.device, setting.memory_limit_bytes)
    return Workload(setting.find_network(), setting.device, setting.mode, setting.precision, setting.compiled)
