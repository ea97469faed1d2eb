"""The workers of a Dask cluster as measurers of a sweep: one per GPU, on a CPU one per worker.

A recording is measured by one worker, all its rounds and batch sizes, for these are held against each other. If that
worker ends, another of the same kind of device goes on with the visit that was lost. What is measured comes back here,
and this process alone writes: a visit is recorded once, or not at all.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from ..errors import BackendMissingError, CurvescopeError
from . import worker_server
from .experiment import Empty
from .visit_processes import KILLED, Machine

if TYPE_CHECKING:
    from .configuration import Setting
    from .experiment import Visit
    from .protocol import Protocol

LOCAL = "local"
_LOOK_S = 0.5  # how often is looked whether a worker is still there
_SUCCESSOR_S = 300.0  # a worker that is started again loads torch first, on a machine that may be busy
_TRIES = 3  # of one visit, each of which ended its worker


class WorkerLostError(Exception):
    """A worker ended with what it was asked."""


class SweepCluster:
    """A connection to the workers; a context manager that ends the servers, and the workers it started itself."""

    def __init__(self, scheduler: str, workers: int | None, gpus: Sequence[str] = (), threads: int = 1) -> None:
        """Say which.

        Args:
            scheduler: address of a Dask scheduler, or `local` for workers of our own.
            workers: how many of our own on a CPU.
            gpus: GPUs of this machine as CUDA_VISIBLE_DEVICES names them: a worker of our own for each.
            threads: of each of our own on a CPU.

        Raises:
            BackendMissingError: Dask is not installed.
        """
        try:
            import distributed  # noqa: F401 - only whether it is here
        except ImportError:
            raise BackendMissingError("--scheduler needs Dask: pip install 'curvescope[cluster]'.") from None
        self._scheduler, self._stack = scheduler, ExitStack()
        self._environments: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
        if not gpus:
            limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
            self._environments = [limits] * (workers or 1)
        self._client: Any = None
        self._taken: set[str] = set()  # addresses of workers that measure, or must not
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def __enter__(self) -> SweepCluster:
        from distributed import Client

        try:
            cluster = self._stack.enter_context(self._start()) if self._scheduler == LOCAL else self._scheduler
            self._client = self._stack.enter_context(Client(cluster, timeout=10, set_as_default=False))
        except (OSError, ValueError) as error:
            self._stack.close()
            raise CurvescopeError(f"{self._scheduler}: no Dask scheduler answers there ({error}).") from error
        if self._scheduler == LOCAL:
            self._client.wait_for_workers(len(self._environments))
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # a worker that is gone has no server either
            self._client.run(worker_server.end)
        self._stack.close()

    def _start(self) -> Any:
        import logging

        from distributed import Nanny, Scheduler, SpecCluster

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        options = [{"nthreads": 1, "env": env, "silence_logs": logging.CRITICAL} for env in self._environments]
        return SpecCluster(
            workers={place: {"cls": Nanny, "options": each} for place, each in enumerate(options)},
            scheduler={
                "cls": Scheduler,
                "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
            },
            silence_logs=logging.CRITICAL,
        )

    def addresses(self) -> set[str]:
        """Workers that are there, by the scheduler's own word: what the client keeps may lack some."""
        return set(self._client.nthreads())

    def pick_device(self, name: str | None) -> str:
        """The device of that name on the workers, as one of them understands it.

        Raises:
            CurvescopeError: there is no worker, or it has no such device.
        """
        found = self._first(self._some_worker(), "pick", name)
        if isinstance(found, Empty):
            raise CurvescopeError(f"The workers: {found.detail}")
        return str(found)

    def measurers(self, device: str, most: int) -> list[WorkerMeasurer]:
        """Workers as measurers.

        Args:
            device: that each measures on.
            most: how many at most.

        Raises:
            CurvescopeError: they are not of one kind, share a GPU, or cannot measure.
        """
        there = sorted(self.addresses())
        with ThreadPoolExecutor(max(1, len(there))) as pool:  # each loads torch first
            described = list(pool.map(lambda address: self._first(address, "describe", device), there))
        machines: dict[str, Machine] = {}
        for address, found in zip(there, described, strict=True):
            if isinstance(found, Empty):
                raise CurvescopeError(f"The worker at {address} cannot measure on {device}: {found.detail}")
            machines[address] = found
        self._check(machines, device)
        chosen = list(machines)[:most]
        self._taken = set(chosen)
        return [WorkerMeasurer(self, address, machines[address], device) for address in chosen]

    def _check(self, machines: dict[str, Machine], device: str) -> None:
        kinds: dict[str, int] = {}
        for machine in machines.values():
            kinds[str(machine.kind)] = kinds.get(str(machine.kind), 0) + 1
        if len(kinds) > 1:
            listed = "; ".join(f"{count} × {kind}" for kind, count in kinds.items())
            raise CurvescopeError(
                f"The workers are of different kinds: {listed}. What one sweep measures is held against each other: "
                "give it workers of one kind."
            )
        identities = [machine.identity for machine in machines.values()]
        if device != "cpu" and len(set(identities)) < len(identities):
            raise CurvescopeError(
                "Several workers share one GPU: start each with a CUDA_VISIBLE_DEVICES of its own, as in "
                "`CUDA_VISIBLE_DEVICES=1 dask worker tcp://host:8786 --nthreads 1`."
            )

    def _some_worker(self) -> str:
        there = sorted(self.addresses())
        if not there:
            raise CurvescopeError(f"{self._scheduler} has no workers: start one per GPU, with one thread each.")
        return there[0]

    def _first(self, address: str, name: str, *arguments: Any) -> Any:
        """The first that a worker is asked: it may lack what it needs."""
        try:
            return self.ask(address, name, *arguments)
        except (WorkerLostError, ImportError, AttributeError) as error:
            raise CurvescopeError(
                f"The worker at {address} cannot measure ({type(error).__name__}: {error}). Workers need this version "
                "of Curvescope, torch, and your own networks to import."
            ) from error

    def ask(self, address: str, name: str, *arguments: Any) -> Any:
        """What that method of a worker's measurer returns.

        Raises:
            WorkerLostError: the worker, or its server, ended.
            KeyboardInterrupt: the sweep was stopped.
        """
        done = threading.Event()
        future = self._client.submit(worker_server.ask, name, *arguments, workers=[address], pure=False, retries=0)
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(_LOOK_S):
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
        """Say that a worker has nothing more to measure, so that it may take the place of another."""
        with self._lock:
            self._taken.discard(address)

    def successor(self, lost: str, machine: Machine, device: str) -> tuple[str, Machine]:
        """Another worker of that kind, or the same one if it is still there.

        Raises:
            CurvescopeError: none comes within `_SUCCESSOR_S`.
        """
        deadline = time.monotonic() + _SUCCESSOR_S
        while time.monotonic() < deadline and not self.stopped.wait(_LOOK_S):
            with self._lock:
                self._taken.discard(lost)
                free = sorted(self.addresses() - self._taken)
                self._taken |= set(free)  # until they are known
            chosen: tuple[str, Machine] | None = None
            for address in free:
                with suppress(CurvescopeError):
                    found = self._first(address, "describe", device)
                    if chosen is None and isinstance(found, Machine) and found.kind == machine.kind:
                        chosen = address, found
            with self._lock:
                self._taken -= {address for address in free if chosen is None or address != chosen[0]}
            if chosen is not None:
                return chosen
        if self.stopped.is_set():
            raise KeyboardInterrupt
        raise CurvescopeError(
            f"The worker at {lost} ended, and no other of its kind came within {_SUCCESSOR_S:.0f} s. What is measured "
            "stays: go on with `curvescope sweep --resume`."
        )


