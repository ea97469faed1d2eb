"""Folders that the workers of a session share, as what fills them takes seconds."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object] = lambda _: None
) -> Path:
    """The folder of that name, which the first that asks for it fills.

    Args:
        tmp_path_factory: pytest's fixture.
        name: name of the folder, one in all tests.
        make: function that fills the empty folder; if it fails, the next that asks begins again.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, made = shared / name, shared / f"{name}.made"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
