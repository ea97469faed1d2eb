"""Runs at the start of every Python of a command under `curvescope record`, or with the variables
of `explain --as-env`: this folder is on PYTHONPATH.

It waits for the program to import torch. To record, it then loads `torch_windows.py`, on a GPU also
`torch_ranges.py`, and `../cupti_turns.py`, and for other frameworks `step_notes.py`; to apply, it
makes torch flush denormal numbers. To measure a program, it loads `program_steps.py`, which follows
torch and other packages. The program notices nothing: this folder is removed from `sys.path`, and
the program's own `sitecustomize` runs as usual. Only the standard library is used, because the
program may run in any Python.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from contextlib import suppress
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PROFILING = os.path.dirname(os.path.dirname(_HERE))
_FOLDER_VARIABLE = "CURVESCOPE_CHUNK_FOLDER"
_FLUSH_VARIABLE = "CURVESCOPE_FLUSH_DENORMAL"
_PROGRAM_VARIABLE = "CURVESCOPE_PROGRAM"
# Modules that are followed, and for each the function of `framework_marks.py`.
_FOLLOWED = {
    "torch": "follow_torch",
    "jax": "follow_jax",
    "keras.src.callbacks.callback_list": "follow_keras",
    "keras.src.optimizers.base_optimizer": "follow_keras_optimizers",
    "keras.src.models.model": "follow_keras_models",
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": "follow_tensorflow",
    "onnxruntime.capi.onnxruntime_inference_collection": "follow_onnxruntime",
    "mlx.core": "follow_mlx",
    "nvtx": "follow_nvtx",
}
# Those whose steps are noted in a recording, which has torch's and the ranges of NVTX itself.
_NOTED = [name for name in _FOLLOWED if name not in ("torch", "nvtx")]


def _load(name: Any, path: Any) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Finder:
    """Finds some modules with the other finders, and calls a function with each once it
    is loaded.
    """

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded  # function of a module, by name

    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if name not in self._loaded:
            return None
        loaded = self._loaded.pop(name)
        if not self._loaded:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            with suppress(
                AttributeError
            ):  # the loader takes no attributes: the module is not followed
                self._follow_load(spec.loader, loaded)
        return spec

    def _follow_load(self, loader: Any, loaded: Any) -> None:
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            load(module)
            loaded(module)

        loader.exec_module = exec_module


def _torch_loaded(module: Any) -> None:
    if os.environ.get(_FLUSH_VARIABLE):
        module.set_flush_denormal(True)
    if not os.environ.get(_FOLDER_VARIABLE):
        return
    with suppress(Exception):  # the program continues
        if module.version.cuda is not None:
            turns = _load(
                "_curvescope_cupti_turns", os.path.join(os.path.dirname(_HERE), "cupti_turns.py")
            )
            turns.take_turns(module.autograd.profiler)
    with suppress(Exception):  # torch_windows reports its own errors
        windows = _load("_curvescope_torch_windows", os.path.join(_HERE, "torch_windows.py"))
        kind = None
        if windows.runs_on_gpu(module):
            kind = _load(
                "_curvescope_torch_ranges", os.path.join(_HERE, "torch_ranges.py")
            ).GpuRecorder
        windows.start(module, os.environ[_FOLDER_VARIABLE], kind)


def _sign() -> None:
    """Show that this Python is followed."""
    folder = json.loads(os.environ[_PROGRAM_VARIABLE])["folder"]
    with open(os.path.join(folder, f"{os.getpid()}.python"), "w"):
        pass


def _load_ours(name: Any, path: Any) -> Any:
    return _load(name, os.path.join(_PROFILING, *path.split("/")))


def _program_steps() -> Any:
    return _load("_curvescope_program_steps", os.path.join(_HERE, "program_steps.py"))


def _follow_program() -> Any:
    """The function that follows each package of `_FOLLOWED`."""
    steps = _program_steps().Steps(json.loads(os.environ[_PROGRAM_VARIABLE]), _load_ours)
    steps.follow_processes()
    return {name: _make_follower(lambda: steps, method) for name, method in _FOLLOWED.items()}


def _make_follower(steps: Any, method: Any) -> Any:
    """A function that follows a loaded package for the marks that `steps` gives."""

    def follow(module: Any) -> None:
        if method == "follow_torch":
            _torch_loaded(module)
        with suppress(Exception):  # what cannot be followed marks no steps
            marks = _load_ours("_curvescope_framework_marks", "collect/startup/framework_marks.py")
            getattr(marks, method)(steps(), _program_steps(), module)

    return follow


def _follow_recorded() -> Any:
    """The function that follows each package of a recorded program."""
    made: list[Any] = []

    def notes() -> Any:
        if not made:
            _program_steps()
            kind = _load("_curvescope_step_notes", os.path.join(_HERE, "step_notes.py")).Notes
            made.append(kind(os.environ[_FOLDER_VARIABLE]))
        return made[0]

    return {name: _make_follower(notes, _FOLLOWED[name]) for name in _NOTED}


def _run_shadowed_sitecustomize() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if os.environ.get(_PROGRAM_VARIABLE):
    with suppress(Exception):  # the program runs, and says that its steps were not found
        _sign()
        sys.meta_path.insert(0, _Finder(_follow_program()))
elif os.environ.get(_FOLDER_VARIABLE):
    sys.meta_path.insert(0, _Finder({"torch": _torch_loaded, **_follow_recorded()}))
elif os.environ.get(_FLUSH_VARIABLE):
    sys.meta_path.insert(0, _Finder({"torch": _torch_loaded}))
_run_shadowed_sitecustomize()
