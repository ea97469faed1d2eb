"""A file to import: told by its content, unpacked where it is gzip, and never trusted.

What a file is comes from its first bytes, never from its name. Nothing is written beside it.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from ..errors import CurvescopeError
from .sqlite_tables import PRAGMAS, SqliteTables

HEAD_BYTES = 1 << 20
# gzip packs at most 1,032 times; profiles 10 to 40 times. Past both limits a file is a bomb, or as good as one.
MOST_RATIO = 200
FREE_BYTES = 1 << 30  # unpacked, below which the ratio does not matter
MOST_BYTES = 1 << 36  # unpacked, 64 GiB

_SQLITE = b"SQLite format 3\x00"
_GZIP = b"\x1f\x8b"
# First bytes of what people hand in but nobody here reads, and the remedy.
_FOREIGN = (
    (b"PK\x03\x04", "a ZIP archive; unpack it and import the profile in it"),
    (b"(\xb5/\xfd", "packed by zstd; unpack it with `unzstd` first"),
    (b"BZh", "packed by bzip2; unpack it with `bunzip2` first"),
    (b"\xfd7zXZ", "packed by xz; unpack it with `unxz` first"),
    (b"PAR1", "a Parquet file; `curvescope breakdown` reads the folder of a recording, not its parts"),
    (b"\x89HDF", "an HDF5 file; export the profile as SQLite"),
)


class Source:
    """One file, read only; a context manager that closes what it opened.

    Attributes:
        path: where it lies.
        packed: whether it is gzip; everything else here shows it unpacked.
        head: its first bytes, up to 1 MiB.
    """

    def __init__(self, path: Path) -> None:
        """Read the first bytes.

        Raises:
            CurvescopeError: the file cannot be read, is empty, damaged, or packed in a way that is not read.
        """
        self.path = path
        self.packed = False
        self._open_things = ExitStack()
        with self._open_raw() as file:
            self.packed = file.read(2) == _GZIP
            self.size_bytes = os.fstat(file.fileno()).st_size
        with self.open() as stream:
            self.head = stream.read(HEAD_BYTES)
        if not self.head.strip():
            raise CurvescopeError("it is empty; record it again.")
        for magic, words in _FOREIGN:
            if self.head.startswith(magic):
                raise CurvescopeError(f"it is {words}.")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_things.close()

    @cached_property
    def tables(self) -> SqliteTables | None:
        """The tables of a SQLite database; null if it is none.

        Raises:
            CurvescopeError: another program has not finished writing it, or it is no whole database.
        """
        if not self.head.startswith(_SQLITE):
            return None
        path = self._open_things.enter_context(self.on_disk())
        return SqliteTables(self._open_things.enter_context(open_sqlite(path)), path)

    @cached_property
    def text(self) -> str:
        """The first bytes as text, white space and byte order mark cut off its front; empty for binary files."""
        if b"\x00" in self.head[:4096]:
            return ""
        return self.head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The content as a stream, unpacked; damage met while reading becomes a `CurvescopeError`."""
        with self._open_raw() as file:
            yield _Unpacked(file, self.size_bytes) if self.packed else io.BufferedReader(_Plain(file), 1 << 20)

    def read_all(self, most_bytes: int) -> bytes:
        """The whole content.

        Raises:
            CurvescopeError: it is larger than `most_bytes`, or damaged.
        """
        with self.open() as stream:
            data = stream.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise CurvescopeError(f"it holds more than {most_bytes >> 20} MiB unpacked; record fewer steps.")
        return data

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The path of an unpacked file: itself, or a temporary copy that goes when the block ends."""
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
                    f"it could not be unpacked into {folder} ({error.strerror}); unpack it by hand with `gunzip -k`, "
                    "or set TMPDIR to a larger disk."
                ) from error
            yield copy

    @contextmanager
    def _open_raw(self) -> Iterator[BinaryIO]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise CurvescopeError(f"it cannot be read ({error.strerror}); check the path.") from error
        with file:
            yield file


class _Plain(io.RawIOBase):
    """A file whose read errors name the remedy."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            size: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        except OSError as error:
            raise CurvescopeError(f"it cannot be read ({error.strerror}); check the disk.") from error
        return size


class _Unpacked(io.BufferedReader):
    """A gzip stream that refuses bombs and says what is wrong with a damaged one."""

    def __init__(self, file: BinaryIO, packed_bytes: int) -> None:
        file.seek(0)
        super().__init__(_Gunzip(file, packed_bytes), 1 << 20)


class _Gunzip(io.RawIOBase):
    def __init__(self, file: BinaryIO, packed_bytes: int) -> None:
        self._stream = gzip.GzipFile(fileobj=file)
        self._most = min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * packed_bytes))
        self._seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CurvescopeError(f"it is cut off or damaged ({error}); copy or record it again.") from error
        except OSError as error:
            raise CurvescopeError(f"it cannot be read ({error.strerror}); check the disk.") from error
        self._seen += len(data)
        if self._seen > self._most:
            raise CurvescopeError(
                f"it holds more than {self._most >> 20} MiB unpacked: no profile packs like that. Unpack it by hand if "
                "you trust it."
            )
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A SQLite file opened read-only and immutable: no lock is taken and nothing is written beside it.

    Raises:
        CurvescopeError: another program has not finished writing it.
    """
    for suffix, words in (("-wal", "a write-ahead log"), ("-journal", "a rollback journal")):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise CurvescopeError(
                f"{words} lies beside it ({beside.name}): a program is still writing it, or was cut off. "
                "Let it finish, or export the profile again."
            )
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
        for pragma in PRAGMAS:
            connection.execute(pragma)
        yield connection
    finally:
        connection.close()
