"""Steps of this process: kept between visits, and visited here or for another process.

A process that measures a whole sweep also learns from its visits: how long profiles are due, which
marks cost next to nothing, and whether a user's step stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

from ....base.torch_runtime import load_torch
from ...hardware.clocks import ClockSampler
from ...hardware.host_usage import wait_until_quiet
from ...hardware.memory_usage import limit_memory
from ...hardware.reference import Reference
from ...recording.axis import axis_of
from ...recording.disturbed import is_disturbed
from ...recording.remote_store import AnyPath
from ...workload.any_workload import AnyWorkload
from ..configuration import Configuration
from ..protocol import Protocol
from ..step_checks import StepChecks
from ..visit import are_light, count_page_faults, visit, warm_up_ns
from ..visits import Empty, Visit, VisitPlan
from .site import RUN, Facts, Site, SweptSite


class LocalSteps(Site):
    """Steps that are visited in this process, for this one or another."""

    def __init__(self, workload: AnyWorkload, facts: Facts) -> None:
        """Prepare; nothing runs."""
        self.workload = workload
        self._facts = facts

    def facts(self) -> Facts:
        """What happens around timed steps."""
        return self._facts

    def visit(self, condition: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit."""
        facts = self.facts()
        discarded = how.protocol.discarded_steps + facts.discards
        protocol = replace(how.protocol, discarded_steps=discarded)
        with self._clocks if facts.samples_clocks else nullcontext():
            result = self._measure(condition, replace(how, protocol=protocol))
        if how.operators:
            count_page_faults(self.workload, result)
        if facts.waits:
            wait_until_quiet()
        if isinstance(result, Empty) or not facts.samples_clocks:
            return result
        return replace(result, clocks=self._clocks.take())

    def end(self) -> None:
        """Release the steps."""
        self.workload.release()

    def _measure(self, condition: int, how: VisitPlan) -> Visit | Empty:
        facts = self.facts()
        return visit(
            self.workload,
            condition,
            how,
            self._clocks.sample_sometimes if facts.samples_clocks else lambda: None,
            self._reference if facts.runs_reference else None,
        )

    @cached_property
    def _clocks(self) -> ClockSampler:
        return ClockSampler(self.workload.device)

    @cached_property
    def _reference(self) -> Reference:
        return Reference(self.workload.clock_ns)


class Here(LocalSteps, SweptSite):
    """The steps of a sweep, in the process that records them."""

    def __init__(self, workload: AnyWorkload) -> None:
        """Prepare; nothing runs before `begin`."""
        super().__init__(workload, Facts(RUN))
        self._marked: set[int] = set()  # sizes whose layers are timed by marks
        self._light: set[int] = set()  # sizes whose marks cost next to nothing

    @property
    def spec(self) -> Mapping[str, Any]:
        """Entries of `recording.json`, see `AnyWorkload.spec`."""
        return self.workload.spec

    def begin(self, batches: Sequence[int], protocol: Protocol, recording: AnyPath) -> None:
        """Run a step of the smallest size; see `SweptSite`."""
        del recording
        self.workload.try_step(min(batches))
        device = self.workload.device
        warm_up_s = warm_up_ns(device) / 1e9
        # Published protocols are measured as they were published.
        self._facts = Facts(
            RUN,
            warm_up_s=warm_up_s,
            runs_reference=device == "cpu" and not protocol.is_fixed,
            samples_clocks=True,
        )
        self._profiles = _Profiles(protocol.profiled_rounds, every_round=not warm_up_s)
        self._checks = StepChecks(axis_of(self.spec), device, self.workload.compiled_before)

    def facts(self) -> Facts:
        """What happens around timed steps; torch.compile may have compiled them by now."""
        return replace(self._facts, compiles=self.workload.runs_compiled_graphs)

    def machine_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of a machine, see `AnyWorkload.machine_entry`."""
        return self.workload.machine_entry(entry)

    def visit(self, condition: int, how: VisitPlan) -> Visit | Empty:
        """Make one visit, and learn from it."""
        if how.is_probe:
            return visit(self.workload, condition, how)
        profile = self._is_profiled(condition, how)
        light = condition in self._light
        how = replace(how, profile=profile, light=light and not how.protocol.is_fixed)
        result = super().visit(condition, how)
        if isinstance(result, Empty):
            return result
        self._profiles.count(condition, result)
        self._marked.update([condition] if any(result.marked) else [])
        self._light.update([condition] if are_light(result.marked) else [])
        self._checks.note(condition, result)
        self._name_code(condition, result)
        return result

    def keep_only(self, sizes: Sequence[int]) -> None:
        """Release the steps of other sizes."""
        self.workload.free_others(sizes)

    def closing_entry(self) -> dict[str, Any]:
        """The number of processes, and what the checks of a user's step found."""
        warnings = {"warnings": self._checks.warnings()} if self.workload.is_users else {}
        return {"processes": 1, **warnings}

    def _is_profiled(self, condition: int, how: VisitPlan) -> bool:
        is_named = condition in self._marked and self._profiles.suffice(condition)
        return how.profile and self._profiles.are_due(condition, how.round_) and not is_named

    def _name_code(self, condition: int, result: Visit) -> None:
        """Note in the steps' rows whether they ran code that torch compiled for their size."""
        for row in result.unprofiled:
            row["compiled_code"] = self._checks.code(condition)


class _Profiles:
    """Rounds with a profile, by batch size: so many name the kernels of a layer, which marks time
    in every round.

    On a GPU, which has no marks, every second round after them has profiles: kernels take nearly
    the same time in each, and a profile takes as long as a visit without.
    """

    def __init__(self, enough: int | None, *, every_round: bool) -> None:
        """Define how many suffice; None: a batch size is profiled in every round."""
        self._enough = math.inf if enough is None else enough
        self._every_round = every_round
        self._rounds: dict[int, float] = {}

    def count(self, batch: int, visit: Visit) -> None:
        """Count the profile of a visit, if it has one; two disturbed ones count as one."""
        if visit.profiled:
            counts = 0.5 if is_disturbed(visit.unprofiled) else 1.0
            self._rounds[batch] = self._rounds.get(batch, 0.0) + counts

    def are_due(self, batch: int, round_: int) -> bool:
        """Whether a batch size is profiled in a round, counted from 0, if the time allows it."""
        return self._every_round or not self.suffice(batch) or round_ % 2 == 1

    def suffice(self, batch: int) -> bool:
        """Whether a batch size has enough."""
        return self._rounds.get(batch, 0.0) >= self._enough


def build_workload(configuration: Configuration) -> AnyWorkload:
    """Build the steps of a configuration in this process, under its memory limit."""
    load_torch()
    if configuration.memory_limit_bytes is not None:
        limit_memory(configuration.device, configuration.memory_limit_bytes)
    return configuration.build()
