"""Reads what JAX's own profiler recorded of a program, see `startup/jax_windows.py`."""

from __future__ import annotations

from pathlib import Path

from ...base.errors import CurvescopeError
from ..readers import import_profile
from ..recording.store import Recording, open_recording

FOLDER = "jax"  # for its profile, as in `startup/jax_windows.py`


def read_jax_profile(folder: Path, target: Path) -> Recording | None:
    """The profile in the folder of a visit as a recording at `target`; None if there is none that can be read."""
    profile = next(iter(sorted((folder / FOLDER).rglob("*.xplane.pb"))), None)
    if profile is None:
        return None
    try:
        import_profile(profile, target)
    except CurvescopeError:
        return None
    return open_recording(target)
