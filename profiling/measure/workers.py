"""Workers that measure for a sweep side by side: of this machine, one per GPU or several on a CPU,
or of a cluster.

Workers of this machine are processes on a pair of sockets: nothing listens, and no other user can
reach them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...base.errors import CurvescopeError
from .machine import Machine
from .sites.machines import Measurer
from .visits import KILLED, Empty
from .worker_server import Server, ServerEnded

ATTEMPTS = 3  # visits that end this many workers are given up


class Workers:
    """Workers of one place; a context manager that ends the processes it started."""

    def __enter__(self) -> Workers:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError

    def pick_device(self, name: str | None) -> str:
        """Find a device by name on one of the workers; see `torch_runtime.pick_device`."""
        raise NotImplementedError

    def measurers(self, device: str, most: int) -> Sequence[Measurer]:
        """Use at most that many workers; an error if their kinds differ, they share a GPU, or
        cannot measure.
        """
        raise NotImplementedError


class LocalWorkers(Workers):
    """Workers of this machine; a context manager that ends them."""

    def __init__(
        self,
        workers: int | None,
        gpus: Sequence[str] = (),
        threads: int = 1,
        start: Callable[[Mapping[str, str]], Server] = Server,
    ) -> None:
        """Prepare one worker for each GPU, named as in CUDA_VISIBLE_DEVICES, or so many on a CPU
        with so many threads.

        `with` starts them; `start` starts the server of one, with its variables of the environment.
        """
        limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        on_gpus: list[Mapping[str, str]] = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
        self._variables = on_gpus or [limits] * (workers or 1)
        self._start = start
        self.workers: list[LocalWorker] = []

    def __enter__(self) -> LocalWorkers:
        self.workers = [LocalWorker(each, self._start) for each in self._variables]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()

    def pick_device(self, name: str | None) -> str:
        """Find a device by name on one of the workers; see `Workers`."""
        device = self.workers[0].pick(name)
        if isinstance(device, Empty):
            raise CurvescopeError(f"The workers cannot measure on {name}: {device.detail}")
        return device

    def measurers(self, device: str, most: int) -> list[LocalWorker]:
        """Use at most that many workers; see `Workers`."""
        with ThreadPoolExecutor(len(self.workers)) as pool:  # each loads torch first
            described = list(pool.map(lambda worker: worker.describe(device), self.workers))
        machines = []
        for machine in described:
            if isinstance(machine, Empty):
                raise CurvescopeError(f"A worker cannot measure on {device}: {machine.detail}")
            machines.append(machine)
        check_same_kind(machines, device)
        return self.workers[:most]


class LocalWorker(Measurer):
    """Measures in a server of this machine; if that ends, in another."""

    def __init__(
        self, variables: Mapping[str, str], start: Callable[[Mapping[str, str]], Server]
    ) -> None:
        self._variables, self._start, self._stopped = variables, start, threading.Event()
        self.server = start(variables)

    def pick(self, name: str | None) -> str | Empty:
        """Find a device by name; see `pick_device`."""
        device: str | Empty = self._run("pick", name)
        return device

    def stop(self) -> None:
        """From another thread: end the running call, and later ones, with a KeyboardInterrupt."""
        self._stopped.set()  # before the end, which starts another server
        self.end()

    def end(self) -> None:
        """End the server."""
        self.server.end()

    def _run(self, name: str, *arguments: Any) -> Any:
        for _ in range(ATTEMPTS):
            if self._stopped.is_set():
                raise KeyboardInterrupt
            try:
                return self.server.call(name, *arguments)
            except ServerEnded:
                self.server = self._start(self._variables)
        return abandon_visit()


def abandon_visit() -> Empty:
    """The outcome of a visit that ended every worker that ran it."""
    return Empty(
        KILLED, f"{ATTEMPTS} workers that ran it ended, e.g. because it does not fit the memory"
    )


def check_same_kind(machines: Sequence[Machine], device: str) -> None:
    """Refuse workers of different kinds, and several on one GPU."""
    kinds = Counter(str(machine.kind) for machine in machines)
    if len(kinds) > 1:
        listed = "; ".join(f"{count} × {kind}" for kind, count in kinds.items())
        raise CurvescopeError(
            f"The workers are of different kinds: {listed}. All measurements of a sweep are "
            "compared with each other: use workers of one kind."
        )
    if device != "cpu" and len({machine.identity for machine in machines}) < len(machines):
        raise CurvescopeError(
            "Several workers share one GPU: start each with its own CUDA_VISIBLE_DEVICES, e.g. "
            "`CUDA_VISIBLE_DEVICES=1 dask worker tls://host:8786 --nthreads 1`."
        )


def visible_gpus() -> list[str]:
    """GPUs of this machine, named as in CUDA_VISIBLE_DEVICES; empty if there are none."""
    from ...base.torch_runtime import import_torch

    count = int(import_torch().cuda.device_count())
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    stripped = [name.strip() for name in named if name.strip()]
    return stripped[:count] if stripped else [str(index) for index in range(count)]
