"""Curvescope measures training steps over batch sizes and explains each bend of the cost curve.

The public API; every name is imported on first use, so that `import curvescope` stays fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# name -> module that defines it
_PUBLIC = {
    "diagnose": "curvescope.diagnosing",
    "annotate": "curvescope.profiling.workload.annotate",
    "record": "curvescope.profiling.collect.inject",
    "open_recording": "curvescope.recording",
    "explain": "curvescope.analysis.diagnosis.explain",
    "confirm": "curvescope.experiments.confirming",
    "trace_handler": "curvescope.profiling.collect.trace_handler",
    "TrainerCallback": "curvescope.profiling.workload.trainer_callback",
    "CurvescopeError": "curvescope.base.errors",
    "BackendMissingError": "curvescope.base.errors",
}

# What returns a diagnosis, and the module that draws one in a notebook.
_DIAGNOSES = ("diagnose", "explain", "confirm")
_DRAWING = "curvescope.analysis.render.notebook"

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'curvescope' has no attribute {name!r}")
    if name in _DIAGNOSES:
        importlib.import_module(_DRAWING)
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic `%%curvescope` to a notebook, for `%load_ext curvescope`."""
    importlib.import_module("curvescope.magic").register(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
