"""The recording store: a folder of Parquet tables and a `recording.json`.

Each table is a folder of parts (`kernels/00003.parquet`), so that a recording grows visit by visit
and existing parts stay readable when the run is interrupted. Every file is written under a
temporary name, synced, then renamed; an object of a remote store is one put. A record is never
changed: a finished recording only gets new parts, and values where it has none
(`RecordingWriter.extend` and `fill`). Recordings share nothing, so any number of writers may fill
one store.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...base.counted import counted
from ...base.errors import BackendMissingError, CurvescopeError
from ...base.limits import META_BYTES
from ...base.prefetch import read_ahead
from ...base.words import Word
from .atomic_files import atomic_file, claim, lock_folder, storage_error
from .entries import check_entries
from .inside import check_ours_to_complete
from .lost import Severity, loss
from .part_files import (
    check_copies,
    count_rows,
    read_part,
    read_parts,
    read_pieces,
    remove_parts,
    write_part,
)
from .remote_store import AnyPath, RemotePath, as_path, read_entries
from .schema import EXPERIMENTS, SCHEMA_VERSION, TABLES, conform

if TYPE_CHECKING:
    import pandas as pd

META_FILE = "recording.json"
FORMAT = "curvescope recording"
# folder of what the processes of a command record, until it is merged into tables
CHUNKS = "chunks"
_LONGEST_LABEL = 100  # characters: file systems take 255 bytes
# of one process to a remote store, whose answers take tens of milliseconds each
_REQUESTS_AT_ONCE = 32
KERNEL = "kernel"  # see `Recording.work`
# `steps_from` in `recording.json`
_NO_STEP = "no step is known"
NO_STEP = f"{_NO_STEP}, nothing marks one and the order of kernels shows none"
STEPS_KNOWN_BY = """Ranges around the steps make them known (NVTX, profiler.step(), or those that `import --steps \
marks:REGEX` names); `--steps whole` says that all of it is one step."""  # noqa: E501
STEP = "step"
RECORDING = "recording"
# Entry of `recording.json` of versions that were measured together: `run`, `rounds_of_process`,
# `name` and `place`.
TOGETHER = "measured_together"
_UNFINISHED = "is not finished: another process still records it, or was killed"
_CUT = "has no tables yet: its recording command still runs, was killed, or had no room on the disk"
MODEL = "model"  # `recording_type` of times that the cost model gave


def unit_of(meta: Mapping[str, Any]) -> str:
    """What the rows of `steps` are, by `recording.json`: `step`; `recording` if no step is known,
    so it is one.
    """
    return RECORDING if _NO_STEP in str(meta.get("steps_from")) else STEP


def is_modelled(meta: Mapping[str, Any]) -> bool:
    """Whether a recording, given by its `recording.json`, is modelled and not measured."""
    return meta.get("recording_type") == MODEL


class Status(Word):
    """Status of a recording in `recording.json`."""

    RECORDING = "recording"  # in progress, or the writer was killed
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # finished, but data was lost; `lost` says what and how much
    INTERRUPTED = "interrupted"  # ended early; all existing parts are complete


class RecordingWriter:
    """Writes one recording, part by part, to a new or empty folder; `meta` is JSON-serialisable,
    see `Recording.meta`.

    Use as a context manager: an exception marks the recording interrupted. Methods raise
    CurvescopeError where the folder is taken or not writable, the disk is full, or an existing
    recording is missing or unreadable.
    """

    def __init__(self, path: AnyPath, meta: Mapping[str, Any]) -> None:
        head = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "status": Status.RECORDING,
            "created_utc": _now_utc(),
        }
        self._set(path, {**head, "lost": {}, **meta})
        claim(path, META_FILE, _document(self._meta))
        self._lock()

    def _set(self, path: AnyPath, meta: dict[str, Any]) -> None:
        self.path = path
        self._meta = meta
        self._extends, self._locks = False, ExitStack()
        self._numbered: dict[str, int] = {}  # the next free number of each table

    def _lock(self) -> bool:
        """Lock a local folder until the end; returns whether no other process can write it now."""
        if isinstance(self.path, RemotePath):
            return False
        return self._locks.enter_context(lock_folder(self.path))

    @classmethod
    def resume(
        cls, path: AnyPath, last_table: str, whole: Collection[str] | None = None
    ) -> RecordingWriter:
        """Continue to write an interrupted recording.

        Parts without one of the same name in `last_table`, the table that is written last in each
        visit, are incomplete visits, and are removed; so are those not among `whole`, if it is
        given. Experiments are no visits, and stay.
        """
        writer, _ = cls._open_locked(path)
        if whole is not None:  # another process of the run did not finish the others
            remove_parts(path, last_table, keep=whole)
        writer._remove_incomplete(last_table)
        writer.update(
            status=Status.RECORDING, resumed_utc=[*writer._meta.get("resumed_utc", []), _now_utc()]
        )
        return writer

    def _remove_incomplete(self, last_table: str) -> None:
        whole = {part.stem for part in (self.path / last_table).glob("*.parquet")}
        for table in TABLES.keys() - {EXPERIMENTS.name}:
            remove_parts(self.path, table, keep=whole)

    @classmethod
    def again(cls, path: AnyPath) -> RecordingWriter:
        """Write the tables of a recording anew, whose writer ended before it had them; counts of
        lost data too.
        """
        writer, _ = cls._open_locked(path)
        for table in TABLES:
            remove_parts(path, table)
        writer.update(status=Status.RECORDING, lost={})
        return writer

    @classmethod
    def extend(cls, path: AnyPath) -> RecordingWriter:
        """Add to a finished recording; its status and its counts of lost data stay.

        One whose writer was killed keeps all its parts, and its status becomes interrupted. Only
        one process at a time writes a local recording. A crash leaves the parts and entries written
        before it.
        """
        writer, locked = cls._open_locked(path)
        meta = writer.meta
        unfinished = meta["status"] == Status.RECORDING
        # Of others than sweeps nobody knows which parts are whole; without locks, whether somebody
        # still writes.
        unknown = unfinished and not (locked and meta.get("recording_type") == "sweep")
        if unknown:
            writer._locks.close()
            raise CurvescopeError(
                f"{path} {_UNFINISHED}. Nothing can be added to it; record it again."
            )
        if unfinished:
            writer.update(status=Status.INTERRUPTED)
        writer._extends = True
        return writer

    @classmethod
    def mark_interrupted(cls, path: AnyPath) -> None:
        """Mark a recording as interrupted after its writer was killed."""
        writer = cls._of_existing(path)
        if writer.meta["status"] == Status.RECORDING:
            writer.finish(Status.INTERRUPTED)

    @classmethod
    def _of_existing(cls, path: AnyPath) -> RecordingWriter:
        writer = cls.__new__(cls)
        writer._set(path, open_recording(path).meta)
        return writer

    @classmethod
    def _open_locked(cls, path: AnyPath) -> tuple[RecordingWriter, bool]:
        """The writer of an existing recording, read after it was locked; and whether it is, see
        `_lock`.
        """
        writer = cls.__new__(cls)
        writer._set(path, {})
        locked = writer._lock()
        try:
            writer._meta = open_recording(path).meta
            check_ours_to_complete(path, (*TABLES, CHUNKS))
        except CurvescopeError:
            writer._locks.close()
            raise
        return writer, locked

    @property
    def meta(self) -> Mapping[str, Any]:
        """Current contents of `recording.json`."""
        return self._meta

    def write(
        self, table: str, data: pa.Table | pd.DataFrame | Mapping[str, Any], part: str | None = None
    ) -> None:
        """Append a part, named or with the next number, to a table, unless it has no rows; it is on
        disk on return.

        ValueError: the data does not fit the table's schema, or an extended recording already has
        the part.
        """
        if not isinstance(data, pa.Table):
            data = pa.table(
                data if isinstance(data, Mapping) else {name: data[name] for name in data.columns}
            )
        if not data.num_rows:
            return
        conformed = conform(TABLES[table], data)
        file = self.path / table / f"{part or self.next_part(table)}.parquet"
        if self._extends and part is not None and file.is_file():
            raise ValueError(f"{file} exists, and nothing is overwritten")
        write_part(file, TABLES[table], conformed)

    def fill(self, table: str, part: AnyPath, values: Mapping[str, pa.Array]) -> None:
        """Add values (one or null per row, by column) to a part where it has none; a value that is
        there stays.
        """
        rows = read_part(part, TABLES[table], encoded=True)
        for name, added in values.items():
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.coalesce(rows[name], added))
        write_part(part, TABLES[table], rows)

    def next_part(self, table: str) -> str:
        """Reserve the next free part number of a table, for writers that write several parts at
        once.
        """
        if table not in self._numbered:
            names = [part.stem for part in (self.path / table).glob("*.parquet")]
            numbers = [int(name) for name in names if name.isdigit()]
            self._numbered[table] = max(numbers, default=-1) + 1
        number = self._numbered[table]
        self._numbered[table] = number + 1
        return f"{number:05d}"

    def update(self, **meta: Any) -> None:
        """Replace entries of `recording.json` and write it."""
        self._meta.update(meta)
        with atomic_file(self.path / META_FILE) as file:
            file.write(_document(self._meta))

    def check(self, **meta: Any) -> None:
        """Refuse entries of `recording.json`, and others to come, that do not fit; CurvescopeError
        names one.
        """
        check_entries(json.loads(_document({**self._meta, **meta})))

    def count_lost(self, name: str, count: int, sentence: str | None = None) -> None:
        """Add to a named count of lost data; a name that `lost.LOSSES` does not have needs a
        sentence.
        """
        kind = loss(name, sentence)
        if count:
            entry = {"count": 0, "severity": kind.severity.value, "sentence": kind.sentence}
            self._meta["lost"].setdefault(name, entry)["count"] += count

    def finish(self, status: str | None = None) -> None:
        """Write the final status; default: complete, or incomplete if data was lost.

        Others may write from then on.
        """
        severities = [entry.get("severity") for entry in self._meta["lost"].values()]
        usual = Status.INCOMPLETE if Severity.LOST.value in severities else Status.COMPLETE
        with self._locks:
            self.update(status=status or usual)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        status = None if kind is None else Status.INTERRUPTED
        # A full disk may be the reason for the exception: existing parts stay readable with any
        # status.
        with suppress(*(() if kind is None else (CurvescopeError,))):
            self.finish(self._meta["status"] if self._extends else status)


def _document(meta: Mapping[str, Any]) -> bytes:
    return json.dumps(meta, indent=1, ensure_ascii=False, allow_nan=False).encode(
        errors="backslashreplace"
    )


def columns_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns; missing keys become None."""
    return {
        name: [row.get(name) for row in rows]
        for name in dict.fromkeys(key for row in rows for key in row)
    }


