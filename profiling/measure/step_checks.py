"""Checks of a user's step over the visits of one process: it leaks, changes, slows down, or is left
uncompiled.

Then its times describe nothing that stays. A finding is a sentence in `recording.json`; no step is
left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from ...base.counted import counted
from ..collect.compilations import NONE, Compilations, code_of, read_compilations
from ..hardware.memory_usage import read_current
from ..recording.axis import Axis
from .visits import Visit

Ran = Counter[tuple[Any, Any]]  # layer and operator of each kernel of a step

# Least growth per step that is reported. Resident memory also grows while allocators and the
# profiler settle: up to 0.5 MB a step over seven rounds of small networks on a CPU. The count of
# the CUDA allocator is exact.
_LEAST_LEAK_BYTES = {"cpu": 1_000_000, "cuda": 65_536}
_STEADY = 0.3  # least growth of a round, as a share of the mean growth
_LEAST_ROUNDS = 4
_LEAST_CHANGE = 0.02  # share of the operators
_LEAST_SLOWING = 0.2  # share of the time
_NOTHING = Compilations(0, 0, 0)  # compiled so far


@dataclass
class StepChecks:
    """What the visits of one process show, in their order."""

    axis: Axis
    device: str
    before: Compilations | None = None  # what the process had compiled before the step was made
    _steps: int = 0
    # by batch: steps so far, bytes
    _memory: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    # by batch: growth of each visit's memory with a timed step
    _grown: dict[int, list[float]] = field(default_factory=dict)
    _operators: dict[int, list[list[Ran]]] = field(default_factory=dict)  # by batch and visit
    # by batch: median of each visit
    _times_ms: dict[int, list[float]] = field(default_factory=dict)
    _compiled: Compilations | None = None  # what had been compiled after the latest visit
    # by batch, see `code_of`, of its first visit
    _code: dict[int, str] = field(default_factory=dict)

    def note(self, batch: int, visit: Visit) -> None:
        """Note one visit, right after it."""
        self._steps += visit.discarded_steps + visit.timed_steps + len(visit.profiled)
        compiled = read_compilations()
        expected = self._compiled or self.before
        # What was compiled before the step was made may be of other code.
        if compiled is not None and compiled.compiled > (self.before or _NOTHING).compiled:
            if (code := code_of(expected, compiled)) is not None:
                self._code.setdefault(batch, code)
            self._compiled = compiled
        held = read_current(self.device)
        if held is not None:
            self._memory.setdefault(batch, []).append((self._steps, held))
        if visit.grown_bytes is not None:
            self._grown.setdefault(batch, []).append(visit.grown_bytes)
        if visit.unprofiled:
            self._times_ms.setdefault(batch, []).append(
                median(row["duration_ns"] for row in visit.unprofiled) / 1e6
            )
        if visit.profiled:
            ran = [
                Counter((row.get("layer"), row.get("op")) for row in step.kernels)
                for step in visit.profiled
            ]
            if (
                self.device != "cpu"
            ):  # the number of kernels of an operator depends on its algorithm
                ran = [Counter(set(step)) for step in ran]
            self._operators.setdefault(batch, []).append(ran)

    def need(self, batch: int) -> bool:
        """Whether a batch size has too few visits to be checked."""
        return len(self._times_ms.get(batch, ())) < _LEAST_ROUNDS

    def warnings(self) -> list[str]:
        """One sentence for each thing that is wrong."""
        return [
            line
            for line in (
                self._leak(),
                self._changes(),
                self._find_slowing(),
                self._warn_of_uncompiled(),
                self._breaks(),
            )
            if line is not None
        ]

    def code(self, batch: int) -> str | None:
        """What the steps of a batch size run of torch.compile's code, see `code_of`."""
        return self._code.get(batch)

    def _warn_of_uncompiled(self) -> str | None:
        """Sizes for which torch compiled nothing, after a function had as many versions as torch
        allows.
        """
        batches = sorted(batch for batch, code in self._code.items() if code == NONE)
        if not batches or self._compiled is None:
            return None
        limit = self._compiled.limit
        noun = self.axis.values if len(batches) > 1 else self.axis.value
        return (
            f"The step ran uncompiled at {noun} {', '.join(map(str, batches))}: torch compiles a "
            f"function for {limit} shapes in one process (recompile_limit), and runs further ones "
            "eagerly, without an error. Leave out dynamic=False, mark the dimension "
            "(torch._dynamo.mark_dynamic(x, 0)), or raise torch._dynamo.config.recompile_limit. "
            "`curvescope sweep` measures each size in a process of its own, where it is compiled."
        )

    def _breaks(self) -> str | None:
        """Places at which torch.compile left the graph of the step."""
        if self._compiled is None:
            return None
        breaks, places = self._compiled.breaks_since(self.before)
        if not breaks:
            return None
        most = max(breaks, key=lambda reason: breaks[reason])
        return (
            f"torch.compile divided the step's graph at {counted(places, 'place')} (graph breaks), "
            f'most for "{most}". At each one the host leaves compiled code, and nothing is fused '
            "across it. TORCH_LOGS=graph_breaks names the lines; torch.compile(fullgraph=True) "
            "makes them errors."
        )

    def _leak(self) -> str | None:
        """Memory that grows in every round, after the first, at every batch size, and with the
        steps of a visit: what grows only between visits is not the step's.
        """
        slopes = []
        for visits in self._memory.values():
            settled = visits[1:]  # the first visit makes the step
            grown = [after - before for (_, before), (_, after) in pairwise(settled)]
            if (
                len(visits) < _LEAST_ROUNDS
                or min(grown) <= _STEADY * fmean(grown)
                or min(grown) <= 0
            ):
                return None
            slopes.append((settled[-1][1] - settled[0][1]) / (settled[-1][0] - settled[0][0]))
        if (
            not slopes
            or (per_step := fmean(slopes))
            < _LEAST_LEAK_BYTES["cpu" if self.device == "cpu" else "cuda"]
        ):
            return None
        inside = [grown for visits in self._grown.values() for grown in visits[1:]]
        if inside and median(inside) < _STEADY * per_step:
            return None
        return (
            f"The step leaks memory: about {per_step / 1e6:.3g} MB more with each step, in every "
            "round. Keep no tensor of an earlier step, e.g. a list of losses: append loss.item() "
            "or loss.detach()."
        )

    def _changes(self) -> str | None:
        """Operators that differ between profiled steps of one batch size."""
        for batch, visits in sorted(self._operators.items()):
            steps = [ran for visit in visits for ran in visit]
            usual, share = _most_common(steps)
            if share <= _LEAST_CHANGE:
                continue
            half = len(visits) // 2
            early = {frozenset(ran.items()) for visit in visits[:half] for ran in visit}
            late = {frozenset(ran.items()) for visit in visits[half:] for ran in visit}
            where = f"at {self.axis.name} {batch}"
            if half and not early & late:
                return (
                    f"The step changes what it does between calls: {where} no profiled step of the "
                    f"later rounds ran the operators of the earlier ones (up to {share:.0%} "
                    "differ). Its times describe no one step: make each call do the same."
                )
            others = sum(ran != usual for ran in steps)
            return (
                f"The step does not do the same in each call: {where} {others} of {len(steps)} "
                f"profiled steps ran other operators (up to {share:.0%} differ), e.g. an update "
                "only after several passes. Make one call a complete cycle."
            )
        return None

    def _find_slowing(self) -> str | None:
        """Steps that take longer with each round, at every batch size."""
        growths = []
        for times in self._times_ms.values():
            third = max(len(times) // 3, 1)
            growth = median(times[-third:]) / median(times[:third]) - 1
            rising = sum(after > before for before, after in pairwise(times)) >= 0.9 * (
                len(times) - 1
            )
            if len(times) < _LEAST_ROUNDS or not rising or growth < _LEAST_SLOWING:
                return None
            growths.append(growth)
        if len(growths) < 2:
            return None
        return (
            f"Steps take longer with each round: {fmean(growths):.0%} from the first third to the "
            f"last, at every {self.axis.value}. The step does more with each call, or the machine "
            "slows down."
        )


def _most_common(steps: Sequence[Ran]) -> tuple[Ran, float]:
    """The most common operators of the steps, and the largest share in which a step's differ from
    them.
    """
    distinct = Counter(frozenset(ran.items()) for ran in steps)
    usual = Counter(dict(distinct.most_common(1)[0][0]))
    size = max(sum(usual.values()), 1)
    largest = max(
        (sum(abs(ran[key] - usual[key]) for key in ran | usual) / size for ran in steps),
        default=math.nan,
    )
    return usual, largest
