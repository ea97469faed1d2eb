"""Folders that the workers of a session share, as what fills them takes seconds; scripts and data
of the checkout.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PROFILES = ROOT / "tests" / "data" / "profiles"
EXAMPLE = ROOT / "examples" / "recordings" / "alexnet-cpu"
RECORDINGS = sorted(
    path.parent
    for folder in ("examples", "tests/data")
    for path in (ROOT / folder).rglob("recording.json")
)
# Whether the GPU that the tests see is that of tests/virtual_card, whose kernels compute nothing.
ON_VIRTUAL_CARD = "VIRTUAL_CARD" in os.environ
CUPY = pytest.param(
    "cupy",
    marks=pytest.mark.not_virtual(
        "CuPy's wheel has a CUDA runtime inside, which asks the driver for tables that no header "
        "describes"
    ),
)


def load_script(path: str) -> ModuleType:
    """A script of the checkout as a module, e.g. `docs/draw_rooms.py`."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"script_{file.stem}", file)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared_folder(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    make: Callable[[Path], object] = lambda _: None,
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
