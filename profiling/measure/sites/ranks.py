"""Steps that several ranks of a launch make together, seen from one of them.

The ranks wait for each other in a step. So numbers of steps follow from times that all ranks know,
and every rank makes the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...attribution.collectives import communicates
from ...attribution.events import StepRows
from ...workload.any_workload import AnyWorkload
from ..visit import profile_steps, time_steps, warm_up_ns
from ..visits import Visit, VisitPlan
from .here import LocalSteps
from .site import RUN, Facts

# DDP rebuilds its buckets after its first step, and the second allocates them.
FRESH_STEPS = 2


class RankSteps(LocalSteps):
    """This rank's steps on one number of devices, built anew for each change of that number."""

    def __init__(self, workload: AnyWorkload, devices: int, step_ns: Mapping[int, int]) -> None:
        """Take the workload and, by batch size, the time of a step that all ranks know."""
        warm_up_s = warm_up_ns(workload.device) / 1e9
        fresh = Facts(RUN, discards=FRESH_STEPS, warm_up_s=warm_up_s, samples_clocks=True)
        super().__init__(workload, fresh)
        self._devices = devices
        self._step_ns = step_ns
        self._is_fresh = True
        self.cheap_profiles: dict[int, int] = {}  # as many take no longer than a visit without

    def facts(self) -> Facts:
        """What happens around timed steps; further steps are discarded in the first visit only."""
        facts = super().facts()
        return facts if self._is_fresh else Facts(RUN, 0, facts.warm_up_s, samples_clocks=True)

    def _measure(self, condition: int, how: VisitPlan) -> Visit:
        workload = self.workload
        protocol = how.protocol
        step_ns = self._step_ns[condition]
        warm_up_steps = math.ceil(warm_up_ns(workload.device) / step_ns)
        discarded = max(protocol.discarded_steps, warm_up_steps)
        count = protocol.steps_of_visit(self._devices * condition, step_ns)

        def run_steps(number: int) -> None:
            for _ in range(number):
                workload.time_step()

        began_ns = workload.clock_ns()
        workload.load(condition)
        run_steps(discarded)
        unprofiled = time_steps(workload, count, self._clocks.sample_sometimes, exactly=True)
        timed_ns = workload.clock_ns() - began_ns
        profiled: list[StepRows] = []
        # The profiler starts at a different time on each rank. A common step before each
        # recorded step removes these differences. All ranks profile the same number of steps.
        for rows in profile_steps(
            workload,
            min(count, protocol.profiled_steps),
            math.inf,
            before=workload.time_step,
            warm_up=lambda: run_steps(warm_up_steps),
        ):
            for row in rows.kernels:
                if communicates(row["name"], row["op"]):
                    row["communicator"] = f"{self._devices} devices"
            profiled.append(rows)
        if profiled:
            profiled_ns = workload.clock_ns() - began_ns - timed_ns
            cheap = timed_ns * len(profiled) // max(profiled_ns, 1)
            self.cheap_profiles[condition] = max(1, cheap)
        self._is_fresh = False
        return Visit(unprofiled, profiled, discarded_steps=discarded)
