"""Find the recordings of ranks and reduce each: in this process, in several, or by workers of a
Dask cluster.

A recording that kills its process, e.g. because it does not fit the memory, is left out and named.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...base.errors import BackendMissingError, CurvescopeError
from ...profiling.hardware.host import usable_cores
from ...profiling.readers import Options, import_profile
from ...profiling.readers.source import Source
from ...profiling.readers.values import whole
from ...profiling.recording.disturbed import all_used
from ...profiling.recording.rank_info import META_KEY
from ...profiling.recording.remote_store import AnyPath, RemotePath, as_path
from ...profiling.recording.store import META_FILE, Recording, open_merged, open_recordings
from ..decompose.kernel_times import device_work
from .reduction import RankId, reduce_rank
from .tables import Reduction, combine, unreadable

_MOST_PER_TASK = 16
_TASKS_PER_WORKER = 4  # so that the last tasks end together
# reductions combined at once: limits memory, and takes half the work of two at a time
_TOGETHER = 8
_RANKS_PER_WORKER = 8  # workers take seconds to start
_MAGIC = re.compile(r"[*?\[]")
# No brace between: a search that passed the next one would begin again at each.
_RANK_IN_TRACE = re.compile(r'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_PROFILES = (".json", ".json.gz", ".sqlite", ".nvprof")
# A damaged recording may raise these, besides the errors of the store.
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

    rank_id: RankId
    path: AnyPath
    process: int | None = None  # number of its process in a trace that merges several


def find_ranks(arguments: Sequence[str]) -> tuple[list[Job], Reduction]:
    """Find the recordings named on the command line: the jobs by rank, and a reduction that lists
    the unreadable ones.

    Arguments are folders of recordings or profiles, folders above them, patterns, or URLs of these.
    The number of a rank is the one in its recording; else the number after `rank` in the file name,
    else the last number in the file name, else the position in the list. CurvescopeError if there
    is no recording.
    """
    unsorted: set[AnyPath] = set()
    for text in arguments:
        unsorted.update(_expand(text))
    paths = sorted(unsorted, key=lambda path: _natural(str(path)))
    if not paths:
        raise CurvescopeError(
            f"{' '.join(arguments)}: no recording found. Give the folders of the ranks, the folder "
            "above them, or a pattern in quotes, e.g. 's3://bucket/job/rank*/'."
        )
    if len(paths) == 1 and _is_profile(paths[0]) and (merged := _merge(paths[0])):
        return merged, combine([])
    folders = [path for path in paths if not _is_profile(path)]
    opened = dict(zip(folders, open_recordings(folders), strict=True))
    jobs: dict[int, Job] = {}
    bad = []
    for position, path in enumerate(paths):
        recording = opened.get(path)
        if isinstance(recording, CurvescopeError):
            bad.append(unreadable(str(path), str(recording)))
            continue
        rank_id = _identify(recording, path, position)
        rank = rank_id.rank
        if rank in jobs:
            bad.append(unreadable(str(path), f"it has rank {rank}, as has {jobs[rank].path}"))
        else:
            jobs[rank] = Job(rank_id, path)
    return [jobs[rank] for rank in sorted(jobs)], combine(bad)


def _merge(path: AnyPath) -> list[Job]:
    """The jobs of a PyTorch trace that merges several processes; none for other profiles."""
    if not isinstance(path, Path):
        return []
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        try:
            target = Path(folder) / "recording"
            import_profile(path, target)
            recording = open_merged(target)
        except CurvescopeError:
            return []  # the error is reported when the file is read
        count = (recording.meta.get("merged") or {}).get("processes", 1)
    numbers = range(count if count > 1 else 0)
    return [Job(RankId(number, None, None), path, number) for number in numbers]


def _expand(text: str) -> Iterator[AnyPath]:
    match = _MAGIC.search(text)
    if match is None:
        yield from _under(as_path(text))
    elif "://" not in text:
        yield from (Path(path) for path in glob.glob(text.rstrip("/")))
    else:
        head, _, pattern = text[: match.start()].rpartition("/")
        try:
            yield from RemotePath(head).glob((pattern + text[match.start() :]).rstrip("/"))
        except OSError as error:
            raise CurvescopeError(
                f"{text} cannot be listed ({error}). Check the URL and your credentials."
            ) from error


def _under(path: AnyPath) -> Iterable[AnyPath]:
    """The path itself if it is a recording or a profile, else the recordings in it, or else the
    profiles in it.
    """
    try:
        if (path / META_FILE).is_file() or path.is_file():
            return [path]
        inside: list[AnyPath] = list(path.iterdir())
    except OSError as error:
        raise CurvescopeError(f"{path} cannot be read ({error}).") from error
    if isinstance(path, RemotePath):
        folders = [entry for entry in inside if not _is_profile(entry)]
    else:
        folders = [entry for entry in inside if (entry / META_FILE).is_file()]
    return folders or [entry for entry in inside if _is_profile(entry)]


def _is_profile(path: AnyPath) -> bool:
    return path.name.endswith(_PROFILES) and (isinstance(path, RemotePath) or path.is_file())


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Sort key that orders numbers in names by value."""
    key = []
    for part in re.split(r"(\d+)", text):
        is_number = part.isdecimal()
        key.append((not is_number, int(part) if is_number else 0, part))
    return key


