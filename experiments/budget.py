"""Time of experiments: what each kind costs, and whether one fits the time that is left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from ..analysis.decompose.terms import KERNELS, Key
from ..profiling.measure.protocol import EXPERIMENT
from ..profiling.measure.visit import warm_up_ns
from ..profiling.recording.experiments import Experiment, Scope, Stage, members
from .factor import USUAL_SETUP_S
from .factors import factor_of
from .program_worker import fits_programs
from .step_variants import ENOUGH_STARTS, MARGIN

if TYPE_CHECKING:
    from ..analysis.diagnosis.result import Diagnosis

Floats: TypeAlias = npt.NDArray[np.float64]  # by batch size

_USUAL_LIMIT_S = 60.0
# What one pass takes beyond the steps themselves: processes that start and build the step, calls
# that are rebuilt.
_RUNS_PER_VISIT = 2.5
_RUNS_PER_FILLED_VISIT = 1.2  # of one step, with none discarded before it
_TERM_SETUP_S, _VISIT_S = 1.0, 0.01
_FIRST_STEPS = 1.5  # time of a first step of each batch size, in later ones
_LEAST_START_S = 0.01  # whatever the clock says: 0 is a change that does not apply
_RUN_STEPS_S = 2.0  # of the steps of a run of a program, which are more than those of a visit
_CUDA_START_S = 6.0  # of complete steps: with a context, cuDNN and a first step of each batch size


# Least and most rounds of an experiment on a term, and its seconds where all have a minute.
_COSTS = {
    Stage.ALONE: ((8, 30), 3.0),
    Stage.GRID: ((5, 15), 4.0),
    Stage.SCREEN: ((4, 8), 6.0),
    Stage.CONFIRM: ((10, 40), 6.0),
}
# The same of complete steps, after each start of the processes, with the most starts: processes
# differ more than the rounds of one, and each start counts once. A screen has few rounds for all,
# and those that lead have most.
_COSTS_OF_STEPS = {
    Stage.SCREEN: ((1, 1), 30.0, 4),
    Stage.CONFIRM: ((2, 2), 15.0, 12),
    Stage.REMEDY: ((2, 2), 20.0, 20),
}
# A screen of steps that fill visits: a start costs several of them, and one shows what saves much.
FILLED_SCREEN = ((2, 2), 1)
# Rounds after each other start of them, and seconds that they take together.
_ROUNDS_OF_FILLED, _FILLED_S = (2, 6), 1.2
_FURTHER_DISCARDED = 1.0  # steps of each of them after a start, in the mean over starts
_ENOUGH_FOR_A_SCREEN = 2  # starts that a screen takes though it becomes longer than usual
# time limit of an experiment whose number of rounds is known, as a factor on what it is expected to
# take
_SLACK = 1.5


@dataclass(frozen=True)
class Budget:
    """The time that is left, and what experiments would take of it."""

    diagnosis: Diagnosis
    device: str  # cpu or cuda
    time_left_s: float
    # what starts of complete steps took so far in this recording, seconds
    starts_s: tuple[float, ...] = ()
    # names of factors that these complete steps are known to refuse
    impossible: frozenset[str] = frozenset()
    # share of memory that a process takes, by batch size
    fullness: Mapping[int, float] = field(default_factory=dict)
    total_s: float = 0.0  # seconds for experiments, of which some are left
    # seconds of a run of a program beside its steps, where each visit is one; None: it is not
    run_s: float | None = None
    # that ran the steps if it is not PyTorch, whose factors then change nothing
    framework: str | None = None
    # time of complete steps with a factor, as a factor on that of unmodified ones, as far as
    # experiments measured it
    paces: Mapping[str, float] = field(default_factory=dict)
    # expected seconds to compile the steps for all their batch sizes; None if they are not compiled
    compiling_s: float | None = None

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Repeated layers by the name of their group."""
        return self.diagnosis.recorded.groups

    def refuses(self, name: str) -> bool:
        """Whether a factor only says why it does not apply to the device."""
        factor = factor_of(name)
        return factor is None or factor.refusal(self.device) is not None

    def fits(self, scope: str, name: str) -> bool:
        """Whether a factor can change what the steps' framework runs."""
        factor = factor_of(name)
        if factor is None:
            return True
        if self.run_s is None:
            return not factor.only_in_programs and factor.fits(scope, self.framework)
        runs = scope == Scope.STEP and fits_programs(factor)
        return runs and factor.fits(scope, self.framework)

    def setup_s(self, name: str) -> float:
        """Expected seconds until the complete step runs with a factor; 0 if it does not apply to
        the device.
        """
        factor = None if self.refuses(name) else factor_of(name)
        if factor is None or factor.step is None or name in self.impossible:
            return 0.0
        setup_s = factor.step.setup_s
        if setup_s <= USUAL_SETUP_S:
            return self.start_s
        if factor.step.compiles_again and self.compiling_s is not None:
            setup_s = USUAL_SETUP_S + self.compiling_s
        return max(setup_s, self.start_s)

    def fitting(self, wanted: Experiment) -> Iterator[Experiment]:
        """The experiment with its time limit, if it fits the time; if need be with fewer rounds,
        targets or factors.

        Factors of PyTorch go where another framework ran the steps.
        """
        names = tuple(name for name in wanted.factors if self.fits(wanted.scope, name))
        if wanted.factors and not names:
            return
        wanted = replace(wanted, factors=names)
        usual_s = self.usual_s(wanted) * (1 + len(wanted.also) / 2)
        fitting = None
        while fitting is None:
            fitting = self._limit(wanted, usual_s)
            if fitting is not None:
                yield fitting
            elif wanted.also:
                wanted = next(wanted.by_functional())
            elif len(wanted.factors) > 1:
                wanted = self._drop_costliest(wanted)
                if wanted.scope == Scope.STEP and not any(map(self.setup_s, wanted.factors)):
                    return
            else:
                return

    def _limit(self, wanted: Experiment, usual_s: float) -> Experiment | None:
        """The experiment with most starts and rounds that fit the time; None if not even the
        fewest do.
        """
        setup_s, round_s = self._times_s(wanted)
        changes = sum(map(bool, map(self.setup_s, wanted.factors)))
        for starts, least, is_usual in _fewer(wanted, changes):
            needed_s = starts * (setup_s + least * round_s)
            if needed_s > (min(self.time_left_s, usual_s) if is_usual else self.time_left_s):
                continue
            if least == wanted.rounds[1]:
                longest_s = _SLACK * needed_s
            else:
                longest_s = max(needed_s, starts * setup_s + usual_s)
            left_s = self.time_left_s
            return replace(
                wanted,
                starts=starts,
                rounds=(least, wanted.rounds[1]),
                time_limit_s=round(min(left_s, longest_s), 1),
                deadline_s=None if np.isinf(left_s) else round(left_s, 1),
            )
        return None

    def _drop_costliest(self, wanted: Experiment) -> Experiment:
        """The experiment without the factor that takes longest; of equal ones the last."""
        names = list(wanted.factors)
        if wanted.scope == Scope.STEP:
            names.sort(key=self.setup_s)
        costliest = names[-1]
        left = [name for name in wanted.factors if name != costliest]
        return replace(wanted, factors=tuple(left))

    def shortest_s(self, wanted: Experiment) -> float:
        """Expected seconds of the minimum number of rounds, after each of a few starts if it wants
        several.
        """
        setup_s, round_s = self._times_s(wanted)
        starts = min(wanted.starts, _enough_starts(wanted))
        return starts * (setup_s + wanted.rounds[0] * round_s)

    def usual_s(self, wanted: Experiment) -> float:
        """Usual seconds of an experiment, by the time that is left."""
        share = self.time_left_s / _USUAL_LIMIT_S
        if not _screens_steps(wanted):
            share = max(1.0, share)
        costs = _COSTS_OF_STEPS if wanted.scope == Scope.STEP else _COSTS
        return costs[wanted.stage][1] * share

    def _times_s(self, wanted: Experiment) -> tuple[float, float]:
        """Expected seconds before the first round, and of one round."""
        batches = wanted.batches
        ran = [name for name in wanted.factors if not self.refuses(name)]
        if wanted.scope == Scope.TERM:
            times_ms = self._times_ms(Key(wanted.layer, wanted.phase, KERNELS), batches)
            passes = 1.0 + len(ran)
            visits_s = passes * len(batches) * _VISIT_S
            return _TERM_SETUP_S, passes * _RUNS_PER_VISIT * _seconds(times_ms) + visits_s
        ran = [name for name in ran if name not in self.impossible]
        passes = 1.0 + sum(map(self.pace, ran))
        times_ms = self._times_ms(None, batches)
        visits = (1 + len(ran)) * len(batches)
        round_s = passes * _seconds(self._visits_ms(times_ms, batches)) + visits * _VISIT_S
        if self.run_s is not None:
            return 0.0, round_s + visits * (self.run_s + _RUN_STEPS_S)
        setup_s = self.start_s + sum(map(self.setup_s, wanted.factors))
        step_s = passes * _seconds(times_ms)
        if not self.starts_s:  # those include the first steps
            setup_s += step_s * _FIRST_STEPS
        if self.fills_visits(batches):
            setup_s += step_s * _FURTHER_DISCARDED
        if self.takes_turns(batches):
            return 0.0, setup_s + round_s
        return setup_s, round_s

    def _visits_ms(self, times_ms: Floats, batches: Sequence[int]) -> Floats:
        """Time of a visit of complete steps by batch size, from the times of a step."""
        if self.device != "cpu":  # each visit brings the GPU to its clocks
            steps = [EXPERIMENT.steps_of_visit(1, round(time_ms * 1e6)) for time_ms in times_ms]
            return np.maximum(times_ms, warm_up_ns(self.device) / 1e6) + steps * times_ms
        filled = self.fills_visits(batches)
        return (_RUNS_PER_FILLED_VISIT if filled else _RUNS_PER_VISIT) * times_ms

    def pace(self, name: str) -> float:
        """Time of complete steps with a factor, or with several, as a multiple of unmodified ones:
        as measured, else 1.
        """
        expected = math.prod(self.paces.get(member, 1.0) for member in members(name))
        return self.paces.get(name, expected)

    def takes_turns(self, batches: Iterable[int]) -> bool:
        """Whether each process starts for every round: the device's memory holds one only, or a
        visit runs a program.
        """
        if self.run_s is not None:
            return True
        fullest = max((self.fullness.get(batch, 0.0) for batch in batches), default=0.0)
        return (1 + MARGIN) * fullest > 1

    def fills_visits(self, batches: Sequence[int]) -> bool:
        """Whether complete steps of one batch size are so long that a visit is a single step, and
        discards none.
        """
        if self.device != "cpu" or self.run_s is not None or len(batches) != 1:
            return False
        step_ns = 1e6 * self.pass_ms(None, batches)
        return EXPERIMENT.is_filled_by(step_ns) and not self.takes_turns(batches)

    def rounds_of_start(self, batches: Sequence[int]) -> int:
        """Rounds after each start of steps that fill visits: more of short ones.

        The heap's memory differs from step to step: two steps are no sample of it.
        """
        least, most = _ROUNDS_OF_FILLED
        rounds = _FILLED_S / (self.pass_ms(None, batches) / 1e3)
        return min(max(round(rounds), least), most)

    @property
    def start_s(self) -> float:
        """Expected seconds until the complete step runs in a process of its own."""
        if self.starts_s:
            return max(median(self.starts_s), _LEAST_START_S)
        return USUAL_SETUP_S if self.device == "cpu" else _CUDA_START_S

    def pass_ms(self, key: Key | None, batches: Iterable[float]) -> float:
        """Time of a term, or of the step without a key, summed over batch sizes; 0 if unknown."""
        return float(self._times_ms(key, batches).sum())

    def _times_ms(self, key: Key | None, batches: Iterable[float]) -> Floats:
        """Time of a term, or of the step without a key, by batch size; 0 if unknown."""
        at = sorted(map(float, batches))
        curve, terms = self.diagnosis.curve, self.diagnosis.terms
        if key is None:
            sizes = curve.conditions
            times = np.array([point.time_ms.value for point in curve.points])
        elif terms is None or key not in terms.keys:
            return np.zeros(len(at))
        else:
            members = len(self.groups.get(key.layer or "", ())) or 1  # one of them runs
            sizes = terms.conditions
            times = terms.values_ms[:, terms.keys.index(key)] / members
        return np.asarray(np.interp(at, [float(size) for size in sizes], times))


