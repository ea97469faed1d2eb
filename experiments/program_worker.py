"""Runs of a user's program with one factor changed: by variables of its environment, or in its
process.

Every visit is a run of its own, so nothing is kept between visits, and every visit is a start.
Results of the steps are not compared: only the program knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from ..base.errors import CurvescopeError
from ..profiling.measure.sites.command import IN_TURN, Command
from ..profiling.measure.visits import FAILED, Empty, Visit, VisitPlan
from ..profiling.recording.axis import Axis
from ..profiling.recording.experiments import members
from .factor import Factor, Target
from .factors import factor_of, step_change
from .step_worker import Ready

_numbers = count(1)  # of runs, which stand for their processes


def variables_of(name: str | None) -> dict[str, str]:
    """The variables of the environment that factors set in a program."""
    change = step_change(name)
    return {**change.variables(), **change.environment}


def changes_of(name: str | None) -> tuple[str, ...]:
    """The factors of a name that change the program in its process."""
    parts = () if name is None else members(name)
    return tuple(
        part
        for part in parts
        if (factor := factor_of(part)) is not None and factor.is_made_in_programs
    )


def fits_programs(factor: Factor) -> bool:
    """Whether a factor can be changed in a program."""
    change = factor.step
    return factor.is_made_in_programs or bool(
        change is not None and (change.variables() or change.environment)
    )


class ProgramWorker(Command):
    """The runs of one variant; methods as of `StepWorker`."""

    def __init__(self, target: Target, factor: str | None) -> None:
        configuration = target.configuration
        super().__init__(
            configuration.find_program(),
            Axis(configuration.axis),
            dict(configuration.fixed),
            facts=IN_TURN,
            variables=variables_of(factor),
            changes=changes_of(factor),
        )

    def warm_up(self, while_waiting: Callable[[], object] = lambda: None) -> Ready | Empty:
        """Nothing runs before the first visit."""
        del while_waiting
        return Ready({}, draws=False, peak_bytes=None)

    def visit(
        self, condition: int, how: VisitPlan, while_waiting: Callable[[], object] = lambda: None
    ) -> Visit | Empty:
        """Run the program once; each run stands for a process."""
        try:
            result = super().visit(condition, how, while_waiting)
        except CurvescopeError as error:
            return Empty(FAILED, str(error))
        if isinstance(result, Empty):
            return result
        number = next(_numbers)
        rows = [{**row, "process": number} for row in result.unprofiled]
        return replace(result, unprofiled=rows)

    def available_bytes(self) -> int | None:
        """Unknown: one run has the memory at a time."""
        return None
