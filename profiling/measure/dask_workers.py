"""The workers of a Dask cluster as measurers of a sweep: one per GPU, or several on a CPU.

The scheduler is the user's own, with the security that the user gave it: Curvescope starts none.

One worker measures all of a recording; if it ends, another with the same kind of device repeats the
lost visit. Only this process writes recordings, so a visit is recorded once or not at all.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

from ...base.errors import BackendMissingError, CurvescopeError
from . import worker_server
from .machine import Machine
from .sites.machines import Measurer
from .visits import Empty
from .workers import ATTEMPTS, Workers, abandon_visit, check_same_kind

_POLL_S = 0.5  # interval of the checks whether a worker is alive
_SUCCESSOR_S = 300.0  # a restarted worker first loads torch, on a machine that may be busy


class WorkerLostError(Exception):
    """A worker ended during a call."""


class DaskWorkers(Workers):
    """A connection to the workers of a Dask scheduler; a context manager that ends
    their servers.
    """

    def __init__(self, scheduler: str) -> None:
        """Create a connection to a scheduler by its address; `with` opens it, with the security of
        Dask's settings.
        """
        try:
            import distributed  # noqa: F401 - checks that it is installed
        except ImportError:
            raise BackendMissingError(
                "--scheduler needs Dask: pip install 'curvescope[cluster]'."
            ) from None
        self._scheduler, self._stack = scheduler, ExitStack()
        self._client: Any = None
        self._taken: set[str] = set()  # addresses of workers that measure or are being checked
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def __enter__(self) -> DaskWorkers:
        from distributed import Client

        try:
            client = Client(self._scheduler, timeout=10, set_as_default=False)
            self._client = self._stack.enter_context(client)
        except (
            OSError,
            TypeError,
            ValueError,
        ) as error:  # a tls:// address without keys is a TypeError
            self._stack.close()
            raise CurvescopeError(
                f"{self._scheduler}: no Dask scheduler answers there ({error})."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # a worker that ended has no server
            self._client.run(worker_server.end)
        self._stack.close()

    def addresses(self) -> set[str]:
        """Addresses of the live workers, from the scheduler; the client's cache may lack some."""
        return set(self._client.nthreads())

    def pick_device(self, name: str | None) -> str:
        """Find a device by name on one of the workers; see `Workers`."""
        addresses = self.addresses()
        if not addresses:
            raise CurvescopeError(
                f"{self._scheduler} has no workers: start one per GPU, with one thread each."
            )
        device = self._first_call(min(addresses), "pick", name)
        if isinstance(device, Empty):
            raise CurvescopeError(f"The workers cannot measure on {name}: {device.detail}")
        return str(device)

    def measurers(self, device: str, most: int) -> list[WorkerMeasurer]:
        """Use at most that many workers; see `Workers`."""
        addresses = sorted(self.addresses())
        with ThreadPoolExecutor(max(1, len(addresses))) as pool:  # each loads torch first
            described = list(
                pool.map(lambda address: self._first_call(address, "describe", device), addresses)
            )
        machines: dict[str, Machine] = {}
        for address, machine in zip(addresses, described, strict=True):
            if isinstance(machine, Empty):
                raise CurvescopeError(
                    f"The worker at {address} cannot measure on {device}: {machine.detail}"
                )
            machines[address] = machine
        check_same_kind(list(machines.values()), device)
        chosen = addresses[:most]
        self._taken = set(chosen)
        return [WorkerMeasurer(self, address, machines[address], device) for address in chosen]

    def _first_call(self, address: str, name: str, *arguments: Any) -> Any:
        """Call a worker for the first time; report missing packages."""
        try:
            return self.call(address, name, *arguments)
        except (WorkerLostError, ImportError, AttributeError) as error:
            raise CurvescopeError(
                f"The worker at {address} cannot measure ({type(error).__name__}: {error}). "
                "Workers need this version of Curvescope, torch, and your own networks."
            ) from error

    def call(self, address: str, name: str, *arguments: Any) -> Any:
        """Call a method of a worker's `LocalMeasurer`, and return its result.

        Raises:
            WorkerLostError: the worker, or its server, ended.
            KeyboardInterrupt: the sweep was stopped.
        """
        done = threading.Event()
        future = self._client.submit(
            worker_server.call, name, *arguments, workers=[address], pure=False, retries=0
        )
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(_POLL_S):
                if self.stopped.is_set():
                    raise KeyboardInterrupt
                if address not in self.addresses():
                    raise WorkerLostError(f"the worker at {address} ended")
            return future.result()
        except worker_server.ServerEnded as error:
            raise WorkerLostError(str(error)) from error
        finally:
            future.cancel(force=True)

    def release(self, address: str) -> None:
        """Free a worker that has nothing more to measure, so that it can replace another."""
        with self._lock:
            self._taken.discard(address)

    def successor(self, lost: str, machine: Machine, device: str) -> tuple[str, Machine]:
        """Wait for another free worker of the same kind, or the same one if it is alive, and take
        it.
        """
        deadline = time.monotonic() + _SUCCESSOR_S
        while time.monotonic() < deadline and not self.stopped.wait(_POLL_S):
            with self._lock:
                self._taken.discard(lost)
                free = sorted(self.addresses() - self._taken)
                self._taken |= set(free)  # while they are checked
            chosen: tuple[str, Machine] | None = None
            for address in free:
                with suppress(CurvescopeError):
                    candidate = self._first_call(address, "describe", device)
                    if (
                        chosen is None
                        and isinstance(candidate, Machine)
                        and candidate.kind == machine.kind
                    ):
                        chosen = address, candidate
            with self._lock:
                self._taken -= {
                    address for address in free if chosen is None or address != chosen[0]
                }
            if chosen is not None:
                return chosen
        if self.stopped.is_set():
            raise KeyboardInterrupt
        raise CurvescopeError(
            f"The worker at {lost} ended, and no other worker of its kind came within "
            f"{_SUCCESSOR_S:.0f} s. The recordings are kept: resume with "
            "`curvescope sweep --resume`."
        )


class WorkerMeasurer(Measurer):
    """Measures on one worker; if that ends, on another."""

    def __init__(self, cluster: DaskWorkers, address: str, machine: Machine, device: str) -> None:
        self._cluster = cluster
        self._address = address
        self._device = device
        self.machine = machine

    def done(self) -> None:
        """Free the worker."""
        self._cluster.release(self._address)

    def stop(self) -> None:
        """From another thread: end the running call, and later ones, with a KeyboardInterrupt."""
        self._cluster.stopped.set()

    def _run(self, name: str, *arguments: Any) -> Any:
        for _ in range(ATTEMPTS):
            try:
                return self._cluster.call(self._address, name, *arguments)
            except WorkerLostError:
                self._address, self.machine = self._cluster.successor(
                    self._address, self.machine, self._device
                )
        return abandon_visit()
