"""Results of microbenchmarks while they are measured: a table on a terminal, else lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from ...analysis.render.live import LiveView
from ...analysis.render.tables import TextTable, table
from .result_columns import columns

if TYPE_CHECKING:
    from ...kernels.runner import Result

_SHOWN = 12  # results of problems that reported last


class LiveResults(LiveView):
    """Shows the results so far and the time left, between visits."""

    def __init__(
        self,
        problems: int,
        time_limit_s: float,
        shown: Console | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Define the view of so many problems in all sweeps, each with a time limit; `shown` None:
        standard error.
        """
        super().__init__(shown)
        self._limit_s, self._clock_s, self._began_s = problems * time_limit_s, clock_s, clock_s()
        self._results: dict[str, Result] = {}

    def begin(self) -> None:
        """Begin a sweep; the results of the one before it are no longer shown."""
        self._results = {}

    def report(self, result: Result) -> None:
        """Show the result of a problem after a visit; the function that `run_sweep` reports to."""
        self._results.pop(result.problem, None)
        self._results[result.problem] = result  # the last one at the end
        now_s = self._clock_s() - self._began_s
        left_s = max(self._limit_s - now_s, 0.0)
        # the fewest visits may take longer
        left = f", at most about {left_s:.0f} s left" if left_s else ""
        standing = [f"{result.problem}, visit {result.visits}: {now_s:.0f} s so far{left}"]
        median, *_ = columns(result)
        share = min(now_s / self._limit_s, 1.0)
        self.show(now_s, share, standing, [f"median {median}"], self._rows())

    def _rows(self) -> TextTable:
        rows = table("problem", "median so far", "±", "n", "GFLOP/s", "GB/s")
        for result in list(self._results.values())[-_SHOWN:]:
            rows.add_row(result.problem, *columns(result))
        return rows
