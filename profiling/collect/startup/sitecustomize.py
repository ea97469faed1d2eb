"""What `curvescope record` lets every Python of the command run at its start, found by PYTHONPATH.

It waits for the program to import torch and then loads `torch_windows.py` beside it. The program sees nothing of it:
this folder leaves `sys.path` again, and the `sitecustomize` that the program would have had without it runs as always.
The program's Python may be any, so nothing here needs more than the standard library.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from contextlib import suppress
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER_VARIABLE = "CURVESCOPE_CHUNK_FOLDER"


def _load(name: Any, path: Any) -> Any:
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _WhenTorchIsImported:
    """Finds nothing itself: lets the others find torch, and watches it once it is loaded."""

    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            with suppress(AttributeError):  # a loader that takes no attributes: torch is not watched
                self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            load(module)
            with suppress(Exception):  # whatever it is, the program runs on; torch_windows says itself what it met
                _load("_curvescope_torch_windows", os.path.join(_HERE, "torch_windows.py")).start(
                    module, os.environ[_FOLDER_VARIABLE]
                )

        loader.exec_module = exec_module


def _run_shadowed_sitecustomize() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if os.environ.get(_FOLDER_VARIABLE):
    sys.meta_path.insert(0, _WhenTorchIsImported())
_run_shadowed_sitecustomize()