def _fewer(wanted: Experiment, changes: int) -> list[tuple[int, int, bool]]:
    """Possible numbers of starts and of least rounds, the best first, and whether the usual time
    limits them.

    The usual time always limits a screen of several changes, which may run with fewer of them.
    """
    least = wanted.rounds[0]
    limited = _screens_steps(wanted) and changes > 1
    if wanted.starts == 1:
        choices = [(1, least, limited)]
        if wanted.scope == Scope.TERM:
            choices.append((1, max(least // 2, 4), False))
        return choices
    enough = _enough_starts(wanted)
    counts = range(wanted.starts, 1, -1)
    return [(starts, least, limited or starts > enough) for starts in counts]


def _seconds(times_ms: Floats) -> float:
    return float(times_ms.sum()) / 1e3


def _enough_starts(wanted: Experiment) -> int:
    return _ENOUGH_FOR_A_SCREEN if _screens_steps(wanted) else ENOUGH_STARTS


def _screens_steps(wanted: Experiment) -> bool:
    return wanted.stage == Stage.SCREEN and wanted.scope == Scope.STEP


def rounds_of(stage: Stage, scope: Scope, *, in_turns: bool = False) -> tuple[int, int]:
    """Minimum and maximum number of rounds of an experiment, of complete steps after each start.

    Where processes start anew for every round, further rounds of a start would be starts that count
    once together.
    """
    if scope == Scope.TERM:
        return _COSTS[stage][0]
    return (1, 1) if in_turns else _COSTS_OF_STEPS[stage][0]


def starts_of(stage: Stage, scope: Scope) -> int:
    """Maximum number of starts of the processes; 1 for a term in isolation, which has none of its
    own.
    """
    return _COSTS_OF_STEPS[stage][2] if scope == Scope.STEP else 1


def with_more_rounds(experiment: Experiment) -> Experiment:
    """The experiment with twice as many rounds, or starts, for factors that stayed undecided."""
    if experiment.scope == Scope.STEP:
        return replace(experiment, starts=2 * experiment.starts)
    return replace(experiment, rounds=(2 * experiment.rounds[0], 2 * experiment.rounds[1]))
