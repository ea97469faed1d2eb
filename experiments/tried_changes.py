"""The record of a change of complete steps in the experiments so far, for the plan of remedies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from ..analysis.verdicts.rule import (
    LARGE_SAVING,
    LEAST_SAVING,
    LEAST_UNKNOWN_SAVING,
    SCREENED_SAVING,
)
from ..analysis.verdicts.words import Verdict
from ..profiling.recording.experiments import TIME, TIME_IS_UP, Experiment, Scope, Stage

if TYPE_CHECKING:
    from ..analysis.decompose.statistics import Estimate
    from ..analysis.verdicts.outcome import Outcome
    from ..analysis.verdicts.savings import Saving
    from .situation import Situation

# of what a change saves beyond those before it, in standard errors, to join them; a set is
# measured anew, so that chance costs only time
_ADDS_ERRORS = 1.5
_MOST_TRIES = 2  # of a change that the time did not reach


@dataclass(frozen=True)
class TriedChange:
    """A change, or several that are made together, as the experiments so far show it.

    Every saving is a share of a step's time. `first_savings` suggest the change, as a screen's do;
    `saving` is of all starts of processes, and proves.
    """

    name: str
    experiments: tuple[Experiment, ...]  # of the plan of remedies, that had it
    outcomes: tuple[Outcome, ...]  # of all experiments on complete steps
    saving: Saving | None  # None if nothing ran with it, nor was refused
    largest: int  # batch size, where one trains
    only_largest: bool  # whether experiments that leave out this size do not count

    @classmethod
    def of(cls, name: str, situation: Situation, largest: int, only_largest: bool) -> TriedChange:
        """The record of a change by its name."""
        remedies = situation.diagnosis.remedies
        experiments = [made for made in situation.made if made.functional_kind == TIME]
        outcomes = [outcome for outcome in situation.diagnosis.outcomes if outcome.factor == name]
        tried = (saving for saving in (*remedies.savings, *remedies.sets) if saving.factor == name)
        return cls(
            name,
            tuple(experiment for experiment in experiments if name in experiment.factors),
            tuple(outcome for outcome in outcomes if outcome.experiment.scope == Scope.STEP),
            next(tried, None),
            largest,
            only_largest,
        )

    @property
    def is_new(self) -> bool:
        """Whether it was neither measured, at a size that counts, nor refused."""
        tries = [experiment for experiment in self.experiments if self._counts(experiment)]
        if len(tries) >= _MOST_TRIES or any(self._was_reached(experiment) for experiment in tries):
            return False
        if self.only_largest:
            return self.at_largest is None
        return self.saving is None or self.saving.verdict == Verdict.UNTESTED

    def _was_reached(self, experiment: Experiment) -> bool:
        ended = experiment.done or self.name in experiment.untested
        return ended and experiment.untested.get(self.name) != TIME_IS_UP

    def _counts(self, experiment: Experiment) -> bool:
        return not self.only_largest or self.largest in experiment.batches

    def was_in(self, stage: Stage) -> bool:
        """Whether an experiment of a stage had it, or tried to often enough."""
        tries = [experiment for experiment in self.experiments if experiment.stage == stage]
        started = any(each.done or each.setup_s.get(self.name) for each in tries)
        return started or len(tries) >= _MOST_TRIES

    @property
    def fresh_experiments(self) -> int:
        """Number of experiments that had it on fresh rounds."""
        experiments = [outcome.experiment for outcome in self.outcomes if outcome.gains]
        return len({each.number for each in experiments if each.stage != Stage.SCREEN})

    @cached_property
    def first_savings(self) -> dict[int, float]:
        """The savings of the first experiment that ran with it, by batch size; empty without one
        that counts.
        """
        for outcome in self.outcomes:
            if outcome.ratios and self._counts(outcome.experiment):
                by_batch = zip(*outcome.ratios, strict=True)  # logarithms of T'/T of all starts
                savings = [1 - exp(fmean(logs)) for logs in by_batch]
                return dict(zip(outcome.batches, savings, strict=True))
        return {}

    @property
    def leads(self) -> bool:
        """Whether it is worth fresh rounds."""
        return max(self.first_savings.values(), default=0.0) >= SCREENED_SAVING

    @property
    def leading_size(self) -> int:
        """The largest batch size if it leads there, else the one where it saves most."""
        savings = self.first_savings
        if savings.get(self.largest, 0.0) >= SCREENED_SAVING:
            return self.largest
        return max(savings, key=lambda batch: savings[batch])

    @property
    def place(self) -> tuple[float, float, str]:
        """Key by which changes that lead are ordered, the best first: one trains at the largest
        batch size.
        """
        savings = self.first_savings
        at_largest = savings.get(self.largest, 0.0)
        first = -at_largest if at_largest >= SCREENED_SAVING else 0.0
        return first, -max(savings.values()), self.name

    @property
    def at_largest(self) -> Estimate | None:
        """Its saving at the largest batch size; None if it did not run there."""
        return dict(self.saving.gains).get(self.largest) if self.saving else None

    @property
    def is_proven_at_largest(self) -> bool:
        """Whether its saving at the largest batch size is proven."""
        return self.saving is not None and self.largest in self.saving.proven

    @property
    def may_save_at_largest(self) -> bool:
        """Whether it ran at the largest batch size and may save something there.

        A change may cost much in its only start. Then other changes will tell how starts differ.
        """
        gain = self.at_largest
        return gain is not None and gain.high >= LEAST_UNKNOWN_SAVING and gain.value > -LARGE_SAVING

    @property
    def helps(self) -> bool:
        """Whether it saves enough to join others, by the mean over batch sizes on fresh rounds."""
        if self.saving is None or not self.saving.fresh:
            return False
        return fmean(gain.value for _, gain in self.saving.gains) >= LEAST_SAVING

    @property
    def changes_results(self) -> bool:
        """Whether results differ beyond rounding."""
        return self.saving is not None and self.saving.changed_results is not None

    @property
    def is_open(self) -> bool:
        """Whether it seems to help, and is not yet proven to."""
        return self.helps and self.saving is not None and self.saving.verdict == Verdict.UNDECIDED

    def adds_to(self, before: TriedChange) -> bool:
        """Whether it saves more than the changes before, which it contains. The mean over batch
        sizes counts, in the starts that had both.
        """
        own, other = self._logs_of_starts(), before._logs_of_starts()
        differences = []
        for number, starts in own.items():
            for with_it, without in zip(starts, other.get(number, ()), strict=False):
                differences.append(fmean(with_it) - fmean(without))
        if len(differences) < 2:
            return False
        error = stdev(differences) / sqrt(len(differences))
        return -fmean(differences) >= max(LEAST_SAVING, _ADDS_ERRORS * error)

    def _logs_of_starts(self) -> dict[int, tuple[tuple[float, ...], ...]]:
        """Logarithms of T'/T on fresh rounds, by experiment: of each start one per batch size."""
        logs = {}
        for outcome in self.outcomes:
            made = outcome.experiment
            is_fresh = made.functional_kind == TIME and made.stage != Stage.SCREEN
            if is_fresh and outcome.ratios:
                logs[made.number] = outcome.ratios
        return logs
