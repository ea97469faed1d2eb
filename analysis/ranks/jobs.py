"""Finds the recordings of ranks and reduces each where it lies: in this process, or by workers of a Dask cluster.

A worker that dies costs nothing but time: Dask gives its recordings to another. One that dies again and again over the
same recording, as when it does not fit the memory, is a reason to leave that recording out, by name.
"""

from __future__ import annotations

import glob
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...profiling.errors import BackendMissingError, CurvescopeError
from ...profiling.hardware.host import usable_cores
from ...profiling.readers import import_profile
from ...profiling.readers.source import Source
from ...profiling.recording.rank_info import META_KEY
from ...profiling.recording.remote_store import AnyPath, RemotePath, as_path
from ...profiling.recording.store import META_FILE, Recording, open_recording, open_recordings
from ..decompose.kernel_times import device_work
from .reduction import Who, reduce_rank
from .tables import Reduction, combine, unreadable

_MOST_PER_TASK = 16
_TASKS_PER_WORKER = 4  # so that the last ones end together
_TOGETHER = 8  # reductions combined at once: memory for these, and half the work of two at a time
_RANKS_PER_WORKER = 8  # workers take seconds to start
_MAGIC = re.compile(r"[*?\[]")
_RANK_IN_TRACE = re.compile(r'"distributedInfo"\s*:\s*\{[^}]*?"rank"\s*:\s*(\d+)')
_PROFILES = (".json", ".json.gz", ".sqlite", ".nvprof")
# What a damaged recording may raise beside what the store finds out itself.
_DAMAGE = (
    CurvescopeError,
    pa.ArrowException,
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Job:
    """A recording, or a profile, of one rank."""

    who: Who
    place: AnyPath


def find_ranks(arguments: Sequence[str]) -> tuple[list[Job], Reduction]:
    """The recordings that the user names: folders, folders of recordings or of profiles, patterns, URLs of these.

    A rank says its number in its recording; else the number after `rank` in its name counts, else the last number
    there, else its place.

    Returns:
        The jobs by rank, and what stands for those that cannot be read.

    Raises:
        CurvescopeError: there is none.
    """
    places = sorted({place for text in arguments for place in _expand(text)}, key=lambda p: _natural(str(p)))
    if not places:
        raise CurvescopeError(
            f"{' '.join(arguments)}: no recording there. Give the folders of the ranks, the folder above them, or a "
            "pattern in quotes, as in 's3://bucket/job/rank*/'."
        )
    folders = [place for place in places if not _is_profile(place)]
    opened = dict(zip(folders, open_recordings(folders), strict=True))
    jobs: dict[int, Job] = {}
    bad = []
    for position, place in enumerate(places):
        recording = opened.get(place)
        if isinstance(recording, CurvescopeError):
            bad.append(unreadable(str(place), str(recording)))
            continue
        who = _who(recording, place, position)
        if who.rank in jobs:
            bad.append(unreadable(str(place), f"it is of rank {who.rank} as well as {jobs[who.rank].place}"))
        else:
            jobs[who.rank] = Job(who, place)
    return [jobs[rank] for rank in sorted(jobs)], combine(bad)


def _expand(text: str) -> Iterator[AnyPath]:
    match = _MAGIC.search(text)
    if match is None:
        yield from _under(as_path(text))
    elif "://" not in text:
        yield from (Path(found) for found in glob.glob(text.rstrip("/")))
    else:
        head, _, pattern = text[: match.start()].rpartition("/")
        try:
            yield from RemotePath(head).glob((pattern + text[match.start() :]).rstrip("/"))
        except OSError as error:
            raise CurvescopeError(f"{text} cannot be listed ({error}). Check the URL and your credentials.") from error


def _under(place: AnyPath) -> Iterable[AnyPath]:
    """The place itself if it is a recording or a profile, else what is in it: recordings, or else profiles."""
    try:
        if (place / META_FILE).is_file() or place.is_file():
            return [place]
        inside: list[AnyPath] = list(place.iterdir())
    except OSError as error:
        raise CurvescopeError(f"{place} cannot be read ({error}).") from error
    if isinstance(place, RemotePath):
        folders = [entry for entry in inside if not _is_profile(entry)]
    else:
        folders = [entry for entry in inside if (entry / META_FILE).is_file()]
    return folders or [entry for entry in inside if _is_profile(entry)]


def _is_profile(place: AnyPath) -> bool:
    return place.name.endswith(_PROFILES) and (isinstance(place, RemotePath) or place.is_file())


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Sorts numbers in names by size."""
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", text)]


def _who(recording: Recording | None, place: AnyPath, position: int) -> Who:
    entry = (recording.meta.get(META_KEY) if recording is not None else None) or {}
    rank = entry.get("rank")
    if rank is None and isinstance(place, Path) and place.is_file():
        try:
            with Source(place) as source:
                match = _RANK_IN_TRACE.search(source.text)
        except CurvescopeError:
            match = None  # what is wrong with it is said when it is read
        rank = int(match[1]) if match else None
    if rank is None:
        found = re.findall(r"rank[-_ ]?(\d+)", place.name, re.IGNORECASE) or re.findall(r"\d+", place.name)
        rank = int(found[-1]) if found else position
    return Who(int(rank), entry.get("node"), entry.get("local_rank"))


def reduce_jobs(jobs: Sequence[Job]) -> Reduction:
    """The reduction of some recordings, one after the other; one that cannot be read is named in it."""
    return combine([_reduce(job) for job in jobs])


def _reduce(job: Job) -> Reduction:
    try:
        if not _is_profile(job.place):
            return _reduce_recording(job.who, open_recording(job.place))
        with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
            local = job.place.fetch(Path(folder)) if isinstance(job.place, RemotePath) else job.place
            return _reduce_recording(job.who, open_recording(import_profile(local, Path(folder) / "recording").path))
    except _DAMAGE as error:
        return unreadable(str(job.place), str(error) or type(error).__name__)


def _reduce_recording(who: Who, recording: Recording) -> Reduction:
    return reduce_rank(who, recording.frame("steps"), device_work(recording))


class Reducer:
    """Reduces recordings; a context manager that ends the workers it started."""

    def __init__(self, ranks: int, scheduler: str | None = None, workers: int | None = None) -> None:
        """Say who does it.

        Args:
            ranks: how many there are, for the number of workers.
            scheduler: address of a Dask scheduler, as in `tcp://host:8786`; null for workers of our own.
            workers: how many of our own; by default as many as there are cores and work for. 1 is this process.

        Raises:
            BackendMissingError: a scheduler or several workers are asked for, and Dask is not installed.
        """
        # Finished reductions: one at place 0 is of one chunk, one at place k of `_TOGETHER` to the k chunks.
        self._finished: list[list[Reduction]] = []
        self._scheduler, self._stack = scheduler, ExitStack()
        self._client: Any = None
        cores = usable_cores()
        self._workers = workers or max(1, min(cores, ranks // _RANKS_PER_WORKER))
        if scheduler is None and self._workers == 1:
            return
        try:
            import distributed  # noqa: F401 - only whether it is here
        except ImportError:
            if scheduler is not None or workers is not None:
                raise BackendMissingError(
                    "Workers need Dask: pip install 'curvescope[cluster]'. Without --scheduler and --workers the ranks "
                    "are read one after the other."
                ) from None
            self._workers = 1

    @property
    def says(self) -> str:
        """Who does it, for the user."""
        if self._scheduler is not None:
            return f"on {self._scheduler}"
        return "in this process" if self._workers == 1 else f"with {self._workers} workers"

    def __enter__(self) -> Reducer:
        if self._scheduler is not None or self._workers > 1:
            self._client = self._stack.enter_context(_client(self._scheduler, self._workers))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reduce(self, jobs: Sequence[Job], report: Callable[[int], None] = lambda _: None) -> Reduction:
        """The reduction of these recordings.

        Args:
            jobs: the recordings.
            report: told how many are done.

        Raises:
            KeyboardInterrupt: passed on; `so_far` has what was done.
        """
        self._finished, done = [], 0
        for chunk, reduction in self._chunks(jobs):
            self._take(reduction)
            done += len(chunk)
            report(done)
        return self.so_far

    @property
    def so_far(self) -> Reduction:
        """What the last `reduce` has finished, for when it is interrupted."""
        return combine([reduction for level in self._finished for reduction in level])

    def _take(self, reduction: Reduction, level: int = 0) -> None:
        """Tables that grow with the ranks are combined with their like, so that each row is seen a few times only."""
        if level == len(self._finished):
            self._finished.append([])
        self._finished[level].append(reduction)
        if len(self._finished[level]) == _TOGETHER:
            together = combine(self._finished[level])
            self._finished[level] = []
            self._take(together, level + 1)

    def _chunks(self, jobs: Sequence[Job]) -> Iterator[tuple[Sequence[Job], Reduction]]:
        if self._client is None:
            for job in jobs:
                yield [job], reduce_jobs([job])
            return
        workers = max(1, len(self._client.nthreads()))
        size = max(1, min(_MOST_PER_TASK, len(jobs) // (workers * _TASKS_PER_WORKER)))
        yield from self._on_cluster([jobs[i : i + size] for i in range(0, len(jobs), size)])

    def _on_cluster(self, chunks: Iterable[Sequence[Job]]) -> Iterator[tuple[Sequence[Job], Reduction]]:
        from distributed import KilledWorker, as_completed

        waiting = {self._client.submit(reduce_jobs, chunk, pure=False): chunk for chunk in chunks}
        completed = as_completed(list(waiting))
        for future in completed:
            chunk = waiting.pop(future)
            try:
                yield chunk, future.result()
            except KilledWorker:
                if len(chunk) == 1:
                    reason = "every worker that read it was killed, as when it does not fit the memory"
                    yield chunk, unreadable(str(chunk[0].place), reason)
                    continue
                for job in chunk:  # one of them is the reason: the others count
                    single = self._client.submit(reduce_jobs, [job], pure=False)
                    waiting[single] = [job]
                    completed.add(single)


def local_cluster(workers: int) -> Any:
    """A Dask cluster of so many processes on this machine, without a dashboard."""
    import logging

    from distributed import LocalCluster

    # The scheduler's own port takes any number: the usual one may be another cluster's, which Dask warns of.
    own_port = {"dashboard_address": "127.0.0.1:0"}
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=None,
        scheduler_kwargs=own_port,
        silence_logs=logging.CRITICAL,
    )


def _client(scheduler: str | None, workers: int) -> Any:
    from distributed import Client

    if scheduler is None:
        cluster = local_cluster(workers)
        return _Both(cluster, Client(cluster))
    try:
        return Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise CurvescopeError(f"{scheduler}: no Dask scheduler answers there ({error}).") from error


class _Both:
    """A client and its own cluster, ended together."""

    def __init__(self, cluster: Any, client: Any) -> None:
        self._cluster, self._client = cluster, client

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._cluster.close()
