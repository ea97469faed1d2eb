"""Files that are there whole or not at all, and folders that one of several processes gets."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import CurvescopeError
from .remote_store import AnyPath, RemotePath


@contextmanager
def atomic_file(path: AnyPath) -> Iterator[BinaryIO]:
    """Open a temporary neighbour of `path` for writing; on success it is synced and takes the name.

    A remote store gets it in one put.

    Raises:
        CurvescopeError: the disk is full, or the folder cannot be written.
    """
    if isinstance(path, RemotePath):
        buffer = io.BytesIO()
        yield buffer
        try:
            path.write_bytes(buffer.getvalue())
        except OSError as error:
            raise storage_error(path, error) from error
        return
    # A name that nobody else takes, made with the user's own permissions: others may read a shared store.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}")
    made = False
    try:
        with temporary.open("xb") as file:
            made = True
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if made:
            with suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError):
            raise storage_error(path, error) from error
        raise


def storage_error(path: AnyPath, error: OSError) -> CurvescopeError:
    """The user's words for a failed write to `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CurvescopeError(
            f"The disk is full: {path} could not be written. Everything recorded before is intact; "
            "free some space or record elsewhere with -o DIR."
        )
    why = error.strerror or error
    return CurvescopeError(f"{path} could not be written ({why}); choose another place with -o DIR.")


@contextmanager
def claimed_folder(path: Path, hint: str = "") -> Iterator[None]:
    """Make a folder, or take an empty one, for one of several processes that may try at once; the block fills it.

    Args:
        path: the folder.
        hint: what else the user may do where it is taken, as a sentence.

    Raises:
        CurvescopeError: something is there already, or it cannot be made.
    """
    taken = occupied(path, hint)
    claim = path / ".claim"  # making a folder succeeds for one only
    try:
        path.mkdir(parents=True, exist_ok=True)
        claim.mkdir()
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        if any(entry != claim for entry in path.iterdir()):
            raise taken
        yield
    finally:
        with suppress(OSError):
            claim.rmdir()


def claim_remote(path: RemotePath, name: str, content: bytes, hint: str = "") -> None:
    """Put the first object of an empty place: of several writers that find it empty, the store lets one.

    Args:
        path: the place.
        name: of the object.
        content: of it.
        hint: what else the user may do where it is taken, as a sentence.

    Raises:
        CurvescopeError: something is there already, or it cannot be written.
    """
    try:
        taken = any(path.iterdir())
        if not taken:
            (path / name).write_bytes(content, exclusive=True)
    except FileExistsError:
        taken = True
    except OSError as error:
        raise storage_error(path, error) from error
    if taken:
        raise occupied(path, hint)


def occupied(path: AnyPath, hint: str = "") -> CurvescopeError:
    """The user's words for a folder that is to be new and is not."""
    return CurvescopeError(
        f"{path} already holds something; nothing is overwritten. Choose another -o DIR.{hint and ' '}{hint}"
    )
