"""The recording store: a folder of Parquet tables and a `recording.json`.

Each table is a folder of parts (`kernels/00003.parquet`), so that a recording grows visit by visit and existing
parts stay readable when the run is interrupted. Every file is written under a temporary name, synced, then renamed;
an object of a remote store is one put. What is recorded is never changed: a finished recording only gets new parts,
and values where it has none (`RecordingWriter.extend` and `fill`). Nothing is shared between recordings, so that any
number of writers may fill one store. Any Parquet reader opens the tables unaided.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.prefetch import read_ahead
from ...base.words import Word
from .atomic_files import atomic_file, claim_remote, claimed_folder, locked_folder, storage_error
from .lost import Severity, loss
from .part_files import count_rows, read_part, write_part
from .remote_store import AnyPath, RemotePath, as_path
from .schema import EXPERIMENTS, FORMER_TABLES, SCHEMA_VERSION, TABLES, conform, modernise_meta

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

META_FILE = "recording.json"
FORMAT = "curvescope recording"
_LONGEST_LABEL = 100  # characters: file systems take 255 bytes
_REQUESTS_AT_ONCE = 32  # of one process to a remote store, whose answers take tens of milliseconds each
KERNEL = "kernel"  # see `Recording.work`
NO_STEP = "no step is known, nothing marks one and no sequence of kernels repeats"  # `steps_from` in `recording.json`
STEPS_KNOWN_BY = (
    "Ranges around the steps make them known (NVTX, profiler.step(), or those that `import --steps marks:REGEX` "
    "names); `--steps whole` says that all of it is one step."
)
STEP, RECORDING = "step", "recording"
# Entry of `recording.json` of versions that were measured together: `run`, `rounds_of_process`, `name` and `place`.
TOGETHER = "measured_together"
MODEL = "model"  # `recording_type` of times that the cost model gave


def unit_of(meta: Mapping[str, Any]) -> str:
    """What the rows of `steps` are, by `recording.json`: see `Recording.unit`."""
    return RECORDING if NO_STEP in str(meta.get("steps_from")) else STEP


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
    """Writes one recording, part by part. Use as a context manager: an exception marks the recording interrupted."""

    def __init__(self, path: AnyPath, meta: Mapping[str, Any]) -> None:
        """Create the folder.

        Args:
            path: folder to create; it must not exist, or be empty.
            meta: JSON-serialisable metadata of the run; see `Recording.meta`.

        Raises:
            CurvescopeError: the folder is not empty, or cannot be created.
        """
        self.path = path
        self._extends, self._locks = False, ExitStack()
        self._numbered = dict.fromkeys(TABLES, 0)
        self._meta: dict[str, Any] = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "status": Status.RECORDING,
            "created_utc": _now_utc(),
            "lost": {},
            **meta,
        }
        if isinstance(path, RemotePath):
            claim_remote(path, META_FILE, self._document())
        else:
            with claimed_folder(path):
                self._write_meta()

    @classmethod
    def resume(cls, path: AnyPath, last_table: str) -> RecordingWriter:
        """Continue to write an interrupted recording.

        Args:
            path: folder of the recording.
            last_table: the table that is written last in each visit. Parts of other tables without a part of the same
                name there are incomplete visits, and are removed; experiments are no visits, and stay.

        Raises:
            CurvescopeError: the folder has no recording, or it is unreadable.
        """
        writer = cls._of_existing(path)
        whole = {part.name for part in (path / last_table).glob("*.parquet")}
        for table in TABLES.keys() - {EXPERIMENTS.name}:
            for part in (path / table).glob("*.parquet"):
                if part.name not in whole:
                    part.unlink()
        writer._numbered = {table: len(list((path / table).glob("*.parquet"))) for table in TABLES}
        writer.update(status=Status.RECORDING, resumed_utc=[*writer._meta.get("resumed_utc", []), _now_utc()])
        return writer

    @classmethod
    def extend(cls, path: AnyPath) -> RecordingWriter:
        """Add to a finished recording; its status and its counts of lost data stay.

        Only one process at a time extends a local recording. A crash leaves the parts and entries written before it.

        Args:
            path: folder of the recording.

        Raises:
            CurvescopeError: the folder has no recording, it is unreadable, unfinished or of an older version, or
                another process extends it.
        """
        with ExitStack() as locks:
            if not isinstance(path, RemotePath):
                locks.enter_context(locked_folder(path))
            writer = cls._of_existing(path)
            why = None
            if writer.meta["status"] == Status.RECORDING:
                why = "is not finished: another process still records it, or was killed"
            elif writer.meta["schema_version"] != SCHEMA_VERSION:
                why = "was written by an older Curvescope"
            if why is not None:
                raise CurvescopeError(f"{path} {why}. Nothing can be added to it; record it again.")
            writer._extends, writer._locks = True, locks.pop_all()
        for table in TABLES:
            numbers = [int(part.stem) for part in (path / table).glob("*.parquet") if part.stem.isdigit()]
            writer._numbered[table] = max(numbers, default=-1) + 1
        return writer

    @classmethod
    def mark_interrupted(cls, path: AnyPath) -> None:
        """Mark a recording as interrupted after its writer was killed.

        Raises:
            CurvescopeError: the folder has no recording, or it is unreadable or not writable.
        """
        writer = cls._of_existing(path)
        if writer.meta["status"] == Status.RECORDING:
            writer.finish(Status.INTERRUPTED)

    @classmethod
    def _of_existing(cls, path: AnyPath) -> RecordingWriter:
        writer = cls.__new__(cls)
        writer.path, writer._meta = path, open_recording(path).meta
        writer._extends, writer._locks, writer._numbered = False, ExitStack(), dict.fromkeys(TABLES, 0)
        return writer

    @property
    def meta(self) -> Mapping[str, Any]:
        """Current contents of `recording.json`."""
        return self._meta

    def write(self, table: str, data: pa.Table | pd.DataFrame | Mapping[str, Any], part: str | None = None) -> None:
        """Append one part to a table; on return it is complete on disk.

        Args:
            table: name in the schema.
            data: columns by name; without rows nothing is written.
            part: name of the part, unique in the table; None for the next number.

        Raises:
            ValueError: the data does not fit the table's schema, or an extended recording already has the part.
            CurvescopeError: the disk is full or the folder is not writable.
        """
        if not isinstance(data, pa.Table):
            data = pa.table(data if isinstance(data, Mapping) else {name: data[name] for name in data.columns})
        conformed = conform(TABLES[table], data)
        if not conformed.num_rows:
            return
        file = self.path / table / f"{part or self.next_part(table)}.parquet"
        if self._extends and part is not None and file.is_file():
            raise ValueError(f"{file} exists, and nothing is overwritten")
        write_part(file, TABLES[table], conformed)

    def fill(self, table: str, part: AnyPath, values: Mapping[str, pa.Array]) -> None:
        """Add values to a part where it has none; a value that is there stays. The part is replaced at once.

        Args:
            table: name in the schema.
            part: one of `Recording.parts`.
            values: one value or null for each row of the part, by column.

        Raises:
            CurvescopeError: the part is damaged, the disk is full, or the folder is not writable.
        """
        rows = read_part(part, TABLES[table], encoded=True)
        for name, added in values.items():
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.coalesce(rows[name], added))
        write_part(part, TABLES[table], rows)

    def next_part(self, table: str) -> str:
        """Reserve the next free part number of a table, for writers that write several parts at once."""
        number = self._numbered[table]
        self._numbered[table] += 1
        return f"{number:05d}"

    def update(self, **meta: Any) -> None:
        """Replace entries of `recording.json` and write it."""
        self._meta.update(meta)
        self._write_meta()

    def count_lost(self, name: str, count: int, sentence: str | None = None) -> None:
        """Add to a named count of lost or repaired data.

        Args:
            name: name of the count.
            count: number to add.
            sentence: meaning of the count, for a name that `lost.LOSSES` does not have.

        Raises:
            CurvescopeError: the name is unknown and has no sentence.
        """
        kind = loss(name, sentence)
        if count:
            entry = {"count": 0, "severity": kind.severity.value, "sentence": kind.sentence}
            self._meta["lost"].setdefault(name, entry)["count"] += count

    def finish(self, status: str | None = None) -> None:
        """Write the final status; default: complete, or incomplete if data was lost."""
        gone = any(entry.get("severity") == Severity.LOST.value for entry in self._meta["lost"].values())
        self.update(status=status or (Status.INCOMPLETE if gone else Status.COMPLETE))

    def _write_meta(self) -> None:
        with atomic_file(self.path / META_FILE) as file:
            file.write(self._document())

    def _document(self) -> bytes:
        return json.dumps(self._meta, indent=1, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace")

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        status = None if kind is None else Status.INTERRUPTED
        # A full disk may be the reason for the exception: existing parts stay readable with any status.
        with self._locks, suppress(*(() if kind is None else (CurvescopeError,))):
            self.finish(self._meta["status"] if self._extends else status)


def columns_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns; missing keys become None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


@dataclass(frozen=True)
class Recording:
    """A recording for reading. Tables are loaded on first use."""

    path: AnyPath  # folder, or URL on a remote store
    # `recording.json`: `network`, `argv`, `protocol`, `device`, `host`, `versions`, `lost`, `status`, …
    meta: dict[str, Any]
    _frames: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """Whether the writer finished and no data was lost."""
        return bool(self.meta["status"] == Status.COMPLETE)

    @property
    def unit(self) -> str:
        """What the rows of `steps` are: `step`; `recording` if no step is known, so that it is all of the recording."""
        return unit_of(self.meta)

    @property
    def work(self) -> str:
        """What the rows of `kernels` are: `kernel`, or `operator` where they are operators of the host."""
        on_host = (self.meta.get("device") or {}).get("kind") == "cpu" or "device" in (self.meta.get("missing") or {})
        return "operator" if on_host else KERNEL

    @property
    def statistic(self) -> str:
        """Statistic that T(b) is, by the protocol: median or mean."""
        return str((self.meta.get("protocol") or {}).get("statistic", "median"))

    def parts(self, table: str) -> Sequence[AnyPath]:
        """The Parquet files of a table in the order of writing; empty if nothing was recorded."""
        names = [table]
        if self.meta.get("schema_version", SCHEMA_VERSION) < SCHEMA_VERSION and table in FORMER_TABLES:
            names.append(FORMER_TABLES[table])
        return sorted(part for name in names for part in (self.path / name).glob("*.parquet"))

    def arrow(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table as Arrow, with all columns of the schema even if nothing was recorded.

        Args:
            table: name of the table.
            columns: columns to read; default: all.

        Raises:
            CurvescopeError: a part is damaged, or does not fit the schema.
        """
        schema = TABLES[table]
        pieces = [read_part(part, schema, columns) for part in self.parts(table)]
        return pa.concat_tables(pieces) if pieces else schema.only(columns).arrow.empty_table()

    def pieces(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Read a table as Arrow part by part, with dictionary-encoded text: for tables too large for memory.

        The next part is read while one is used.

        Raises:
            CurvescopeError: a part is damaged, or does not fit the schema.
        """
        parts = self.parts(table)
        pieces = (read_part(part, TABLES[table], columns, encoded=True) for part in parts)
        if len(parts) < 2:  # faster without a thread
            yield from pieces
        else:
            yield from read_ahead(next(pieces), lambda: next(pieces, None))

    def frame(self, table: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table as pandas; nullable integers stay integers (`Int64`).

        Args:
            table: name of the table.
            columns: columns to read; default: all. A million kernels with all columns take half a gigabyte.
        """
        key = table if columns is None else f"{table}:{','.join(columns)}"
        if key not in self._frames:
            # Arrow columns are freed as they are converted, so that both forms never exist in full.
            from pandas import BooleanDtype, Int32Dtype, Int64Dtype

            nullable = {pa.int64(): Int64Dtype(), pa.int32(): Int32Dtype(), pa.bool_(): BooleanDtype()}
            self._frames[key] = self.arrow(table, columns).to_pandas(
                types_mapper=nullable.get, split_blocks=True, self_destruct=True
            )
        return self._frames[key]

    def extended(self, meta: Mapping[str, Any]) -> Recording:
        """The recording after an experiment: with another `recording.json`, and its experiments read anew."""
        kept = {key: frame for key, frame in self._frames.items() if key.partition(":")[0] != EXPERIMENTS.name}
        return Recording(self.path, dict(meta), kept)

    def _repr_html_(self) -> str:
        """Summary for notebooks; names are escaped."""
        device = self.meta.get("device") or {}
        facts = {
            "network": self.meta.get("network"),
            "device": device.get("name"),
            "batch sizes": ", ".join(map(str, self.meta.get("batches") or ())) or None,
            "status": self.meta["status"],
            "recorded": self.meta.get("created_utc"),
            **{name: counted(count, "row") for name in TABLES if (count := self.count_rows(name))},
            **{f"lost: {name}": entry["count"] for name, entry in (self.meta.get("lost") or {}).items()},
        }
        left = 'style="text-align:left"'
        rows = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(fact))}</td></tr>"
            for name, fact in facts.items()
            if fact is not None
        )
        return f"<p><b>{escape(str(self.path))}</b></p><table>{rows}</table>"

    def count_rows(self, table: str) -> int:
        """Number of rows of a table; reads only the footers of its files.

        Raises:
            CurvescopeError: a part is damaged.
        """
        return sum(count_rows(part) for part in self.parts(table))

    @cached_property
    def sql(self) -> duckdb.DuckDBPyConnection:
        """An in-memory DuckDB with one view per table, over the Parquet files."""
        import duckdb

        connection = duckdb.connect()
        if isinstance(self.path, RemotePath):
            connection.register_filesystem(self.path.filesystem)
        for name, table in TABLES.items():
            if self.meta["schema_version"] < SCHEMA_VERSION:
                connection.from_arrow(self.arrow(name)).create_view(name)
            elif parts := self.parts(name):
                connection.read_parquet([str(p) for p in parts]).create_view(name)
            else:
                connection.from_arrow(table.arrow.empty_table()).create_view(name)
        return connection


