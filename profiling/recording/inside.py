"""The door for writing and deleting inside a recording: no link in it is followed.

A recording may come from somebody else, and a folder or file in it may be a link to anything of
yours. So whatever writes or deletes there names the recording's folder and, one by one, the folders
below it. Each is opened by the descriptor of the folder around it, and a link is refused. Where a
system has no such calls (Windows), each is looked at before it is used. The recording's own folder
is what the user named, and may be a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...base.errors import CurvescopeError
from .remote_store import AnyPath, RemotePath

_BY_DESCRIPTOR = (
    {os.open, os.unlink, os.mkdir, os.rmdir, os.rename, os.stat} <= os.supports_dir_fd
    and hasattr(os, "O_NOFOLLOW")
    and hasattr(os, "O_DIRECTORY")
)
# Flags of systems that lack some of these calls are 0 there.
_CLOSED = getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_UNLINKED = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_UNHELD = getattr(os, "O_NONBLOCK", 0)  # opening a pipe does not wait
_PERMISSIONS = 0o666  # less the user's umask: others may read a shared store
# Windows' tags of symbolic links and of junctions, which are links to folders
_LINK_TAGS = (0xA000000C, 0xA0000003)


@dataclass(frozen=True)
class Folder:
    """A folder of a recording that is open for changes; a name is an entry in it.

    Methods raise OSError as the calls of `os` do.
    """

    path: Path
    descriptor: int | None  # None where the system has no calls by descriptor

    def names(self) -> list[str]:
        """The names of its entries, sorted."""
        return sorted(os.listdir(self.path if self.descriptor is None else self.descriptor))

    def create(self, name: str) -> BinaryIO:
        """Open a new file for writing; FileExistsError if the name is taken, also by a link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED | _BINARY
        return os.fdopen(self._open(name, flags), "wb")

    def write(self, name: str, content: bytes) -> None:
        """Write a file anew; what had the name is removed, and nothing that it links to."""
        self.remove(name, missing_ok=True)
        with self.create(name) as file:
            file.write(content)

    def append(self, name: str) -> BinaryIO:
        """Open a file for writing at its end, made if it is missing.

        CurvescopeError: it is a link, a pipe or a device.
        """
        with suppress(FileNotFoundError):
            about = self._look_at(name)
            if not stat.S_ISREG(about.st_mode):
                raise CurvescopeError(f"{self.path / name} is no regular file; remove it.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        flags |= _UNLINKED | _UNHELD | _CLOSED | _BINARY
        return os.fdopen(self._open(name, flags), "ab", buffering=0)

    def rename(self, name: str, new: str) -> None:
        """Give an entry another name; a file that had it is replaced."""
        where = self.descriptor
        os.replace(self._at(name), self._at(new), src_dir_fd=where, dst_dir_fd=where)

    def remove(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a file, or a link itself."""
        with suppress(*((FileNotFoundError,) if missing_ok else ())):
            os.unlink(self._at(name), dir_fd=self.descriptor)

    def make(self, name: str) -> None:
        """Make a folder."""
        os.mkdir(self._at(name), dir_fd=self.descriptor)

    def remove_empty(self, name: str) -> None:
        """Delete an empty folder."""
        os.rmdir(self._at(name), dir_fd=self.descriptor)

    def remove_tree(self, name: str) -> None:
        """Delete a folder with all that is in it."""
        with self.enter(name) as folder:
            folder.clear()
        self.remove_empty(name)

    def clear(self) -> None:
        """Delete all that is in it; of a link, the link."""
        for name in self.names():
            if stat.S_ISDIR(self._look_at(name).st_mode):
                self.remove_tree(name)
            else:
                self.remove(name)

    @contextmanager
    def enter(self, name: str) -> Iterator[Folder]:
        """Open a folder in it; CurvescopeError if it is a link."""
        path = self.path / name
        if _is_link(self._look_at(name)):
            raise _refusal(path)
        if self.descriptor is None:
            yield Folder(path, None)
            return
        descriptor = self._open(name, os.O_RDONLY | _FOLDER | _UNLINKED | _CLOSED)
        try:
            yield Folder(path, descriptor)
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        return os.open(self._at(name), flags, _PERMISSIONS, dir_fd=self.descriptor)

    def _look_at(self, name: str) -> os.stat_result:
        return os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)

    def _at(self, name: str) -> str | Path:
        _check_name(self.path, name)
        return self.path / name if self.descriptor is None else name


@contextmanager
def open_folder(root: Path, *names: str, make: bool = False) -> Iterator[Folder]:
    """Open the folder of a recording for changes, or one below it by the names of all folders on
    the way; `make` makes those that are missing.

    CurvescopeError: one of them is a link. OSError: one is missing, or cannot be opened.
    """
    with ExitStack() as stack:
        descriptor = None
        if _BY_DESCRIPTOR:
            descriptor = os.open(root, os.O_RDONLY | _FOLDER | _CLOSED)
            stack.callback(os.close, descriptor)
        folder = Folder(root, descriptor)
        for name in names:
            if make:
                with suppress(FileExistsError):
                    folder.make(name)
            folder = stack.enter_context(folder.enter(name))
        yield folder


def remove_recording(path: AnyPath) -> None:
    """Delete a recording that this process made, as far as it can be deleted."""
    with suppress(OSError):
        if isinstance(path, RemotePath):
            path.remove_tree()
            return
        with open_folder(path) as folder:
            folder.clear()
        path.rmdir()


@contextmanager
def remove_on_failure(path: AnyPath) -> Iterator[None]:
    """Delete a recording that this process made if the block fails, also for lack of memory."""
    try:
        yield
    except Exception:
        remove_recording(path)
        raise


def check_unlinked(root: Path, *names: str) -> None:
    """Refuse a folder, below a root that the user named, of which a part is a link; missing ones
    pass.

    CurvescopeError: one is a link, or a name leads out of its folder.
    """
    path = root
    for name in names:
        _check_name(path, name)
        path = path / name
        try:
            about = path.lstat()
        except OSError:  # whoever uses it reports the error
            return
        if _is_link(about):
            raise _refusal(path)


def is_own_file(path: Path) -> bool:
    """Whether a path is a regular file, and no link to one: a link in a recording may name any file
    of yours.
    """
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def check_ours_to_complete(recording: AnyPath, folders: Iterable[str]) -> None:
    """Refuse to complete or extend a recording that may be made to harm: one of its folders is a
    link, or it is another user's that this user may only read.

    Whoever extends a recording deletes nothing in it. Only the completion of one that was cut, and
    `--resume`, delete parts that are not whole.
    """
    if isinstance(recording, RemotePath):  # a store has no links
        return
    for name in folders:
        check_unlinked(recording, name)
    if not os.access(recording, os.W_OK):
        raise CurvescopeError(
            f"{recording} is not yours to write in: copy it, and name the copy (`cp -R`)."
        )


def _check_name(path: Path, name: str) -> None:
    separators = {os.sep, os.altsep or os.sep}
    if name in ("", os.curdir, os.pardir) or any(sign in name for sign in separators):
        raise CurvescopeError(f"{name!r} is no name of an entry in {path}: it leads elsewhere.")


def _is_link(about: os.stat_result) -> bool:
    return stat.S_ISLNK(about.st_mode) or getattr(about, "st_reparse_tag", 0) in _LINK_TAGS


def _refusal(path: Path) -> CurvescopeError:
    return CurvescopeError(
        f"{path} is a link, and nothing is written or deleted through a link in a recording. "
        "Put the folder that it names in its place, if that is yours."
    )
