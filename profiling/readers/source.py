"""A file to import: recognised by its content, unpacked if it is gzip, and never trusted.

The first bytes decide on the format, never the file's name. Nothing is written beside the file.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import shutil
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from ...base.budget import Budget
from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.limits import (
    UNPACKED_BYTES,
    UNPACKED_FREE_BYTES,
    UNPACKED_RATIO,
    WHOLE_FREE_BYTES,
    WHOLE_RATIO,
    check_regular,
    say_how_to_raise,
    times,
)
from ..attribution.range_names import scrub
from .sqlite_tables import PRAGMAS, SqliteTables

HEAD_BYTES = 1 << 20

_SQLITE = b"SQLite format 3\x00"
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
# Ends of names of profiles, for a hint.
_PROFILES = (
    ".json",
    ".json.gz",
    ".sqlite",
    ".nsys-rep",
    ".ncu-rep",
    ".qdrep",
    ".xplane.pb",
    ".nvvp",
    ".nvprof",
    ".db",
)
# First bytes of formats that no reader here reads, and the remedy.
_FOREIGN = (
    (b"(\xb5/\xfd", "packed by zstd; unpack it with `unzstd` first"),
    (b"BZh", "packed by bzip2; unpack it with `bunzip2` first"),
    (b"\xfd7zXZ", "packed by xz; unpack it with `unxz` first"),
    (
        b"PAR1",
        "a Parquet file; `curvescope breakdown` reads the folder of a recording, not its parts",
    ),
    (b"\x89HDF", "an HDF5 file; export the profile as SQLite"),
)


class Source:
    """One file, read only; a context manager that closes everything it opened.

    All of it gives unpacked content, and every byte is read under the budget of the import.
    """

    def __init__(self, path: Path, budget: Budget | None = None) -> None:
        """Open a file; a file that belongs to another one is read under the other's budget."""
        self.path = path
        self.budget = budget or Budget()
        self.packed = False  # whether it is gzip
        self._opened = ExitStack()
        with self._open_raw() as file:
            self.size_bytes = os.fstat(file.fileno()).st_size
            if not self.size_bytes:  # also files of the kernel, of which some wait for more
                raise CurvescopeError("it is empty; record it again.")
            self.budget.begin_file(self.size_bytes)
            self.packed = file.read(2) == _GZIP
        with self.open() as stream:
            self.head = stream.read(HEAD_BYTES)
        if not self.head.strip():
            raise CurvescopeError("it is empty; record it again.")
        if self.head.startswith(_ZIP):
            raise CurvescopeError(f"it is a ZIP archive; {_inside(self.path)}.")
        for magic, words in _FOREIGN:
            if self.head.startswith(magic):
                raise CurvescopeError(f"it is {words}.")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @cached_property
    def tables(self) -> SqliteTables | None:
        """The tables of a SQLite database; None for other files."""
        if not self.head.startswith(_SQLITE):
            return None
        path = self._opened.enter_context(self.on_disk())
        self.budget.note_content(path.stat().st_size)
        return SqliteTables(self._opened.enter_context(open_sqlite(path)), path, self.budget)

    @cached_property
    def text(self) -> str:
        """The first bytes as text, without leading white space and byte order mark; empty for
        binary files.
        """
        if b"\x00" in self.head[:4096]:
            return ""
        return self.head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The content as a stream, unpacked; reading raises `CurvescopeError` for a
        damaged file.
        """
        with self._open_raw() as file:
            checked = _Checked(file, math.inf, self.budget)
            if self.packed:
                in_proportion = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO * self.size_bytes)
                most_bytes = times(min(UNPACKED_BYTES, in_proportion))
                checked = _Checked(gzip.GzipFile(fileobj=file), most_bytes, self.budget)
            yield io.BufferedReader(checked, 1 << 20)

    def read_all(self, most_bytes: int) -> bytes:
        """The complete content; raises `CurvescopeError` if it is larger, or damaged."""
        if self.packed:
            most_bytes = min(most_bytes, max(WHOLE_FREE_BYTES, WHOLE_RATIO * self.size_bytes))
        blocks = []
        size = 0
        with self.open() as stream:
            while block := stream.read(
                1 << 20
            ):  # one large read of a gzip file takes its memory at once
                blocks.append(block)
                size += len(block)
                if size > times(most_bytes):
                    raise CurvescopeError(
                        f"it holds more than {times(most_bytes) >> 20} MiB unpacked; record fewer "
                        f"steps. {say_how_to_raise()}"
                    )
        return b"".join(blocks)

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The path of an unpacked file: itself, or a temporary copy, which is deleted when the
        block ends.
        """
        if not self.packed:
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
            copy = Path(folder) / "profile"
            try:
                with self.open() as stream, copy.open("wb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
            except OSError as error:
                raise CurvescopeError(
                    f"it could not be unpacked into {folder} ({error.strerror}); unpack it by hand "
                    "with `gunzip -k`, or set TMPDIR to a larger disk."
                ) from error
            yield copy

    @contextmanager
    def _open_raw(self) -> Iterator[BinaryIO]:
        try:
            check_regular(self.path)
            file = self.path.open("rb")
        except OSError as error:
            raise CurvescopeError(
                f"it cannot be read ({error.strerror}); check the path."
            ) from error
        with file:
            yield file


def _inside(path: Path) -> str:
    """The advice for a ZIP archive, by the names in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return "unpack it and import the profile in it"
    profiles = [name for name in names if name.lower().endswith(_PROFILES)]
    if not profiles:
        return (
            f"none of {counted(len(names), 'file')} in it is named as a profile: give the profile "
            "itself"
        )
    first = ", ".join(scrub(name.rsplit("/", 1)[-1]) for name in profiles[:3])
    more = f" and {len(profiles) - 3} more" if len(profiles) > 3 else ""
    return f"unpack it, and import one of the files in it: {first}{more}"


class _Checked(io.RawIOBase):
    """A stream whose errors name the remedy; it refuses gzip files that unpack to more than any
    profile does.
    """

    def __init__(self, stream: BinaryIO | gzip.GzipFile, most_bytes: float, budget: Budget) -> None:
        self._stream = stream
        self._most = most_bytes
        self._budget = budget
        self._seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            size: int = self._stream.readinto(buffer)  # type: ignore[union-attr]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CurvescopeError(
                f"it is cut off or damaged ({error}); copy or record it again."
            ) from error
        except OSError as error:
            raise CurvescopeError(
                f"it cannot be read ({error.strerror}); check the disk."
            ) from error
        self._seen += size
        self._budget.note_content(self._seen)
        if self._seen > self._most:
            raise CurvescopeError(
                f"it holds more than {int(self._most) >> 20} MiB unpacked: no profile packs like "
                f"that. {say_how_to_raise()}"
            )
        return size


@contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A SQLite file opened read-only and immutable: no lock is taken and nothing is written beside
    it.
    """
    for suffix, words in (("-wal", "a write-ahead log"), ("-journal", "a rollback journal")):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise CurvescopeError(
                f"{words} lies beside it ({beside.name}): a program is still writing it, or was "
                "cut off. Let it finish, or export the profile again."
            )
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
        for pragma in PRAGMAS:
            connection.execute(pragma)
        yield connection
    finally:
        connection.close()