def _now_utc() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def open_recording(path: str | os.PathLike[str] | RemotePath) -> Recording:
    """Open a recording in a folder or at a URL, e.g. `s3://bucket/job/rank3`.

    Raises:
        CurvescopeError: `path` has no recording, it is unreadable, or a newer Curvescope wrote it.
    """
    folder = path if isinstance(path, RemotePath) else as_path(path)
    try:
        meta = json.loads((folder / META_FILE).read_bytes())
    except FileNotFoundError:
        missing = isinstance(folder, Path) and not folder.exists()
        if isinstance(folder, Path) and (inside := next(iter(sorted(folder.glob(f"*/{META_FILE}"))), None)):
            raise CurvescopeError(f"{folder} holds recordings: name one, e.g. {inside.parent}.") from None
        why = "does not exist" if missing else f"is not a recording ({META_FILE} is missing)"
        raise CurvescopeError(f"{folder} {why}. `curvescope runs` lists recordings.") from None
    except NotADirectoryError:
        raise CurvescopeError(
            f"{folder} is a file, not the folder of a recording. If it is a profile, import it: `curvescope import "
            f"{folder} -o FOLDER`."
        ) from None
    except (OSError, ValueError) as error:
        raise CurvescopeError(
            f"{folder / META_FILE} cannot be read ({error}). The Parquet tables beside it may still be readable."
        ) from error
    version, status = (meta.get("schema_version"), meta.get("status")) if isinstance(meta, dict) else (None, None)
    if not isinstance(version, int) or not isinstance(status, str) or meta.get("format") != FORMAT:
        raise CurvescopeError(f"{folder / META_FILE} was not written by Curvescope.")
    if version > SCHEMA_VERSION:
        raise CurvescopeError(
            f"{folder} has schema version {version}, but this Curvescope reads versions up to {SCHEMA_VERSION}: "
            "upgrade with `pip install --upgrade curvescope`."
        )
    if version < SCHEMA_VERSION:
        meta = modernise_meta(meta)
    return Recording(folder, meta)


