"""What changes save of complete steps, by batch size, from all experiments on complete steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...profiling.recording.experiments import (
    PADDED_BATCH,
    FactorFacts,
    Scope,
    Stage,
    choose_multiple,
    members,
)
from ..decompose.statistics import Estimate, Floats, pool_variance, share_estimate
from .outcome import Outcome
from .rule import decide_saving, saves, saving_family
from .words import Verdict


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What one change of complete steps saves, or several that are made together."""

    factor: str  # several names stand for factors that are changed together, see `members`
    facts: FactorFacts | None  # None if the recording does not have them
    verdict: Verdict  # see `rule.decide_saving`
    # share saved by batch size; negative where it costs time
    gains: tuple[tuple[int, Estimate], ...] = ()
    proven: tuple[int, ...] = ()  # batch sizes where the saving is proven
    # whether it ran on fresh rounds; else `gains` are a screen's, which prove nothing
    fresh: bool = False
    # whether it is of a machine with other work, whose waits for a core the change avoids: what it
    # saves on a quiet one is not known
    beside_work: bool = False
    reason: str | None = None  # why it is untested, as a clause without a full stop
    changed_results: str | None = None  # if it changes the results beyond rounding
    # seconds of set-up beyond that of the unmodified steps; None if unknown
    setup_s: float | None = None
    memory_bytes: int | None = None  # beyond that of the unmodified steps; None if unknown
    # multiple that the batch is padded to; None of another change
    multiple: int | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """Names of its factors."""
        return members(self.factor)

    @property
    def largest(self) -> tuple[int, Estimate] | None:
        """The largest proven saving, as (batch size, share); None without one."""
        proven = [(batch, gain) for batch, gain in self.gains if batch in self.proven]
        return max(proven, key=lambda item: item[1].value, default=None)

    @property
    def leading(self) -> tuple[int, float]:
        """The value to compare changes by: the largest batch size with a proven saving, where one
        trains, and the share saved there; (0, 0) without one.
        """
        proven = [(batch, gain.value) for batch, gain in self.gains if batch in self.proven]
        return max(proven, default=(0, 0.0))

    @property
    def at_most(self) -> float | None:
        """The largest saving that its intervals leave possible, as a share; None if it
        did not run.
        """
        return max((gain.high for _, gain in self.gains), default=None)


@dataclass
class _Runs:
    fresh: list[Outcome] = field(default_factory=list)
    screened: list[Outcome] = field(default_factory=list)
    untested: list[Outcome] = field(default_factory=list)


def savings(outcomes: Iterable[Outcome]) -> tuple[Saving, ...]:
    """What every change of complete steps saves, first the proven savings at the largest batch
    size, the largest saving first; then those that ran, then others.

    Changes that are experiments only are left out. Measurements on fresh rounds count, in
    whatever experiment.
    """
    runs = _collect_runs(outcomes)
    # A screen's starts have fewer rounds, so they vary more: they say nothing of fresh rounds.
    fresh = {name: change.fresh for name, change in runs.items() if change.fresh}
    screened = {name: change.screened for name, change in runs.items()}
    gains = _gains(screened, beside=fresh) | _gains(fresh)
    tests = {(name, batch): gain for name in fresh for batch, gain in gains[name]}
    family = saving_family(tests)
    listed = []
    for name, change in runs.items():
        saving = _saving(name, change, gains[name], family)
        if saving.facts is None or saving.facts.remedy or len(saving.members) > 1:
            listed.append(saving)
    return tuple(sorted(listed, key=_order))


def _collect_runs(outcomes: Iterable[Outcome]) -> dict[str, _Runs]:
    """The outcomes of each change of complete steps."""
    runs: dict[str, _Runs] = {}
    counted: set[tuple[int, str]] = set()
    for outcome in outcomes:
        name, experiment = outcome.factor, outcome.experiment
        # An experiment that tests several functionals has an outcome for each, from the same rows.
        if name is None or experiment.scope != Scope.STEP or (experiment.number, name) in counted:
            continue
        counted.add((experiment.number, name))
        change = runs.setdefault(name, _Runs())
        if not outcome.gains:
            change.untested.append(outcome)
        elif experiment.stage == Stage.SCREEN:
            change.screened.append(outcome)
        else:
            change.fresh.append(outcome)
    return runs


