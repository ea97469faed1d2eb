"""The folder of chunk files of a recording, which lies in the recording until they are merged into
its tables.

So whatever ends the recording command, or fills the disk, leaves its data: the first command that
reads it merges it (`with_tables`), into a temporary recording as long as somebody records.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import pyarrow as pa

from ...base.errors import CurvescopeError
from ...base.limits import META_BYTES, read_small
from ..readers import Options
from ..recording.atomic_files import StorageError, lock_folder, storage_error
from ..recording.inside import Folder, check_unlinked, is_own_file, open_folder
from ..recording.lost import Severity, describe_lost
from ..recording.remote_store import AnyPath, RemotePath
from ..recording.store import (
    CHUNKS,
    Recording,
    RecordingWriter,
    Status,
    has_chunks,
    new_recording_path,
    open_recording,
)
from .merge import merge_chunks
from .shared_memory import ProcessEnd, drain_processes

FOLDER_VARIABLE = "CURVESCOPE_CHUNK_FOLDER"
_OPTIONS = "options"  # in it, JSON: how names of ranges are read
_ENDS = "ends"  # in it, JSON: how the processes ended, which the command says that recorded them
# Files that hold room on the disk, and their bytes, less on a small disk: for the last events of a
# thread, and for what is known of the end.
_EVENTS_ROOM = {"room_for_events": (1 << 20,)}
_END_ROOM = {"room_for_the_end": (1 << 16, 1 << 12)}
_CUT = (
    "The recording command was killed, or had no room on the disk: what its processes recorded in "
    "their last moments (ranges of some 10 ms, buffers of GPU records) may be missing."
)


# Errors where chunk files hold what no collector writes.
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_LONGEST_ERROR = 300  # characters: an error may hold a value of the file
# Errors after which a folder of chunk files stays as it is.
_UNCHANGED = (CurvescopeError, OSError, RecursionError)
T = TypeVar("T")


class _KeptOptions(msgspec.Struct):
    """What the file of options holds."""

    batch: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] | None = None
    range_pattern: str | None = None


class NotMergedError(CurvescopeError):
    """The data could not be written as a recording; it is kept."""


@dataclass(frozen=True)
class Chunks:
    """The chunk folder of a recording in progress, its writer, and how to read names of ranges."""

    folder: Path
    writer: RecordingWriter
    options: Options
    # for a remote store: of the local recording that has the folder
    local: RecordingWriter | None = None

    def merge(self, ended_by: str | None = None, **how: Any) -> None:
        """Write the recording, finish it, and delete the chunk files; `how` is for `merge_chunks`.

        `ended_by` is what ended the recording early, e.g. SIGTERM.

        Raises:
            NotMergedError: it could not be written; the chunk files are kept, as after any other
                exception.
        """
        home = self.folder.parent
        kept = (
            f"What was recorded is kept in {self.folder}, and `curvescope explain {home}` reads it"
        )
        self.give_room()
        try:
            with refusing_damage(self.folder):
                merge_chunks(self.folder, self.writer, self.options, **how)
            self.writer.finish(Status.INTERRUPTED if ended_by else None)
        except BaseException as error:
            for writer in filter(None, (self.writer, self.local)):
                # On a full disk it stays as it is, and where what was read fits no entry of it.
                with suppress(CurvescopeError):
                    writer.check()
                    writer.finish(Status.INTERRUPTED)
            if not isinstance(error, Exception):
                print(f"curvescope: {kept}.", file=sys.stderr)
                raise
            if isinstance(error, CurvescopeError):
                why = str(error)
            else:
                why = f"{type(error).__name__}: {error}."
            when = " once there is room" if isinstance(error, StorageError) else " later"
            raise NotMergedError(" ".join([why, f"{kept}{when}.", *self._lost()])) from error
        self.discard()

    def _lost(self) -> list[str]:
        """The data lost for ever, in words."""
        lost = self.writer.meta["lost"]
        return describe_lost(
            {name: loss for name, loss in lost.items() if loss["severity"] == Severity.LOST.value}
        )

    def drain(self, memory: int | None = None) -> list[ProcessEnd]:
        """Write what the processes left in `memory`, see `drain_processes`, and how they ended;
        returns that.

        A full disk has the room that was held for it.
        """
        self.give_room(_EVENTS_ROOM)
        ends = drain_processes(self.folder, file=memory)  # also those that still run
        self.give_room()
        with suppress(*_UNCHANGED), open_folder(self.folder.parent, self.folder.name) as folder:
            folder.write(_ENDS, json.dumps([end._asdict() for end in ends]).encode())
        return ends

    def give_room(self, held: Iterable[str] = (*_EVENTS_ROOM, *_END_ROOM)) -> None:
        """Give back room on the disk that was held for the end of the recording."""
        for name in held:
            with suppress(*_UNCHANGED), open_folder(self.folder.parent, self.folder.name) as folder:
                folder.remove(name, missing_ok=True)

    def note(self, **facts: Any) -> None:
        """Write facts that a recovery needs too, as far as there is room on the disk."""
        for writer in filter(None, (self.writer, self.local)):
            with suppress(CurvescopeError):
                writer.update(**facts)

    def discard(self) -> None:
        """Delete the chunk folder, as a whole or not at all; with the local recording of a remote
        store.
        """
        folder = self.folder if self.local is None else self.folder.parent
        merged = f".{folder.name}.merged"
        with suppress(*_UNCHANGED), open_folder(folder.parent) as around:
            around.rename(folder.name, merged)
            around.remove_tree(merged)


def begin(path: AnyPath, meta: dict[str, Any], options: Options | None = None) -> Chunks:
    """Create a recording with a folder for chunk files; of a remote store, the folder is in a local
    recording.

    CurvescopeError: the recording's folder is taken or not writable.
    """
    options = options or Options()
    writer = RecordingWriter(path, meta)
    local = None
    home = path
    if isinstance(home, RemotePath):
        home = new_recording_path(home.name).resolve()
        local = RecordingWriter(home, meta)
    folder = home.resolve() / CHUNKS  # the program may change its working folder
    try:
        options_given = {"batch": options.batch, "range_pattern": options.range_pattern}
        with open_folder(folder.parent, folder.name, make=True) as made:
            made.write(_OPTIONS, json.dumps(options_given).encode())
            _hold_room(made)
    except OSError as error:
        writer.finish(Status.INTERRUPTED)
        raise storage_error(folder, error) from error
    return Chunks(folder, writer, options, local)


def _hold_room(folder: Folder) -> None:
    """Take room on the disk that `Chunks.give_room` gives back; a disk that has none holds none."""
    for name, sizes in {**_EVENTS_ROOM, **_END_ROOM}.items():
        any(_holds(folder, name, size) for size in sizes)


def _holds(folder: Folder, name: str, size: int) -> bool:
    try:
        with folder.create(name) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return True
    except (OSError, AttributeError):  # no such call in this system
        with suppress(OSError):
            folder.remove(name, missing_ok=True)
        return False


def processes_writing(folder: Path) -> list[int]:
    """The processes that still record into a chunk folder, by their ids, as far as /proc says."""
    named = {path.name.partition("-")[0] for path in folder.glob("*.chunks")}
    wanted = os.fsencode(f"{FOLDER_VARIABLE}={folder.resolve()}")
    chunks = []
    for number in sorted(int(name) for name in named if name.isdigit()):
        with suppress(OSError):  # it ended, or belongs to somebody else
            if wanted in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                chunks.append(number)
    return chunks


def recover(path: Path, range_pattern: str | None = None) -> Recording:
    """Merge the data that a killed recording command left, or had no room on the disk; returns the
    recording.

    `range_pattern` replaces the pattern for names of ranges that `record` was given.
    CurvescopeError: there is nothing to recover, a process still records, or the data is damaged.
    """
    recording = open_recording(path)
    if not has_chunks(path):
        raise CurvescopeError(
            f"{path} needs no recovery (status: {recording.meta['status']}): read it, e.g. with "
            "`curvescope explain`."
        )
    folder = path / CHUNKS
    check_unlinked(path, CHUNKS)
    options = _options_in(folder, range_pattern)
    ends = _ends_in(folder)
    if running := processes_writing(folder):
        raise CurvescopeError(
            f"Process {', '.join(map(str, running))} still records into {folder}: wait until it "
            f"has ended, or end it with `kill {running[0]}`."
        )
    writer = RecordingWriter.again(path)
    # The command writes both before it merges, as far as there is room.
    killed = "exit_code" not in writer.meta and not (folder / _ENDS).exists()
    if killed:
        _warn(writer, _CUT)
    ended_by = writer.meta.get("ended_by", "SIGKILL" if killed else None)
    Chunks(path.resolve() / CHUNKS, writer, options).merge(ended_by, ends=ends)
    return open_recording(path)


@contextmanager
def with_tables(recording: Recording, say: Callable[[str], None]) -> Iterator[Recording]:
    """The recording with its tables for the block, and say why it had none.

    One that was cut is completed. The chunk files of one that is still recorded, or that cannot be
    written, are merged into a temporary recording.
    """
    path = Path(str(recording.path))
    if complete_if_cut(path, say):
        yield open_recording(path)
        return
    is_cut, _ = _is_cut(path)
    with _merge_meanwhile(recording, is_cut) as merged:
        yield merged


def complete_if_cut(path: Path, say: Callable[[str], None]) -> bool:
    """Complete a recording that was cut, unless somebody may still record, or it cannot be written;
    returns whether it did, and says why it had no tables.

    CurvescopeError: the data is damaged.
    """
    is_cut, why = _is_cut(path)
    say(why)
    if not is_cut or not os.access(path, os.W_OK):
        return False
    try:
        recover(path)
    except (NotMergedError, StorageError) as error:
        if not isinstance(error.__cause__ or error, (OSError, StorageError)):
            raise
        say(str(error))
        return False
    return True


@contextmanager
def _merge_meanwhile(recording: Recording, is_cut: bool) -> Iterator[Recording]:
    """Merge the chunk files of a recording into a temporary one for the block."""
    path = Path(str(recording.path))
    folder = path / CHUNKS
    check_unlinked(path, CHUNKS)
    options = _options_in(folder)
    ends = _ends_in(folder)
    with tempfile.TemporaryDirectory(prefix="curvescope-") as scratch:
        # In a folder of the same name, by which views call it.
        target = Path(scratch, "recording", path.resolve().name)
        kept = {
            name: value for name, value in recording.meta.items() if name not in ("status", "lost")
        }
        writer = RecordingWriter(target, kept)
        if is_cut:
            _warn(writer, _CUT)
        with refusing_damage(folder):
            merge_chunks(folder, writer, options, ends=ends)
        writer.finish(Status.INTERRUPTED)
        yield open_recording(target)


def _is_cut(path: Path) -> tuple[bool, str]:
    """Whether a recording was cut and nobody records any more, and the sentence that says so."""
    running = processes_writing(path / CHUNKS)
    cut = f"{path} was cut: its recording command was killed, or had no room on the disk."
    try:
        with lock_folder(path) as is_locked:
            if running:
                number = ", ".join(map(str, running))
                return False, f"{cut} Process {number} still records into it."
            if not is_locked:
                return False, (
                    f"{path} is still being recorded, or was cut: no lock tells. Once nobody "
                    f"records, `curvescope import {path}` completes it."
                )
    except CurvescopeError:
        return False, f"{path} is still being recorded."
    return True, cut


def _warn(writer: RecordingWriter, sentence: str) -> None:
    others = [warning for warning in writer.meta.get("warnings", []) if warning != sentence]
    writer.update(warnings=[*others, sentence])


def _options_in(folder: Path, range_pattern: str | None = None) -> Options:
    """How names of ranges are read: by the pattern that the user gives now, or the one that
    `record` was given and the folder keeps.
    """
    kept = _read_kept(folder / _OPTIONS, _KeptOptions) or _KeptOptions()
    if range_pattern is not None:
        options = Options(batch=kept.batch, range_pattern=range_pattern)
        options.names  # noqa: B018 - refuses a wrong pattern
        return options
    options = Options(batch=kept.batch, range_pattern=kept.range_pattern, is_stored=True)
    try:
        options.names  # noqa: B018 - refuses a pattern that is not run
    except CurvescopeError as error:
        raise CurvescopeError(
            f"{folder / _OPTIONS} has a pattern for names of ranges: {error}. If you know it, "
            f"write it yourself: `curvescope import {folder.parent} --range-pattern REGEX`."
        ) from error
    return options


def _ends_in(folder: Path) -> list[ProcessEnd]:
    """How the processes ended, as far as the command that recorded them could say it."""
    rows = _read_kept(folder / _ENDS, list[dict[str, int | str]]) or []
    try:
        return [
            msgspec.convert([row[name] for name in ProcessEnd._fields], ProcessEnd) for row in rows
        ]
    except (LookupError, ValueError) as error:
        raise _damage(folder / _ENDS, error) from error


def _read_kept(path: Path, kind: type[T]) -> T | None:
    """The contents of a small file of the folder; None if it is missing, or cut off by a full disk.

    CurvescopeError: it is a link or no file, or holds something else.
    """
    if not os.path.lexists(path):
        return None
    if not is_own_file(path):
        raise CurvescopeError(f"{path} is no regular file but a link, pipe or device; remove it.")
    try:
        document = json.loads(read_small(path, META_BYTES, f"bytes in {path}"))
    except (OSError, ValueError):
        return None
    try:
        return msgspec.convert(document, kind)
    except ValueError as error:
        raise _damage(path, error) from error


@contextmanager
def refusing_damage(folder: Path) -> Iterator[None]:
    """Say in words that chunk files hold what no collector writes: they may be somebody else's."""
    try:
        yield
    except (*_DAMAGED, pa.ArrowException) as error:
        if isinstance(error, (CurvescopeError, MemoryError)):
            raise
        raise _damage(folder, error) from error


def _damage(path: Path, error: Exception) -> CurvescopeError:
    why = " ".join(f"{type(error).__name__}: {error}"[:_LONGEST_ERROR].split())
    return CurvescopeError(f"{path} is damaged, or no collector of Curvescope wrote it ({why}).")