def open_recordings(folders: Iterable[AnyPath]) -> list[Recording | CurvescopeError]:
    """Open recordings, in order: each recording, or its error. Remote recordings are read concurrently."""

    def attempt(folder: AnyPath) -> Recording | CurvescopeError:
        try:
            return open_recording(folder)
        except CurvescopeError as error:
            return error

    listed = list(folders)
    if not any(isinstance(folder, RemotePath) for folder in listed):
        return [attempt(folder) for folder in listed]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        return list(pool.map(attempt, listed))


def list_recordings(root: AnyPath) -> list[Recording]:
    """All readable recordings directly under `root`, oldest first; unreadable folders are skipped.

    Raises:
        CurvescopeError: a remote store cannot be listed.
    """
    try:
        # A remote store is asked for all recordings at once, not folder by folder.
        folders: list[AnyPath] = (
            list(root.iterdir())
            if isinstance(root, RemotePath)
            else [meta.parent for meta in sorted(root.glob(f"*/{META_FILE}"))]
        )
    except OSError as error:
        raise CurvescopeError(f"{root} cannot be listed ({error}). Check the URL and your credentials.") from error
    found = [recording for recording in open_recordings(folders) if isinstance(recording, Recording)]
    return sorted(found, key=lambda r: str(r.meta.get("created_utc", "")))


def new_recording_path(label: str, root: Path = Path("runs")) -> Path:
    """Create a dated folder under `root`, e.g. `runs/2026-03-01_143055_alexnet`, which reserves its name.

    If it is still empty when the process exits, it is removed.

    Raises:
        CurvescopeError: the folder cannot be created.
    """
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in label)[:_LONGEST_LABEL]
    stem = f"{datetime.now().astimezone():%Y-%m-%d_%H%M%S}_{safe}"
    for suffix in ("", *(f"_{n}" for n in range(2, 1000))):
        path = root / f"{stem}{suffix}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_error(path, error) from error
        atexit.register(_remove_empty, path)
        return path
    raise CurvescopeError(f"{root} already contains a thousand recordings named {stem}; choose a folder with -o DIR.")


def _remove_empty(path: Path) -> None:
    with suppress(OSError):  # also raised, as intended, for a folder with contents
        path.rmdir()
