"""A recording in one file, which one attaches to a report: `NAME.curvescope`.

It is a zip file with `recording.json`, the parts of the tables, and the SHA-256 of each in
`checksums.json`. The same recording always makes the same bytes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO, BinaryIO

from ...base.errors import CurvescopeError
from ...base.limits import META_BYTES, WHOLE_FREE_BYTES, WHOLE_RATIO, check_limit
from .atomic_files import atomic_file
from .export import refuse_existing
from .inside import is_own_file, open_folder, remove_on_failure
from .remote_store import AnyPath
from .schema import TABLES
from .store import META_FILE, Recording, open_recording

SUFFIX = ".curvescope"
_CHECKSUMS = "checksums.json"
_MAGIC = b"PK\x03\x04"
_PART = re.compile(rf"({'|'.join(TABLES)})/([\w-][\w.-]*\.parquet)", re.ASCII)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def is_archive(path: Path) -> bool:
    """Whether a file begins as an archive does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:  # whoever reads it reports the error
        return False


def write_archive(recording: Recording, target: Path) -> None:
    """Write a recording into a new file.

    CurvescopeError: the file exists, a table is damaged, or the disk is full.
    """
    refuse_existing(target)
    with atomic_file(target) as file, zipfile.ZipFile(file, "w") as archive:
        sums = {}
        for path in _list_files(recording):
            if isinstance(path, Path) and not is_own_file(path):
                raise CurvescopeError(f"{path} is a link, whose file may be another's: remove it.")
            content = path.read_bytes()
            name = path.name if path.name == META_FILE else f"{path.parent.name}/{path.name}"
            sums[name] = hashlib.sha256(content).hexdigest()
            _put(archive, name, content)
        _put(archive, _CHECKSUMS, json.dumps(sums, indent=1).encode())


def unpack_archive(archive: Path, folder: Path) -> None:
    """Write the recording of an archive into a new or empty folder.

    CurvescopeError: the archive is damaged, holds anything but one recording, or unpacks to more
    than a recording does; or the folder holds something.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CurvescopeError(f"{folder} is not empty. Choose another folder with -o DIR.")
    try:
        with remove_on_failure(folder), zipfile.ZipFile(archive) as file:
            _check_entries(file, archive.stat().st_size)
            sums = _read_checksums(file)
            # Without `recording.json`, which comes last, the folder is no recording.
            for name in sorted(sums, key=lambda name: name == META_FILE):
                _unpack(file, name, sums[name], folder)
            open_recording(folder)
    except CurvescopeError as error:
        # the folder may be one that nobody knows, and is gone
        said = str(error).replace(str(folder), archive.name)
        raise CurvescopeError(f"{archive}: {said}") from error
    except (*_DAMAGED, OSError) as error:
        # a place that no file has; other errors are of the disk
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise CurvescopeError(f"{archive} is damaged ({error}); copy it again.") from error


def _list_files(recording: Recording) -> list[AnyPath]:
    files: list[AnyPath] = [recording.path / META_FILE]
    for table in TABLES:
        files += recording.parts(table)
    return files


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file without its time, which would make each archive another one."""
    entry = zipfile.ZipInfo(name)
    is_packed = name.endswith(".parquet")
    entry.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _check_entries(file: zipfile.ZipFile, packed_bytes: int) -> None:
    entries = file.infolist()
    names = [entry.filename for entry in entries]
    if META_FILE not in names or _CHECKSUMS not in names:
        raise CurvescopeError(
            f"it is a zip file without {META_FILE} and {_CHECKSUMS}, so no archive of Curvescope. "
            "`curvescope export RECORDING --archive` writes one."
        )
    for entry in entries:
        is_ours = entry.filename in (META_FILE, _CHECKSUMS) or _PART.fullmatch(entry.filename)
        if not is_ours or entry.compress_type not in _METHODS or entry.flag_bits & 1:
            raise CurvescopeError(
                f"the archive holds {entry.filename!r} in a form that no recording has."
            )
    if len(set(names)) < len(names):
        raise CurvescopeError("the archive holds a file twice.")
    unpacked_bytes = sum(entry.file_size for entry in entries)
    limit = max(WHOLE_FREE_BYTES, WHOLE_RATIO * packed_bytes)
    check_limit(unpacked_bytes, limit, f"unpacked bytes in {packed_bytes:,} packed")


def _read_checksums(file: zipfile.ZipFile) -> dict[str, str]:
    """The SHA-256 of each file of the recording by its name."""
    check_limit(file.getinfo(_CHECKSUMS).file_size, META_BYTES, f"bytes in {_CHECKSUMS}")
    sums = json.loads(file.read(_CHECKSUMS))
    expected = set(file.namelist()) - {_CHECKSUMS}
    if not isinstance(sums, dict) or set(sums) != expected:
        raise CurvescopeError(
            f"{_CHECKSUMS} of the archive does not name its files; copy it again."
        )
    return sums


def _unpack(file: zipfile.ZipFile, name: str, expected: str, folder: Path) -> None:
    *below, last = name.split("/")
    with (
        open_folder(folder, *below, make=True) as inside,
        inside.create(last) as target,
        file.open(name) as source,
    ):
        actual = _copy(source, target)
    if actual != expected:
        raise CurvescopeError(f"{name} in the archive is damaged or changed; copy it again.")


def _copy(source: IO[bytes], target: BinaryIO) -> str:
    """Copy what is left of a file; returns its SHA-256."""
    digest = hashlib.sha256()
    while block := source.read(1 << 20):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()
