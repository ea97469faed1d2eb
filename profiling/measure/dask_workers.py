"""The workers of a Dask cluster as measurers of a sweep: one per GPU, or several on a CPU.

One worker measures all of a recording; if it ends, another with the same kind of device repeats the lost visit. Only
this process writes recordings, so a visit is recorded once or not at all.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

from ...base.errors import BackendMissingError, CurvescopeError
from . import worker_server
from .loop import Empty
from .machine import Machine
from .processes import KILLED
from .visit_processes import Measurer

LOCAL = "local"
_POLL_S = 0.5  # interval of the checks whether a worker is alive
_SUCCESSOR_S = 300.0  # a restarted worker first loads torch, on a machine that may be busy
_ATTEMPTS = 3  # visits that end this many workers are given up


class WorkerLostError(Exception):
    """A worker ended during a call."""


class SweepCluster:
    """A connection to the workers; a context manager that ends their servers, and the workers that it started."""

    def __init__(self, scheduler: str, workers: int | None, gpus: Sequence[str] = (), threads: int = 1) -> None:
        """Create a connection to a Dask scheduler by its address; `with` opens it.

        With `local` it starts workers on this machine: one for each of the GPUs, named as in CUDA_VISIBLE_DEVICES, or
        so many with so many threads on a CPU.
        """
        try:
            import distributed  # noqa: F401 - checks that it is installed
        except ImportError:
            raise BackendMissingError("--scheduler needs Dask: pip install 'curvescope[cluster]'.") from None
        self._scheduler, self._stack = scheduler, ExitStack()
        self._environments: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
        if not gpus:
            limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
            self._environments = [limits] * (workers or 1)
        self._client: Any = None
        self._taken: set[str] = set()  # addresses of workers that measure or are being checked
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
        with suppress(Exception):  # a worker that ended has no server
            self._client.run(worker_server.end)
        self._stack.close()

    def _start(self) -> Any:
        import logging

        from distributed import Nanny, Scheduler, SpecCluster

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        host = "127.0.0.1"  # Dask's own default is every address of the machine
        options = [
            {"nthreads": 1, "env": env, "silence_logs": logging.CRITICAL, "host": host} for env in self._environments
        ]
        address = {"host": host, "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
        return SpecCluster(
            workers={index: {"cls": Nanny, "options": each} for index, each in enumerate(options)},
            scheduler={"cls": Scheduler, "options": address},
            silence_logs=logging.CRITICAL,
        )

    def addresses(self) -> set[str]:
        """Addresses of the live workers, from the scheduler; the client's cache may lack some."""
        return set(self._client.nthreads())

    def pick_device(self, name: str | None) -> str:
        """Find a device by name on one of the workers; see `torch_runtime.pick_device`."""
        addresses = self.addresses()
        if not addresses:
            raise CurvescopeError(f"{self._scheduler} has no workers: start one per GPU, with one thread each.")
        device = self._first_call(min(addresses), "pick", name)
        if isinstance(device, Empty):
            raise CurvescopeError(f"The workers cannot measure on {name}: {device.detail}")
        return str(device)

    def measurers(self, device: str, most: int) -> list[WorkerMeasurer]:
        """Use at most that many workers; an error if their kinds differ, they share a GPU, or cannot measure."""
        addresses = sorted(self.addresses())
        with ThreadPoolExecutor(max(1, len(addresses))) as pool:  # each loads torch first
            described = list(pool.map(lambda address: self._first_call(address, "describe", device), addresses))
        machines: dict[str, Machine] = {}
        for address, machine in zip(addresses, described, strict=True):
            if isinstance(machine, Empty):
                raise CurvescopeError(f"The worker at {address} cannot measure on {device}: {machine.detail}")
            machines[address] = machine
        _check(list(machines.values()), device)
        chosen = addresses[:most]
        self._taken = set(chosen)
        return [WorkerMeasurer(self, address, machines[address], device) for address in chosen]

    def _first_call(self, address: str, name: str, *arguments: Any) -> Any:
        """Call a worker for the first time; report missing packages."""
        try:
            return self.call(address, name, *arguments)
        except (WorkerLostError, ImportError, AttributeError) as error:
            raise CurvescopeError(
                f"The worker at {address} cannot measure ({type(error).__name__}: {error}). Workers need this version "
                "of Curvescope, torch, and your own networks."
            ) from error

    def call(self, address: str, name: str, *arguments: Any) -> Any:
        """Call a method of a worker's `LocalMeasurer`, and return its result.

        Raises:
            WorkerLostError: the worker, or its server, ended.
            KeyboardInterrupt: the sweep was stopped.
        """
        done = threading.Event()
        future = self._client.submit(worker_server.call, name, *arguments, workers=[address], pure=False, retries=0)
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
        """Wait for another free worker of the same kind, or the same one if it is alive, and take it."""
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
                    if chosen is None and isinstance(candidate, Machine) and candidate.kind == machine.kind:
                        chosen = address, candidate
            with self._lock:
                self._taken -= {address for address in free if chosen is None or address != chosen[0]}
            if chosen is not None:
                return chosen
        if self.stopped.is_set():
            raise KeyboardInterrupt
        raise CurvescopeError(
            f"The worker at {lost} ended, and no other worker of its kind came within {_SUCCESSOR_S:.0f} s. The "
            "recordings are kept: resume with `curvescope sweep --resume`."
        )


def _check(machines: Sequence[Machine], device: str) -> None:
    kinds = Counter(str(machine.kind) for machine in machines)
    if len(kinds) > 1:
        listed = "; ".join(f"{count} × {kind}" for kind, count in kinds.items())
        raise CurvescopeError(
            f"The workers are of different kinds: {listed}. All measurements of a sweep are compared with each other: "
            "use workers of one kind."
        )
    if device != "cpu" and len({machine.identity for machine in machines}) < len(machines):
        raise CurvescopeError(
            "Several workers share one GPU: start each with its own CUDA_VISIBLE_DEVICES, e.g. "
            "`CUDA_VISIBLE_DEVICES=1 dask worker tcp://host:8786 --nthreads 1`."
        )


class WorkerMeasurer(Measurer):
    """Measures on one worker; if that ends, on another."""

    def __init__(self, cluster: SweepCluster, address: str, machine: Machine, device: str) -> None:
        self._cluster, self._address, self._device = cluster, address, device
        self.machine = machine

    def done(self) -> None:
        """Free the worker."""
        self._cluster.release(self._address)

    def stop(self) -> None:
        """From another thread: end the running call, and later ones, with a KeyboardInterrupt."""
        self._cluster.stopped.set()

    def _run(self, name: str, *arguments: Any) -> Any:
        for _ in range(_ATTEMPTS):
            try:
                return self._cluster.call(self._address, name, *arguments)
            except WorkerLostError:
                self._address, self.machine = self._cluster.successor(self._address, self.machine, self._device)
        return Empty(KILLED, f"{_ATTEMPTS} workers that ran it ended, e.g. because it does not fit the memory")


def visible_gpus() -> list[str]:
    """GPUs of this machine, named as in CUDA_VISIBLE_DEVICES; empty if there are none."""
    from ...base.torch_runtime import import_torch

    count = int(import_torch().cuda.device_count())
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] if named else [str(index) for index in range(count)]
