"""Outcomes of experiments, computed from the rows of the table `experiments`.

Every round of an experiment runs each batch size as it is and with each factor. F is the functional of the times as
they are, F' with the factor, both of the same rounds. The share taken away is (F − F')/F.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...profiling.recording.experiments import Experiment, FactorFacts
from ...profiling.recording.store import Recording
from ..decompose.statistics import Estimate


class Verdict:
    """Verdicts on a cause, or on a factor."""

    CONFIRMED = "confirmed"  # the interval of the share taken away lies above 1/2
    REFUTED = "refuted"  # the interval lies below 1/5
    UNDECIDED = "undecided"
    UNTESTED = "untested"  # no experiment was made; a reason says why


class Reproduction:
    """Results of running a term alone."""

    REPRODUCES = "reproduces"
    PARTLY = "partly"
    NOT = "does not"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one factor in one experiment; or, without a factor, of what runs as it is.

    Attributes:
        experiment: the experiment.
        factor: name of the changed factor; None for the runs without a change.
        facts: what the factor changes; None without a factor, or if the recording does not say it.
        rounds: number of rounds in which all batch sizes ran, both as they are and with the factor.
        batches: batch sizes of the experiment, increasing.
        times_ms: times as they are, by batch size; empty if nothing ran.
        changed_ms: times with the factor, by batch size; empty without a factor, or if it did not run.
        value: F, in the unit of the functional; None if it was not measured.
        changed: F' with the factor; None without a factor, or if it did not run.
        taken: share taken away, (F − F')/F; its interval is infinite where F cannot be told from 0. None as for
            `changed`.
        gains: share of the time saved by the factor, 1 − T'/T, by batch size; empty as `changed_ms`.
        verdict: see `Verdict`; without a factor, untested.
        reason: why it is undecided or untested, as a clause without a full stop; None otherwise.
        changed_results: what differs, if the factor changes the results beyond rounding; else None.
    """

    experiment: Experiment
    factor: str | None
    facts: FactorFacts | None
    rounds: int
    batches: tuple[int, ...]
    times_ms: tuple[Estimate, ...]
    changed_ms: tuple[Estimate, ...]
    value: Estimate | None
    changed: Estimate | None
    taken: Estimate | None
    gains: tuple[Estimate, ...]
    verdict: str
    reason: str | None = None
    changed_results: str | None = None

    @property
    def gain(self) -> Estimate | None:
        """Share of the time saved at the largest batch size; None if the factor did not run."""
        return self.gains[-1] if self.gains else None


@dataclass(frozen=True)
class Shape:
    """The shape of a term's curve between the batch sizes of the sweep, from a finer grid.

    Attributes:
        kind: jump, staircase, curve, straight or undecided.
        at: for a jump, the first batch size behind it; else None.
        period: for a staircase, the number of samples from one jump to the next; else None.
        sentence: the same in one sentence.
    """

    kind: str
    at: int | None
    period: int | None
    sentence: str


def outcomes(recording: Recording) -> tuple[Outcome, ...]:
    """The outcome of every factor of every experiment in a recording, in the order of the experiments.

    The first outcome of each experiment is that without a factor.
    """
    raise NotImplementedError
