"""Paths on object stores and other remote file systems, named by URL and accessed through fsspec.

One put writes an object, atomically. Credentials come from the store's own tools (AWS_PROFILE, …).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...base.errors import BackendMissingError, CurvescopeError
from ...base.limits import check_limit, read_small, times

# Package to install for a URL's protocol, in addition to the extra, which contains s3fs.
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}


@dataclass(frozen=True, order=True)
class RemotePath:
    """A URL with the methods of `pathlib.Path` that the store uses.

    Each method raises OSError where Path's does.
    """

    url: str  # URL with its protocol and without a slash at the end, e.g. `s3://bucket/job/rank3`

    @property
    def filesystem(self) -> Any:
        """The fsspec file system; one per process and protocol.

        BackendMissingError: its package is missing.
        """
        return self._target[0]

    @property
    def key(self) -> str:
        """The path without its protocol, as used by the file system."""
        return str(self._target[1])

    @property
    def _target(self) -> tuple[Any, str]:
        protocol = self.url.split("://", 1)[0]
        wanted = f"pip install 'curvescope[cluster]' {_PACKAGES.get(protocol, '')}".strip()
        try:
            import fsspec

            # Objects of other writers must be visible, so listings are never cached.
            return fsspec.core.url_to_fs(self.url, use_listings_cache=False)  # type: ignore[no-any-return]
        except ImportError as error:
            raise BackendMissingError(
                f"{self.url} needs a missing package ({error}): {wanted}"
            ) from error
        except ValueError as error:
            raise CurvescopeError(
                f"{self.url}: {error}. Write a folder, or a URL, e.g. s3://bucket/job."
            ) from error

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, part: str) -> RemotePath:
        return RemotePath(f"{self.url}/{part}")

    @property
    def name(self) -> str:
        """The last component."""
        return self.url.rsplit("/", 1)[1]

    @property
    def stem(self) -> str:
        """The last component without its suffix."""
        return self.name.rsplit(".", 1)[0]

    @property
    def parent(self) -> RemotePath:
        """The URL without its last component."""
        return RemotePath(self.url.rsplit("/", 1)[0])

    def exists(self) -> bool:
        """Whether the object, or anything under it, exists."""
        with _convert_to_os_error():
            return bool(self.filesystem.exists(self.key))

    def is_file(self) -> bool:
        """Whether the URL is an object."""
        with _convert_to_os_error():
            return bool(self.filesystem.isfile(self.key))

    def iterdir(self) -> Iterator[RemotePath]:
        """The entries directly under the URL, sorted; empty if it does not exist."""
        filesystem, key = self._target
        try:
            with _convert_to_os_error():
                keys = filesystem.ls(key, detail=False)
        except FileNotFoundError:
            keys = []
        return (
            self / name.rstrip("/").rsplit("/", 1)[1]
            for name in sorted(keys)
            if name.rstrip("/") != key
        )

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """The existing entries that match a pattern of names, sorted; needs one listing
        per folder.
        """
        head, _, rest = pattern.partition("/")
        for entry in self.iterdir():
            if fnmatchcase(entry.name, head):
                yield from entry.glob(rest) if rest else (entry,)

    def read_bytes(self, most: int | None = None) -> bytes:
        """Read the whole object, or its first bytes."""
        with _convert_to_os_error():
            return bytes(self.filesystem.cat_file(self.key, start=most and 0, end=most))

    def write_bytes(self, content: bytes, *, exclusive: bool = False) -> None:
        """Write the object; if `exclusive`, FileExistsError where it exists: the store itself
        checks.
        """
        filesystem, key = self._target
        with _convert_to_os_error():
            if not filesystem.async_impl:
                # Object stores (all asynchronous in fsspec) have no folders; HDFS, SFTP and similar
                # systems do.
                filesystem.makedirs(key.rsplit("/", 1)[0], exist_ok=True)
            filesystem.pipe_file(key, content, **({"mode": "create"} if exclusive else {}))

    def unlink(self) -> None:
        """Delete the object."""
        with _convert_to_os_error():
            self.filesystem.rm_file(self.key)

    def remove_tree(self) -> None:
        """Delete everything under the URL."""
        with _convert_to_os_error():
            self.filesystem.rm(self.key, recursive=True)

    def fetch(self, folder: Path) -> Path:
        """Copy the object to a local folder."""
        with _convert_to_os_error():
            self.filesystem.get_file(self.key, str(folder / self.name))
        return folder / self.name


AnyPath = Path | RemotePath


def as_path(text: str | os.PathLike[str]) -> AnyPath:
    """A local path, or a remote path for a URL."""
    named = os.fspath(text).removeprefix("file://")
    return RemotePath(named.rstrip("/")) if "://" in named else Path(named)


def read_entries(path: AnyPath, limit: int, what: str) -> bytes:
    """The content of a file or object that is small; CurvescopeError if it is larger than the limit
    or no regular file, else OSError.
    """
    if isinstance(path, Path):
        return read_small(path, limit, what)
    data = path.read_bytes(most=times(limit) + 1)
    check_limit(len(data), limit, what)
    return data


@contextmanager
def _convert_to_os_error() -> Iterator[None]:
    try:
        yield
    except (OSError, CurvescopeError):
        raise
    except Exception as error:
        # Stores raise exceptions of their own packages (no credentials, no endpoint, …), which may
        # not be installed.
        raise OSError(f"{type(error).__name__}: {error}") from error