@dataclass(frozen=True)
class Recording:
    """A recording for reading.

    Tables are loaded on first use; CurvescopeError if a part is damaged.
    """

    path: AnyPath  # folder, or URL on a remote store
    # `recording.json`: `network`, `argv`, `protocol`, `device`, `host`, `lost`, `status`, …
    meta: dict[str, Any]
    _frames: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict, repr=False, compare=False)
    source: AnyPath | None = None  # the file that was imported for the time of a command, or None

    @property
    def named(self) -> AnyPath:
        """The words a user types to read it: the imported file, or the folder."""
        return self.path if self.source is None else self.source

    @property
    def complete(self) -> bool:
        """Whether the writer finished and no data was lost."""
        return bool(self.meta["status"] == Status.COMPLETE)

    @property
    def unit(self) -> str:
        """What the rows of `steps` are, see `unit_of`."""
        return unit_of(self.meta)

    @property
    def on_host(self) -> bool:
        """Whether the rows of `kernels` are operators of the host."""
        device, missing = self.meta.get("device") or {}, self.meta.get("missing") or {}
        return device.get("kind") == "cpu" or "device" in missing

    @property
    def work(self) -> str:
        """What the rows of `kernels` are: `kernel`, or `operator` of the host."""
        return "operator" if self.on_host else KERNEL

    @property
    def statistic(self) -> str:
        """Statistic of the pace, by the protocol; where it is the mean of the faster half, T(b) is
        the mean of all steps.
        """
        return str((self.meta.get("protocol") or {}).get("statistic", "median"))

    def parts(self, table: str) -> Sequence[AnyPath]:
        """The Parquet files of a table in the order of writing; empty if nothing was recorded."""
        return sorted((self.path / table).glob("*.parquet"))

    def arrow(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        parts: Sequence[AnyPath] | None = None,
    ) -> pa.Table:
        """Read a table as Arrow, or some of its parts, with all columns of the schema, or these,
        even if nothing was recorded.
        """
        parts = self.parts(table) if parts is None else parts
        check_copies(parts)
        rows = read_parts(parts, TABLES[table], columns)
        if table == "steps" and "step" in rows.column_names:
            _check_numbered_once(self.path, rows["step"])
        return rows

    def pieces(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Read a table as Arrow in pieces of one or more parts, with dictionary-encoded text: for
        tables too large for memory.
        """
        parts = self.parts(table)
        check_copies(parts)
        pieces = read_pieces(parts, TABLES[table], columns)
        # The next piece is read while one is used; a single one is faster without a thread.
        yield from (
            pieces if len(parts) < 2 else read_ahead(next(pieces), lambda: next(pieces, None))
        )

    def frame(self, table: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table as pandas; nullable integers stay `Int64`.

        A million whole kernels take half a gigabyte.
        """
        key = table if columns is None else f"{table}:{','.join(columns)}"
        if key not in self._frames:
            self._frames[key] = as_frame(self.arrow(table, columns))
        return self._frames[key]

    def rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Read some columns of a table as values of Python, one dictionary a row, once: for tables
        of few rows, as `steps`.
        """
        key = f"{table}:{','.join(columns)}"
        if key not in self._rows:
            self._rows[key] = self.arrow(table, columns).to_pylist()
        return self._rows[key]

    def with_meta(self, meta: Mapping[str, Any]) -> Recording:
        """The recording after an experiment: with another `recording.json`, and its experiments
        read anew.
        """
        kept = {
            key: frame
            for key, frame in self._frames.items()
            if key.partition(":")[0] != EXPERIMENTS.name
        }
        return Recording(self.path, dict(meta), kept, self._rows)

    def _repr_html_(self) -> str:
        """Summary for notebooks; names are escaped."""
        facts = {
            "network": self.meta.get("network"),
            "device": (self.meta.get("device") or {}).get("name"),
            "batch sizes": ", ".join(map(str, self.meta.get("batches") or ())) or None,
            "status": self.meta["status"],
            "recorded": self.meta.get("created_utc"),
        }
        for table in TABLES:
            count = self.count_rows(table)
            if count:
                facts[table] = counted(count, "row")
        for name, entry in (self.meta.get("lost") or {}).items():
            facts[f"lost: {name}"] = entry["count"]
        left = 'style="text-align:left"'
        rows = ""
        for name, fact in facts.items():
            if fact is not None:
                rows += (
                    f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(fact))}</td></tr>"
                )
        return f"<p><b>{escape(str(self.path))}</b></p><table>{rows}</table>"

    def count_rows(self, table: str) -> int:
        """Number of rows of a table; reads only the footers of its files."""
        return sum(count_rows(part) for part in self.parts(table))


def as_frame(rows: pa.Table) -> pd.DataFrame:
    """The rows as pandas; nullable integers stay `Int64`. They are freed as they are converted, so
    that both forms never exist in full.
    """
    from pandas import BooleanDtype, Int32Dtype, Int64Dtype

    nullable = {
        pa.int64(): Int64Dtype(),
        pa.int32(): Int32Dtype(),
        pa.bool_(): BooleanDtype(),
    }
    return rows.to_pandas(types_mapper=nullable.get, split_blocks=True, self_destruct=True)


def _now_utc() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _check_numbered_once(path: AnyPath, numbers: pa.ChunkedArray) -> None:
    """Refuse steps of one number, which would share each other's kernels."""
    if pc.count_distinct(numbers).as_py() < len(numbers):
        counts = pc.value_counts(numbers)
        twice = counts.filter(pc.greater(counts.field("counts"), 1))[0]
        raise CurvescopeError(
            f"{path}/steps holds step {twice['values']} {twice['counts']} times: a part was "
            "copied or written twice. Remove the copy."
        )


class NoRecordingError(CurvescopeError):
    """A folder, file or URL that holds no recording."""


def open_recording(path: str | os.PathLike[str] | RemotePath) -> Recording:
    """Open a recording in a folder or at a URL, e.g. `s3://bucket/job/rank3`; CurvescopeError if it
    is unreadable.
    """
    folder = path if isinstance(path, RemotePath) else as_path(path)
    try:
        meta = _read_meta(folder / META_FILE)
    except FileNotFoundError:
        missing = isinstance(folder, Path) and not folder.exists()
        if isinstance(folder, Path) and (
            inside := next(iter(sorted(folder.glob(f"*/{META_FILE}"))), None)
        ):
            raise CurvescopeError(
                f"{folder} holds recordings: name one, e.g. {inside.parent}."
            ) from None
        why = "does not exist" if missing else f"is not a recording ({META_FILE} is missing)"
        raise NoRecordingError(f"{folder} {why}. `curvescope runs` lists recordings.") from None
    except NotADirectoryError:
        raise NoRecordingError(
            f"{folder} is a file, not the folder of a recording. If it is a profile, import it: "
            f"`curvescope import {folder} -o FOLDER`."
        ) from None
    except BackendMissingError:
        raise
    except CurvescopeError as error:
        raise CurvescopeError(f"{folder / META_FILE}: {error}") from error
    except (OSError, RecursionError, ValueError) as error:
        raise CurvescopeError(
            f"{folder / META_FILE} cannot be read ({error}). The Parquet tables beside it may "
            "still be readable."
        ) from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CurvescopeError(f"{folder / META_FILE} was not written by Curvescope.")
    version = meta.get("schema_version")
    if not isinstance(version, int) or not isinstance(meta.get("status"), str):
        raise CurvescopeError(f"{folder / META_FILE} was not written by Curvescope.")
    if version > SCHEMA_VERSION:
        raise CurvescopeError(
            f"{folder} has schema version {version}, but this Curvescope reads version "
            f"{SCHEMA_VERSION}: upgrade with `pip install --upgrade curvescope`."
        )
    if 0 < version < SCHEMA_VERSION:
        raise CurvescopeError(
            f"{folder} has schema version {version}, which no release wrote and nothing reads any "
            f"more: record it again; this Curvescope reads version {SCHEMA_VERSION}."
        )
    try:
        check_entries(meta)
    except CurvescopeError as error:
        raise CurvescopeError(f"{folder / META_FILE} is damaged or edited: {error}.") from error
    return Recording(folder, meta)


def _read_meta(path: AnyPath) -> Any:
    """The contents of a `recording.json`; FileNotFoundError, other OSErrors, and ValueError for
    other texts than JSON.

    Half a character, which no document can be written with, is read as `?`.
    """
    data = read_entries(path, META_BYTES, f"bytes in {META_FILE}")
    meta = json.loads(data, parse_constant=_refuse_constant)
    if _HALF_CHARACTER.search(data) is None:
        return meta
    return json.loads(json.dumps(meta, ensure_ascii=False).encode("utf-8", "replace"))


_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")  # or half of a pair


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def has_chunks(path: AnyPath) -> bool:
    """Whether a recording of a command is not merged into tables: it is still recorded, or it was
    cut.
    """
    return not isinstance(path, RemotePath) and (path / CHUNKS).is_dir()


def open_merged(path: AnyPath) -> Recording:
    """Open a recording whose tables are written; CurvescopeError if they are not, and what makes
    them.
    """
    if has_chunks(path):
        raise CurvescopeError(f"{path} {_CUT}. `curvescope explain {path}` makes them.")
    return open_recording(path)


def open_recordings(folders: Iterable[AnyPath]) -> list[Recording | CurvescopeError]:
    """Open recordings concurrently; in order each recording, or its error."""

    def attempt(folder: AnyPath) -> Recording | CurvescopeError:
        try:
            return open_recording(folder)
        except CurvescopeError as error:
            return error

    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        return list(pool.map(attempt, folders))


@dataclass(frozen=True)
class Unreadable:
    """A folder with a `recording.json` that cannot be read."""

    path: AnyPath  # folder or URL
    reason: str  # why, with the remedy, on one line


def list_recordings(root: AnyPath) -> list[Recording | Unreadable]:
    """All recordings directly under `root`, oldest first, then the unreadable ones.

    CurvescopeError: the folder or store cannot be listed.
    """
    try:
        # A remote store is asked for all recordings at once, not folder by folder.
        if isinstance(root, RemotePath):
            folders: list[AnyPath] = list(root.iterdir())
        else:
            folders = [meta.parent for meta in sorted(root.glob(f"*/{META_FILE}"))]
    except OSError as error:
        raise CurvescopeError(
            f"{root} cannot be listed ({error}). Check the URL and your credentials."
        ) from error
    recordings = []
    unreadable = []
    for folder, opened in zip(folders, open_recordings(folders), strict=True):
        if isinstance(opened, Recording):
            recordings.append(opened)
        elif not isinstance(opened, NoRecordingError):
            unreadable.append(Unreadable(folder, " ".join(str(opened).split())))
    recordings.sort(key=lambda recording: str(recording.meta.get("created_utc", "")))
    return [*recordings, *unreadable]


def new_recording_path(label: str, root: Path = Path("runs")) -> Path:
    """Create a dated folder, e.g. `runs/2026-03-01_143055_alexnet`, to reserve its name; empty ones
    go at exit.
    """
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in label)[:_LONGEST_LABEL]
    stem = f"{datetime.now().astimezone():%Y-%m-%d_%H%M%S}_{safe}"
    made = [] if root.exists() else [root]
    for suffix in ("", *(f"_{n}" for n in range(2, 1000))):
        path = root / f"{stem}{suffix}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_error(path, error) from error
        atexit.register(_remove_empty, path, *made)
        return path
    raise CurvescopeError(
        f"{root} already contains a thousand recordings named {stem}; choose a folder with -o DIR."
    )


def _remove_empty(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):  # also raised, as intended, for a folder with contents
            path.rmdir()