def _identify(recording: Recording | None, path: AnyPath, position: int) -> RankId:
    entry = (recording.meta.get(META_KEY) if recording is not None else None) or {}
    rank = entry.get("rank")
    if rank is None and isinstance(path, Path) and path.is_file():
        try:
            with Source(path) as source:
                match = _RANK_IN_TRACE.search(source.text)
        except CurvescopeError:
            match = None  # the error is reported when the file is read
        rank = whole(match[1]) if match else None
    if rank is None:
        after_rank = re.findall(r"rank[-_ ]?(\d+)", path.name, re.IGNORECASE)
        numbers = after_rank or re.findall(r"\d+", path.name)
        rank = whole(numbers[-1]) if numbers else None
    if rank is None:
        rank = position
    return RankId(int(rank), entry.get("node"), entry.get("local_rank"))


def reduce_jobs(jobs: Sequence[Job]) -> Reduction:
    """Reduce some recordings one after the other; unreadable ones are listed in the result."""
    return combine([_reduce(job) for job in jobs])


def _reduce(job: Job) -> Reduction:
    try:
        with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
            path = job.path
            if _is_profile(path):
                local = path.fetch(Path(folder)) if isinstance(path, RemotePath) else path
                path = Path(folder) / "recording"
                import_profile(local, path, Options(process=job.process))
            recording = open_merged(path)
            steps = all_used(recording.frame("steps"))
            return reduce_rank(job.rank_id, steps, device_work(recording))
    except _DAMAGE as error:
        return unreadable(str(job.path), str(error) or type(error).__name__)


