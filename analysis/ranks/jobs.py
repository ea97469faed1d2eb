"""Find the recordings of ranks and reduce each: in this process, or in several.

A recording that kills its process, e.g. because it does not fit the memory, is left out and named.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ...base.errors import CurvescopeError
from ...profiling.hardware.host import usable_cores
from ...profiling.readers import Options, import_profile
from ...profiling.readers.source import Source
from ...profiling.readers.values import whole
from ...profiling.recording.disturbed import all_used
from ...profiling.recording.rank_info import META_KEY
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
    path: Path
    process: int | None = None  # number of its process in a trace that merges several


def find_ranks(arguments: Sequence[str]) -> tuple[list[Job], Reduction]:
    """Find the recordings named on the command line: the jobs by rank, and a reduction that lists
    the unreadable ones.

    Arguments are folders of recordings or profiles, folders above them, or patterns.
    The number of a rank is the one in its recording; else the number after `rank` in the file name,
    else the last number in the file name, else the position in the list. CurvescopeError if there
    is no recording.
    """
    paths = sorted(
        {path for text in arguments for path in _expand(text)}, key=lambda p: _natural(str(p))
    )
    if not paths:
        raise CurvescopeError(
            f"{' '.join(arguments)}: no recording found. Give the folders of the ranks, the folder "
            "above them, or a pattern in quotes, e.g. 'job/rank*/'."
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
        if rank_id.rank in jobs:
            bad.append(
                unreadable(
                    str(path), f"it has rank {rank_id.rank}, as has {jobs[rank_id.rank].path}"
                )
            )
        else:
            jobs[rank_id.rank] = Job(rank_id, path)
    return [jobs[rank] for rank in sorted(jobs)], combine(bad)


def _merge(path: Path) -> list[Job]:
    """The jobs of a PyTorch trace that merges several processes; none for other profiles."""
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


def _expand(text: str) -> Iterator[Path]:
    if _MAGIC.search(text) is None:
        yield from _under(Path(text))
    else:
        yield from (Path(path) for path in glob.glob(text.rstrip("/")))


def _under(path: Path) -> Iterable[Path]:
    """The path itself if it is a recording or a profile, else the recordings in it, or else the
    profiles in it.
    """
    try:
        if (path / META_FILE).is_file() or path.is_file():
            return [path]
        inside = list(path.iterdir())
    except OSError as error:
        raise CurvescopeError(f"{path} cannot be read ({error}).") from error
    folders = [entry for entry in inside if (entry / META_FILE).is_file()]
    return folders or [entry for entry in inside if _is_profile(entry)]


def _is_profile(path: Path) -> bool:
    return path.name.endswith(_PROFILES) and path.is_file()


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Sort key that orders numbers in names by value."""
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"(\d+)", text)
    ]


def _identify(recording: Recording | None, path: Path, position: int) -> RankId:
    entry = (recording.meta.get(META_KEY) if recording is not None else None) or {}
    rank = entry.get("rank")
    if rank is None and path.is_file():
        try:
            with Source(path) as source:
                match = _RANK_IN_TRACE.search(source.text)
        except CurvescopeError:
            match = None  # the error is reported when the file is read
        rank = whole(match[1]) if match else None
    if rank is None:
        numbers = re.findall(r"rank[-_ ]?(\d+)", path.name, re.IGNORECASE) or re.findall(
            r"\d+", path.name
        )
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
                path = Path(folder) / "recording"
                import_profile(job.path, path, Options(process=job.process))
            recording = open_merged(path)
            return reduce_rank(
                job.rank_id, all_used(recording.frame("steps")), device_work(recording)
            )
    except _DAMAGE as error:
        return unreadable(str(job.path), str(error) or type(error).__name__)


class Reducer:
    """Reduces recordings."""

    def __init__(self, ranks: int, workers: int | None = None) -> None:
        """Create a reducer of so many ranks.

        By default as many workers as cores and ranks justify; 1 is this process.
        """
        # Reductions at index k combine `_TOGETHER` to the k chunks each.
        self._finished: list[list[Reduction]] = []
        cores = usable_cores()
        self._workers = workers or max(1, min(cores, ranks // _RANKS_PER_WORKER))
        if os.name != "posix":  # no pairs of sockets that a process could inherit
            self._workers = 1

    @property
    def description(self) -> str:
        """Where the recordings are reduced, for the user."""
        return "in this process" if self._workers == 1 else f"with {self._workers} workers"

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
        return combine([reduction for level in self._finished for reduction in level])

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
        if self._workers == 1:
            for job in jobs:
                yield [job], reduce_jobs([job])
            return
        size = max(1, min(_MOST_PER_TASK, len(jobs) // (self._workers * _TASKS_PER_WORKER)))
        yield from self._in_processes([jobs[i : i + size] for i in range(0, len(jobs), size)])

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
                yield (
                    chunk,
                    unreadable(
                        str(chunk[0].path), f"its process was {reduction.why}: {reduction.detail}"
                    ),
                )
            else:  # one of them ended the process: each alone
                retried += [[job] for job in chunk]
        if retried:
            yield from self._in_processes(retried)
