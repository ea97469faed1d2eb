"""Atomic file writes and exclusive folder creation."""

from __future__ import annotations

import errno
import io
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...base.errors import CurvescopeError
from .inside import Folder, open_folder
from .remote_store import AnyPath, RemotePath

_CLAIM = ".claim"
_LOOKS = 4
_LOOK_S = 0.02


class StorageError(CurvescopeError):
    """A file could not be written, e.g. for lack of room on the disk."""


@contextmanager
def atomic_file(path: AnyPath, root: AnyPath | None = None) -> Iterator[BinaryIO]:
    """Open a temporary neighbour of `path` for writing; on success it is synced and renamed to
    `path`.

    On a remote store it is one put. `root` is the folder of the recording that `path` is in:
    missing folders below it are made, and none may be a link. CurvescopeError: one is, the disk is
    full, or the folder is not writable.
    """
    if isinstance(path, RemotePath):
        buffer = io.BytesIO()
        yield buffer
        try:
            path.write_bytes(buffer.getvalue())
        except OSError as error:
            raise storage_error(path, error) from error
        return
    around = root if isinstance(root, Path) else path.parent
    below = path.parent.relative_to(around).parts
    # A unique name, created with the user's normal permissions: others may read a shared store.
    temporary = f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}"
    try:
        with open_folder(around, *below, make=True) as folder:
            file = folder.create(temporary)
            try:
                with file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                folder.rename(temporary, path.name)
            except BaseException:
                with suppress(OSError):
                    folder.remove(temporary)
                raise
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: AnyPath, error: OSError) -> StorageError:
    """Error message for a failed write to `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"The disk is full: {path} could not be written. Everything recorded before is intact; "
            "free some space or record elsewhere with -o DIR."
        )
    why = error.strerror or error
    return StorageError(f"{path} could not be written ({why}); choose another folder with -o DIR.")


def claim(path: AnyPath, name: str, content: bytes, hint: str = "") -> None:
    """Write the first file of a folder or URL that is new or empty; of several processes, one
    succeeds.

    `hint` is a further remedy, a sentence. CurvescopeError: the folder is not empty, or not
    writable.
    """
    taken = CurvescopeError(
        f"{path} is not empty; nothing is overwritten. Choose another -o DIR.{hint and ' '}{hint}"
    )
    if isinstance(path, RemotePath):
        try:
            empty = not any(path.iterdir())
            if empty:
                (path / name).write_bytes(content, exclusive=True)
        except FileExistsError:
            empty = False
        except OSError as error:
            raise storage_error(path, error) from error
        if not empty:
            raise taken
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        with open_folder(path) as folder:
            _claim_folder(folder, name, content, taken)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise storage_error(path, error) from error


def _claim_folder(folder: Folder, name: str, content: bytes, taken: CurvescopeError) -> None:
    folder.make(_CLAIM)  # creating a folder succeeds in one process only
    try:
        if folder.names() != [_CLAIM]:
            raise taken
        with atomic_file(folder.path / name) as file:
            file.write(content)
    finally:
        with suppress(OSError):
            folder.remove_empty(_CLAIM)


@contextmanager
def lock_folder(path: Path) -> Iterator[bool]:
    """Lock an existing folder against other processes that call this, for the block; yields whether
    it could.

    It could not where the system or its files have no locks. The lock ends with this process,
    however that ends. CurvescopeError: another process has locked it.
    """
    try:
        import fcntl

        folder = os.open(path, os.O_RDONLY)
    except (ImportError, OSError):
        yield False
        return
    try:
        try:
            locked = _take(lambda: fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            raise CurvescopeError(
                f"Another process adds to {path}; wait until it has ended."
            ) from None
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(folder)


def _take(lock: Callable[[], None]) -> bool:
    """Take a lock that another process may hold for a moment, only to look at it; BlockingIOError:
    it keeps it.
    """
    for _ in range(_LOOKS):
        with suppress(BlockingIOError):
            lock()
            return True
        time.sleep(_LOOK_S)
    lock()
    return True


def is_locked(path: Path) -> bool:
    """Whether a process has locked a folder, see `lock_folder`; also true where
    nobody can know.
    """
    try:
        import fcntl

        folder = os.open(path, os.O_RDONLY)
    except (ImportError, OSError):
        return True
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(folder)
    return False