class Reducer:
    """Reduces recordings; a context manager that ends the workers it started."""

    def __init__(
        self, ranks: int, scheduler: str | None = None, workers: int | None = None
    ) -> None:
        """Create a reducer of so many ranks, with a Dask scheduler (`tcp://host:8786`) or workers
        of this machine.

        By default as many workers as cores and ranks justify; 1 is this process.
        BackendMissingError: a scheduler without Dask.
        """
        # Reductions at index k combine `_TOGETHER` to the k chunks each.
        self._finished: list[list[Reduction]] = []
        self._scheduler, self._stack = scheduler, ExitStack()
        self._client: Any = None
        cores = usable_cores()
        self._workers = workers or max(1, min(cores, ranks // _RANKS_PER_WORKER))
        if os.name != "posix":  # no pairs of sockets that a process could inherit
            self._workers = 1
        if scheduler is not None:
            try:
                import distributed  # noqa: F401 - only whether it is installed
            except ImportError:
                raise BackendMissingError(
                    "--scheduler needs Dask: pip install 'curvescope[cluster]'."
                ) from None

    @property
    def description(self) -> str:
        """Where the recordings are reduced, for the user."""
        if self._scheduler is not None:
            return f"on {self._scheduler}"
        if self._workers == 1:
            return "in this process"
        return f"with {self._workers} workers"

    def __enter__(self) -> Reducer:
        if self._scheduler is not None:
            self._client = self._stack.enter_context(self._connect())
        return self

    def _connect(self) -> Any:
        from distributed import Client

        try:
            return Client(self._scheduler, timeout=10)
        # A tls:// address without keys is a TypeError.
        except (OSError, TypeError, ValueError) as error:
            raise CurvescopeError(
                f"{self._scheduler}: no Dask scheduler answers there ({error})."
            ) from error

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reduce(
        self, jobs: Sequence[Job], report: Callable[[int], None] = lambda _: None
    ) -> Reduction:
        """Reduce recordings and report the number of finished jobs; after an interrupt `so_far` has
        these.
        """
        self._finished, done = [], 0
        for chunk, reduction in self._chunks(jobs):
            self._take(reduction)
            done += len(chunk)
            report(done)
        return self.so_far

    @property
    def so_far(self) -> Reduction:
        """The finished jobs of the last `reduce`, e.g. after an interrupt."""
        finished: list[Reduction] = []
        for level in self._finished:
            finished += level
        return combine(finished)

    def _take(self, reduction: Reduction, level: int = 0) -> None:
        """Combine reductions of similar size, so that each row is copied a few times only."""
        if level == len(self._finished):
            self._finished.append([])
        self._finished[level].append(reduction)
        if len(self._finished[level]) == _TOGETHER:
            together = combine(self._finished[level])
            self._finished[level] = []
            self._take(together, level + 1)

    def _chunks(self, jobs: Sequence[Job]) -> Iterator[tuple[Sequence[Job], Reduction]]:
        if self._client is None and self._workers == 1:
            for job in jobs:
                yield [job], reduce_jobs([job])
            return
        workers = self._workers if self._client is None else max(1, len(self._client.nthreads()))
        size = max(1, min(_MOST_PER_TASK, len(jobs) // (workers * _TASKS_PER_WORKER)))
        chunks = [jobs[i : i + size] for i in range(0, len(jobs), size)]
        if self._client is None:
            yield from self._in_processes(chunks)
        else:
            yield from self._on_cluster(chunks)

    def _in_processes(
        self, chunks: Sequence[Sequence[Job]]
    ) -> Iterator[tuple[Sequence[Job], Reduction]]:
        from ...profiling.measure.processes import call_many
        from ...profiling.measure.visits import Empty

        retried: list[Sequence[Job]] = []
        for chunk, reduction in call_many(reduce_jobs, chunks, self._workers):
            if not isinstance(reduction, Empty):
                yield chunk, reduction
            elif len(chunk) == 1:
                reason = f"its process was {reduction.why}: {reduction.detail}"
                yield chunk, unreadable(str(chunk[0].path), reason)
            else:  # one of them ended the process: each alone
                retried += [[job] for job in chunk]
        if retried:
            yield from self._in_processes(retried)

    def _on_cluster(
        self, chunks: Iterable[Sequence[Job]]
    ) -> Iterator[tuple[Sequence[Job], Reduction]]:
        from distributed import KilledWorker, as_completed

        waiting = {self._client.submit(reduce_jobs, chunk, pure=False): chunk for chunk in chunks}
        completed = as_completed(list(waiting))
        for future in completed:
            chunk = waiting.pop(future)
            try:
                yield chunk, future.result()
            except KilledWorker:
                if len(chunk) == 1:
                    reason = (
                        "every worker that read it was killed, e.g. because it does not fit the "
                        "memory"
                    )
                    yield chunk, unreadable(str(chunk[0].path), reason)
                    continue
                for job in chunk:  # one of them killed the workers: retry each alone
                    single = self._client.submit(reduce_jobs, [job], pure=False)
                    waiting[single] = [job]
                    completed.add(single)
