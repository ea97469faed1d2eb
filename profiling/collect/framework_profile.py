"""Steps that a framework's own profiler records, as in JAX and TensorFlow, which name each
operator's scope.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from ...base.errors import CurvescopeError
from ..attribution.events import StepRows
from ..frameworks.adapter import Adapter
from ..readers import import_profile
from ..recording.store import open_recording
from .recorded_steps import steps_of


def record_step(adapter: Adapter, run: Callable[[], object], began_ns: int) -> StepRows | None:
    """Run one step under the profiler of its framework; None if that shows no work.

    `run` runs the step and waits for it, `began_ns` is when it begins: the profiler has a clock of
    its own.
    """
    with TemporaryDirectory(prefix="curvescope-") as folder:
        adapter.profile(run, folder)
        return next(iter(steps_after(began_ns, Path(folder))), None)


def steps_after(began_ns: int, folder: Path) -> list[StepRows]:
    """The steps with work in a profile in a folder, as if the first began at a time; none without a
    profile.
    """
    profile = next(iter(sorted(folder.rglob("*.xplane.pb"))), None)
    if profile is None:
        return []
    with TemporaryDirectory(prefix="curvescope-") as imported:
        target = Path(imported, "recording")
        try:
            import_profile(profile, target)
        except CurvescopeError:
            return []
        with_kernels = [step for step in steps_of(open_recording(target)) if step.kernels]
    if not with_kernels:
        return []
    shift_ns = began_ns - with_kernels[0].windows[0][0]
    for step in with_kernels:
        step.windows = [
            (start_ns + shift_ns, duration_ns) for start_ns, duration_ns in step.windows
        ]
        for row in step.kernels:
            row["start_ns"] += shift_ns
    return with_kernels