def _saving(
    name: str,
    change: _Runs,
    gains: tuple[tuple[int, Estimate], ...],
    family: Mapping[tuple[str, int], float],
) -> Saving:
    ran = change.fresh or change.screened
    last = (ran or change.untested)[-1]
    memory_bytes = _beyond(last.experiment.memory_bytes, name)
    proven = []
    for batch, gain in gains if change.fresh else ():
        if saves(gain, family[name, batch]):
            proven.append(batch)
    described = (outcome.facts for outcome in (*ran, *change.untested) if outcome.facts)
    changed = (outcome.changed_results for outcome in reversed(ran) if outcome.changed_results)
    pads = name == PADDED_BATCH
    return Saving(
        factor=name,
        facts=next(described, None),
        verdict=decide_saving([gain for _, gain in gains], proven),
        gains=gains,
        proven=tuple(proven),
        fresh=bool(change.fresh),
        beside_work=any(outcome.beside_work for outcome in ran),
        reason=None if ran else last.reason,
        changed_results=next(changed, None),
        setup_s=_beyond(last.experiment.setup_s, name),
        memory_bytes=None if memory_bytes is None else int(memory_bytes),
        multiple=choose_multiple(last.experiment.batches) if pads else None,
    )


def _beyond(measured: Mapping[str, float], name: str) -> float | None:
    """The cost of a factor beyond the unmodified steps; None if it is not known of both."""
    return measured[name] - measured[""] if name in measured and "" in measured else None


# Variance of a start of a screen, in those of fresh rounds: two rounds against at most six.
_SCREEN_VARIANCE = 3.0

_Logs = dict[str, dict[int, list[float]]]  # of T'/T, one for each start, by change and batch size


def _gains(
    ran: Mapping[str, Sequence[Outcome]], beside: Mapping[str, Sequence[Outcome]] | None = None
) -> dict[str, tuple[tuple[int, Estimate], ...]]:
    """The gain of each change by batch size, of all starts of processes in its experiments.

    Processes of the same steps differ, by where their memory lies: by 2 to 7 % of a step of 2 ms on
    two cores, and by 30 % where that decided on page faults. So a start counts as one value,
    however many rounds it has. How much starts differ is known from all changes of a batch size
    together. Where a screen has one start of each, it is known from the fresh rounds `beside` it.
    """
    logs, others = _logs_of(ran), _logs_of(beside or {})
    spreads = {batch: _spread(logs, others, batch) for batch in _batches_of(logs)}
    gains = {}
    for name, by_batch in logs.items():
        estimates = []
        for batch, spread in spreads.items():
            if batch in by_batch:
                starts = np.array(by_batch[batch])
                gain = share_estimate(starts, spread, alone=beside is not None)
                estimates.append((batch, gain))
        gains[name] = tuple(estimates)
    return gains


def _logs_of(ran: Mapping[str, Sequence[Outcome]]) -> _Logs:
    logs: _Logs = {name: {} for name in ran}
    for name, outcomes in ran.items():
        for outcome in outcomes:
            for start in outcome.ratios:
                for batch, log in zip(outcome.batches, start, strict=True):
                    logs[name].setdefault(batch, []).append(log)
    return logs


def _batches_of(logs: _Logs) -> list[int]:
    return sorted({batch for of_name in logs.values() for batch in of_name})


def _spread(logs: _Logs, others: _Logs, batch: int) -> tuple[float, float]:
    """Variance of starts at a batch size, and its degrees of freedom."""
    own = pool_variance(_starts_at(logs, batch))
    if own[1]:
        return own
    variance, freedom = pool_variance(_starts_at(others, batch))
    return _SCREEN_VARIANCE * variance, freedom


def _starts_at(logs: _Logs, batch: int) -> list[Floats]:
    """The starts of each change that ran at a batch size."""
    return [np.array(by_batch[batch]) for by_batch in logs.values() if batch in by_batch]


def _order(saving: Saving) -> tuple[int, int, float]:
    batch, share = saving.leading
    return saving.verdict.rank, -batch, -(share if batch else (saving.at_most or 0.0))
