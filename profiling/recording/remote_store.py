"""Places on object stores and other remote file systems, named by URL: what the store needs of a path, through fsspec.

An object appears whole or not at all: what is written goes there in one put, so no temporary name is needed.
Credentials and endpoints come from where the store's own tools take them (AWS_PROFILE, AWS_ENDPOINT_URL, …).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..errors import BackendMissingError, CurvescopeError

# What `pip install` needs beside the extra, which has s3fs, for a URL to be read.
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}


@dataclass(frozen=True, order=True)
class RemotePath:
    """A URL with the parts of `pathlib.Path` that the store uses. Each method raises OSError where Path's does.

    Attributes:
        url: with its protocol, as in `s3://bucket/job/rank3`, without a slash at the end.
    """

    url: str

    @property
    def filesystem(self) -> Any:
        """The fsspec file system; one instance per process and protocol.

        Raises:
            BackendMissingError: fsspec, or the package that speaks this protocol, is not installed.
            CurvescopeError: nobody knows the protocol.
        """
        return self._target[0]

    @property
    def key(self) -> str:
        """The place without its protocol, as the file system names it."""
        return str(self._target[1])

    @property
    def _target(self) -> tuple[Any, str]:
        protocol = self.url.split("://", 1)[0]
        wanted = f"pip install 'curvescope[cluster]' {_PACKAGES.get(protocol, '')}".strip()
        try:
            import fsspec

            # Another writer's objects must be seen: listings are never cached.
            return fsspec.core.url_to_fs(self.url, use_listings_cache=False)  # type: ignore[no-any-return]
        except ImportError as error:
            raise BackendMissingError(f"{self.url} needs a package that is not here ({error}): {wanted}") from error
        except ValueError as error:
            raise CurvescopeError(f"{self.url}: {error}. It takes a folder, or a URL as in s3://bucket/job.") from error

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, part: str) -> RemotePath:
        return RemotePath(f"{self.url}/{part}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rsplit("/", 1)[1]

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return self.name.rsplit(".", 1)[0]

    @property
    def parent(self) -> RemotePath:
        """Without the last part."""
        return RemotePath(self.url.rsplit("/", 1)[0])

    def exists(self) -> bool:
        """Whether an object, or anything under it, is there."""
        with _said_as_os_error():
            return bool(self.filesystem.exists(self.key))

    def is_file(self) -> bool:
        """Whether it is an object."""
        with _said_as_os_error():
            return bool(self.filesystem.isfile(self.key))

    def iterdir(self) -> Iterator[RemotePath]:
        """What is directly under it, in order; nothing where it is not there: object stores tell no difference."""
        filesystem, key = self._target
        try:
            with _said_as_os_error():
                found = filesystem.ls(key, detail=False)
        except FileNotFoundError:
            found = []
        return (self / name.rstrip("/").rsplit("/", 1)[1] for name in sorted(found) if name.rstrip("/") != key)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """What is there under it by a pattern of names, in order, one listing per folder that the pattern enters."""
        head, _, rest = pattern.partition("/")
        for entry in self.iterdir():
            if fnmatchcase(entry.name, head):
                yield from entry.glob(rest) if rest else (entry,)

    def read_bytes(self) -> bytes:
        """The whole object."""
        with _said_as_os_error():
            return bytes(self.filesystem.cat_file(self.key))

    def write_bytes(self, content: bytes, *, exclusive: bool = False) -> None:
        """Put the object.

        Args:
            content: all of it.
            exclusive: raise FileExistsError where one is there already, by the store's own word.
        """
        filesystem, key = self._target
        with _said_as_os_error():
            if not filesystem.async_impl:
                # Object stores, all asynchronous in fsspec, have no folders; HDFS, SFTP and their like do.
                filesystem.makedirs(key.rsplit("/", 1)[0], exist_ok=True)
            if exclusive:
                filesystem.pipe_file(key, content, mode="create")
            else:
                filesystem.pipe_file(key, content)

    def unlink(self) -> None:
        """Delete the object."""
        with _said_as_os_error():
            self.filesystem.rm_file(self.key)

    def remove_tree(self) -> None:
        """Delete all that is under it."""
        with _said_as_os_error():
            self.filesystem.rm(self.key, recursive=True)

    def fetch(self, folder: Path) -> Path:
        """A copy of the object in a local folder."""
        with _said_as_os_error():
            self.filesystem.get_file(self.key, str(folder / self.name))
        return folder / self.name


AnyPath = Path | RemotePath


def as_path(text: str | os.PathLike[str]) -> AnyPath:
    """A folder's path, or the place of a URL."""
    named = os.fspath(text)
    if "://" not in named:
        return Path(named)
    if named.startswith("file://"):
        return Path(named.removeprefix("file://"))
    return RemotePath(named.rstrip("/"))


def remove_tree(path: AnyPath) -> None:
    """Delete a folder or all under a URL, as far as it is there and can be deleted."""
    if isinstance(path, Path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.remove_tree()
    except OSError:
        return


@contextmanager
def _said_as_os_error() -> Iterator[None]:
    try:
        yield
    except (OSError, CurvescopeError):
        raise
    except Exception as error:
        # Each store's package has exceptions of its own (no credentials, no endpoint, …), and may not be installed.
        raise OSError(f"{type(error).__name__}: {error}") from error
