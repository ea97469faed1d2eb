"""torch.profiler's `on_trace_ready`: makes a recording of every trace."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ..readers import Options, import_profile
from ..recording.atomic_files import storage_error
from ..recording.store import new_recording_path


def trace_handler(
    folder: str | os.PathLike[str], batch: int | None = None
) -> Callable[[Any], None]:
    """Create a function for `torch.profiler.profile(on_trace_ready=...)` that makes a recording of
    each trace.

    Recordings are named by time under the folder, which is made if it is missing; none is
    overwritten. A trace that cannot be recorded causes a warning, and the program continues.
    `record_shapes=True` and `with_modules=True` add information; without the number of samples per
    step, `batch`, it is derived from shapes.
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
                import_profile(
                    trace, new_recording_path("torch", root), Options(batch), {"recorder": "torch"}
                )
        except (CurvescopeError, OSError, RuntimeError) as error:
            warnings.warn(
                f"curvescope: this trace was not recorded: {error}", RuntimeWarning, stacklevel=2
            )

    return handle
