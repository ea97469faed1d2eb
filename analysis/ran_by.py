"""Which framework ran the steps of a recording.

Curvescope loads PyTorch to record steps, so that it is loaded does not mean that it ran them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from ..profiling.recording.store import Recording
from .decompose.marked import is_recorded_by_framework

UNKNOWN = "unknown"


def framework_of(recording: Recording) -> str:
    """The frameworks with their versions, e.g. `jax 0.10.2`; `unknown` where the recording does not
    tell.
    """
    meta = recording.meta
    if modelled := [str(meta[key]) for key in ("framework", "library") if meta.get(key)]:
        return ", ".join(modelled)
    others = []
    for item in (meta.get("frameworks") or {}).items():
        others.append(" ".join(filter(None, item)))
    torch = (meta.get("versions") or {}).get("torch")
    if others and str(meta.get("runs_in")).startswith("keras"):
        return f"keras on {' and '.join(others)}"
    if others:
        if torch and _ran_operators(recording):
            others.append(f"torch {torch}")
        return " and ".join(others)
    is_silent = _shows_nothing(recording) or _is_without_torch(recording)
    if is_silent or (not torch and "imported_from" in meta):
        return UNKNOWN
    return f"torch {torch or '?'}"


def framework_beside_torch(recording: Recording) -> str | None:
    """The framework that ran the steps if PyTorch ran nothing in them, or `unknown`, also of a
    program that loaded no PyTorch; None if PyTorch ran.
    """
    others = " and ".join(recording.meta.get("frameworks") or ())
    if others and not _ran_operators(recording):
        return others
    if _shows_nothing(recording) or _is_without_torch(recording):
        return UNKNOWN
    return None


def step_threads(recording: Recording) -> int | None:
    """Threads on a CPU that the framework of the steps computes with; None if it does not tell."""
    return threads_of(recording.meta, torch=framework_beside_torch(recording) is None)


def threads_of(meta: Mapping[str, Any], torch: bool) -> int | None:
    """Threads of a CPU as PyTorch had them, or else as the other frameworks tell."""
    if torch:
        threads = (meta.get("device") or {}).get("threads")
        return None if threads is None else int(threads)
    counts = (meta.get("framework_threads") or {}).values()
    return max((count for count in counts if count is not None), default=None)


def _ran_operators(recording: Recording) -> bool:
    """Whether PyTorch ran something, or kernels are recorded of whoever launched them."""
    if is_recorded_by_framework(recording):
        return False
    return bool(recording.count_rows("kernels") or recording.count_rows("operators"))


def _is_without_torch(recording: Recording) -> bool:
    """Whether the recording is of a program in whose process no PyTorch was loaded."""
    versions = recording.meta.get("versions") or {}
    return recording.meta.get("program") is not None and not versions.get("torch")


def _shows_nothing(recording: Recording) -> bool:
    """Whether steps of a user were profiled, and PyTorch did nothing in them."""
    if recording.meta.get("mode") != "own" or _ran_operators(recording):
        return False
    return bool(pc.any(recording.arrow("steps", ["profiled"])["profiled"]).as_py())
