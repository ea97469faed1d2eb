"""One rank of the scaling run in a folder; `curvescope scale measure` starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from . import options
from .base.errors import CurvescopeError
from .base.escaping import escape_controls
from .profiling.measure.process_group import ProcessGroup
from .profiling.measure.scaling_plan import PLAN_FILE
from .profiling.measure.scaling_run import run_rank
from .profiling.recording.rank_info import find_launched_rank


def main(folder: str) -> None:
    """Measure, and end this process; a user error becomes one line on standard error."""
    try:
        _measure(Path(folder))
    except CurvescopeError as error:
        print(f"curvescope: {escape_controls(str(error))}", file=sys.stderr)
        sys.exit(2)


def _measure(folder: Path) -> None:
    plan = PLAN_FILE.read(folder)
    rank = find_launched_rank()
    if rank is None:
        raise CurvescopeError("This is one rank of several: `curvescope scale measure` starts it.")
    plan.configuration.find_network()  # report import errors before the ranks connect
    with ProcessGroup(rank, plan.timeout_s) as ranks:
        run_rank(folder, plan, ranks, precise=options.precise_enough(plan.protocol))
