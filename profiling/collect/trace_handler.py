"""torch.profiler's `on_trace_ready`: every trace becomes a recording of its own."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CurvescopeError
from ..readers import Options, import_profile
from ..recording.atomic_files import storage_error
from ..recording.store import new_recording_path


def trace_handler(folder: str | os.PathLike[str], batch: int | None = None) -> Callable[[Any], None]:
    """A function for `torch.profiler.profile(on_trace_ready=...)` that makes a recording of each trace.

    Recordings are named by time under the folder; none is overwritten. The profiled program goes on whatever happens to
    a trace: what could not be recorded is a warning. `record_shapes=True` and `with_modules=True` tell more.

    Args:
        folder: where the recordings go; made if it is not there.
        batch: samples per step; read from shapes if not given.

    Raises:
        CurvescopeError: the folder cannot be made.
    """
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(root, error) from error

    def handle(profiler: Any) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="curvescope-") as scratch:
                trace = Path(scratch) / "trace.json"
                profiler.export_chrome_trace(str(trace))
                import_profile(trace, new_recording_path("torch", root), Options(batch), {"recorder": "torch"})
        except (CurvescopeError, OSError, RuntimeError) as error:
            warnings.warn(f"curvescope: this trace was not recorded: {error}", RuntimeWarning, stacklevel=2)

    return handle