class WorkerMeasurer:
    """One worker as a measurer; where it ends, another takes its place.

    Attributes:
        machine: where it measures.
    """

    def __init__(self, cluster: SweepCluster, address: str, machine: Machine, device: str) -> None:
        self._cluster, self._address, self._device = cluster, address, device
        self.machine = machine

    def describe(self, device: str) -> Machine | Empty:
        """Where it measures, or why it cannot."""
        found = self._ask("describe", device)
        if isinstance(found, Machine):
            self.machine = found
        return found  # type: ignore[no-any-return]

    def visit(self, setting: Setting, batch: int, protocol: Protocol) -> Visit | Empty:
        """One visit."""
        return self._ask("visit", setting, batch, protocol)  # type: ignore[no-any-return]

    def fits(self, setting: Setting, batch: int) -> bool:
        """Whether a step of that batch size can be run."""
        found = self._ask("fits", setting, batch)
        return found is True

    def done(self) -> None:
        """Say that nothing more is asked."""
        self._cluster.release(self._address)

    def stop(self) -> None:
        """From another thread: have what is asked for now, or later, end in a KeyboardInterrupt."""
        self._cluster.stopped.set()

    def _ask(self, name: str, *arguments: Any) -> Any:
        for _ in range(_TRIES):
            try:
                return self._cluster.ask(self._address, name, *arguments)
            except WorkerLostError:
                self._address, self.machine = self._cluster.successor(self._address, self.machine, self._device)
        return Empty(KILLED, f"{_TRIES} workers that ran it ended, as when it does not fit the memory")


def visible_gpus() -> list[str]:
    """GPUs of this machine as CUDA_VISIBLE_DEVICES names them; empty without any."""
    from ..workload.network_step import import_torch

    count = int(import_torch().cuda.device_count())
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] if named else [str(place) for place in range(count)]
