"""Curvescope's measurements that run on this machine, so that two at once can name each other.

Each has a file in a folder of the user's, named by its process id and locked as long as it runs:
the entry of a killed one is nobody's. Where the folder cannot be used, nothing is registered;
nothing here waits, and no error gets out.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST = 200  # characters of a name


@contextmanager
def register(what: str) -> Iterator[None]:
    """Register a measurement of this process for the block, by a name, e.g. its network's; an outer
    one stays.
    """
    folder = _folder()
    path = None if folder is None else folder / str(os.getpid())
    held = None
    if path is not None:
        with suppress(OSError, ImportError):  # an outer one holds it
            held = _lock_file(path, what)
    try:
        yield
    finally:
        if held is not None and path is not None:
            with suppress(OSError):
                path.unlink()
            os.close(held)


def others(own: set[int]) -> dict[int, str]:
    """Names of the measurements of other processes than these, by process id."""
    by_pid: dict[int, str] = {}
    folder = _folder()
    if folder is None:
        return by_pid
    with suppress(OSError, ImportError):
        for path in sorted(folder.iterdir()):
            if path.name.isdigit() and int(path.name) not in own:
                with suppress(OSError):  # it ends meanwhile
                    if (what := _find_running(path)) is not None:
                        by_pid[int(path.name)] = what
    return by_pid


def _folder() -> Path | None:
    """The user's folder, made if it is missing; None if there is none that is the user's alone."""
    if not hasattr(os, "getuid"):
        return None
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR")
    with suppress(OSError):
        if runtime_dir and Path(runtime_dir).is_dir():
            folder = Path(runtime_dir, "curvescope")
        else:
            folder = Path(tempfile.gettempdir(), f"curvescope-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
            return folder
    return None


def _lock_file(path: Path, what: str) -> int:
    import fcntl

    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(file, 0)
        os.write(file, " ".join(what.split())[:_LONGEST].encode(errors="replace"))
    except OSError:
        os.close(file)
        raise
    return file


def _find_running(path: Path) -> str | None:
    """The name of a measurement that runs; None if it has ended, whose file is removed."""
    import fcntl

    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.read(file, 4 * _LONGEST).decode(errors="replace")
        path.unlink()
        return None
    finally:
        os.close(file)
