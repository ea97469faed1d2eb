"""The next experiment worth its time, from the diagnosis and the experiments made so far.

Every anomaly is a target, in the order of the answers, and last the fixed cost. For each target:

1. Factors of complete steps that the recording's evidence suggests, e.g. memory that the process keeps where there are
   page faults: rounds of their own confirm or refute them, and give the gain. They come after the largest term if its
   own experiments can test the largest cause; before all else if the evidence speaks of a large part of the step. More
   rounds for undecided ones, and those with a long set-up, come last.
2. The terms that make most of it run *alone*. A term that shows its share alone is *screened*: a few rounds for every
   factor, first those of the causes that the evidence suggests; if it takes long, some factors now and the others
   last. What the screen suggests is *confirmed* on fresh rounds, and once more, on more rounds, if it stays undecided.
   What confirms a cause in one term is tried on fresh rounds at once in others with the same operators that the same
   cause may make. A finer *grid* shows where its curve bends.
3. What helped a term alone, and can be set for the complete step, is measured there as a *remedy*.
4. A target without a confirmed cause is screened on complete steps.

An experiment that does not fit the time is passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...profiling.measure.protocol import EXPERIMENT
from ...profiling.measure.visit import warm_up_ns
from ...profiling.recording.experiments import Experiment, Scope, Stage, experiments_of
from ...profiling.recording.store import Recording
from .. import causes
from ..causes.proof import about, decisive, reproduces
from ..decompose.functionals import FIXED_COST
from ..decompose.terms import KERNELS, Key, Share
from .outcome import LEVELLED, TOO_WIDE, Outcome, Reproduction, Verdict, subject

if TYPE_CHECKING:
    from ..decompose.anomalies import Diagnosis, Explanation

_MOST = 0.8  # share of a target that the tested terms make
_MOST_TERMS = 4
# Least share of a target that a cause claims, for its factors to come first; more for those with a long set-up.
_SUGGESTED = 0.03
_OUTBID = 0.2  # the same for a cause whose claims others outbid
_LARGE = 0.15  # share of a complete step that a cause claims, for its factors to come before all else
_HOPEFUL = 0.4  # least share that a factor takes away in a screen
_NEAR_BEST = 0.7  # least share that it takes away there, as a part of what the best factor does
_MOST_CONFIRMED = 4  # factors of one experiment on fresh rounds
_LEAST_SCREENED = 3  # factors of one screen of a term, however long it takes
_LONG_SCREEN = 3.0  # longest time for the fewest rounds of a screen of a term, as a factor on its usual time
_MOST_STEP_FACTORS = 3  # of one screen on complete steps, each in a process of its own
_ALSO_COSTS = 2.0  # longest pass of an experiment on a term that tests several targets, as a factor on that for one
_GRID_SIZES = 9
_HELPS = 0.02  # least gain on a term that is worth a measurement on the complete step
_HELPS_MUCH = 0.1  # least gain in a screen that is worth fresh rounds, whatever the factor takes away
_OPEN = 0.2  # share of an anomaly that terms not distinguished from 0 may make
_OPEN_VERDICT = (Verdict.UNDECIDED, TOO_WIDE)  # on a cause: more rounds may decide it
_LEAST_TERM = 0.05  # of an anomaly; a smaller term is not worth rounds

# Minimum and maximum number of rounds, and seconds for a limit of one minute for all experiments.
_ROUNDS = {
    (Stage.ALONE, Scope.TERM): ((8, 30), 3.0),
    (Stage.GRID, Scope.TERM): ((5, 15), 4.0),
    (Stage.SCREEN, Scope.TERM): ((4, 8), 6.0),
    (Stage.CONFIRM, Scope.TERM): ((10, 40), 6.0),
    (Stage.SCREEN, Scope.STEP): ((4, 8), 20.0),
    (Stage.CONFIRM, Scope.STEP): ((8, 25), 12.0),
    (Stage.REMEDY, Scope.STEP): ((6, 20), 15.0),
}
_USUAL_LIMIT_S = 60.0
# What one pass takes beyond the steps themselves: processes that start and build the step, calls that are rebuilt.
_RUNS_PER_VISIT = 2.5
_TERM_SETUP_S, _VISIT_S = 1.0, 0.01
_STEP_SETUP_S = {"cpu": 3.0, "cuda": 6.0}  # on CUDA with a context, cuDNN and a first step of each batch size
_SETUP_S = {"compiled": 40.0}  # of one factor, in place of the usual
_GPU_ONLY = frozenset({"cuda_graph", "cudnn_benchmark", "smaller_memory"})
# Factors of terms that only say why they do not apply, by kind of device.
_OF_OTHER_DEVICES = {
    "cpu": frozenset({"cudnn_benchmark", "no_cudnn", "cublaslt", "small_workspace", "deterministic"}),
    "cuda": frozenset({"onednn", "no_onednn", "no_nnpack", "one_thread"}),
}
# Order in which a screen of a term tries factors without evidence; the others follow.
_TERM_SCREEN = ("onednn", "other_layout", "one_thread", "reused_memory", "no_onednn", "channels_last", "split_batch")
# Whole-step factors that a screen tries without evidence, in this order, by kind of device.
_STEP_SCREEN = {
    "cpu": ("kept_memory", "one_thread", "no_onednn", "channels_last", "split_batch", "padded_batch", "compiled"),
    "cuda": ("cuda_graph", "cudnn_benchmark", "channels_last", "split_batch", "pauses", "padded_batch", "compiled"),
}


def next_experiment(recording: Recording, time_left_s: float, diagnosis: Diagnosis | None = None) -> Experiment | None:
    """The next experiment to run; None if nothing is left to test, or nothing of it fits the time.

    It looks at the entries and rows of earlier experiments: append the returned experiment to the entries of
    `recording.json`, run it, write its rows, open the recording anew and ask again.

    Args:
        recording: recording of a sweep, with the experiments made so far.
        time_left_s: seconds left for experiments.
        diagnosis: diagnosis of the recording; None to make it.
    """
    return next(_planner(recording, time_left_s, diagnosis).candidates(), None)


def waits_for_time(recording: Recording, diagnosis: Diagnosis | None = None) -> bool:
    """Whether a longer time limit would have allowed more experiments; the arguments are those of `next_experiment`."""
    return next(_planner(recording, np.inf, diagnosis).candidates(), None) is not None


def _planner(recording: Recording, time_left_s: float, diagnosis: Diagnosis | None) -> _Planner:
    from ..explaining import explain

    diagnosis = diagnosis or explain(recording)
    replayable: dict[tuple[str | None, str | None], set[str]] = defaultdict(set)
    for row in recording.arrow("operators", ["layer", "phase", "op"]).to_pylist():
        replayable[row["layer"], row["phase"]].add(row["op"])
    kind = (recording.meta.get("device") or {}).get("kind") or "cpu"
    return _Planner(diagnosis, experiments_of(recording.meta), dict(replayable), str(kind), time_left_s)


def open_terms(diagnosis: Diagnosis) -> tuple[Share, ...]:
    """The terms of the largest anomaly that are large enough to matter and cannot yet be distinguished from 0.

    Empty if there is no anomaly, or if such terms make less than a fifth of it.
    """
    if not diagnosis.explanations:
        return ()
    largest = diagnosis.explanations[0]
    unclear = {
        term.label
        for total in largest.attribution.causes
        if total.cause == causes.NOT_SIGNIFICANT
        for term in total.terms
        if abs(term.amount) >= _LEAST_TERM * abs(largest.value.value)
    }
    found = tuple(share for share in largest.shares if share.label in unclear)
    return found if sum(abs(share.value.value) for share in found) >= _OPEN * abs(largest.value.value) else ()


@dataclass(frozen=True)
class _Planner:
    """Proposes experiments in the order of their worth.

    Attributes:
        diagnosis: diagnosis of the recording.
        made: experiments made so far.
        replayable: names of the recorded operators, by layer and phase of their term.
        device: cpu or cuda.
        time_left_s: seconds left.
    """

    diagnosis: Diagnosis
    made: tuple[Experiment, ...]
    replayable: Mapping[tuple[str | None, str | None], Collection[str]]
    device: str
    time_left_s: float

    def candidates(self) -> Iterator[Experiment]:
        """Experiments that fit the time, the best first; later ones assume nothing of earlier ones."""
        for target, _ in self._targets:
            yield from self._of_evidence(target, least_of_step=_LARGE)
        for target, own in self._targets:
            of_terms = chain(self._of_terms(target, own[:1]), self._proven_elsewhere(target, own))
            first = [self._of_evidence(target), of_terms]
            yield from chain.from_iterable(first if self._waits_for_steps(target) else reversed(first))
        for target, own in self._targets:
            yield from self._remedies(target, own)
        for target, _ in self._targets:
            yield from self._steps_again(target)
        for target, own in self._targets:
            yield from self._of_terms(target, own[1:])
        for target, own in self._targets:
            for share in own:
                yield from self._grid(target, share)
        for target, own in self._targets:
            for share in own:
                if self._screens(target, share) and not _confirmed(self._about(target, share)):
                    yield from self._screen(target, share)
        for target, _ in self._targets:
            yield from self._of_evidence(target, costly=True)
        for target, own in self._targets:
            yield from self._of_context(target, own)

    @cached_property
    def _targets(self) -> list[tuple[Explanation, list[Share]]]:
        """Anomalies with the terms to test, in the order of the answers; then the fixed cost, which is usual."""
        fixed = self.diagnosis.fixed_cost
        found = [*self.diagnosis.explanations, *([fixed] if fixed is not None else [])]
        return [(one, self._terms(one)) for one in found if not one.attribution.noise]

    def _terms(self, target: Explanation) -> list[Share]:
        """The terms with kernels that make most of the target in its direction, the largest first.

        What complete steps have confirmed of a term is explained, and counts as made.
        """
        sign = np.sign(target.value.value)
        explained: dict[str, float] = defaultdict(float)
        for total in target.attribution.causes:
            if total.confirmed_on_steps:
                for term in total.terms:
                    explained[term.label] += sign * term.amount
        agreeing = [s for s in target.shares if s.key.kind == KERNELS and s.value.value * sign > 0]
        left = {share.label: max(sign * share.value.value - explained[share.label], 0.0) for share in agreeing}
        agreeing.sort(key=lambda share: (-left[share.label], share.label))
        missing = (1.0 - _MOST) * sum(abs(share.value.value) for share in agreeing)
        found: list[Share] = []
        for share in agreeing[:_MOST_TERMS]:
            if sum(left.values()) <= missing:
                break
            del left[share.label]
            found.append(share)
        return [share for share in found if (share.key.layer, share.key.phase) in self.replayable]

    def _waits_for_steps(self, target: Explanation) -> bool:
        """Whether complete steps can test the largest cause of a target by a factor that no term alone has."""
        amounts = _amounts(target)
        return _is_of_steps(max(amounts, key=lambda cause: abs(amounts[cause]), default=causes.UNEXPLAINED))

    def _of_evidence(
        self, target: Explanation, *, costly: bool = False, least_of_step: float = 0.0
    ) -> Iterator[Experiment]:
        """Complete steps with the factors that the recording suggests and no term can be tested with alone.

        Args:
            target: the anomaly.
            costly: whether factors with a long set-up are wanted, or the others.
            least_of_step: least share of the step, at the last batch size, that the cause of a factor claims.
        """
        of_step = target.value.value / self.diagnosis.curve.at(target.functional.last).time_ms.value
        names: dict[str, float] = {}
        amounts = _amounts(target)
        for cause, one in causes.interventions().items():
            # A cause that others outbid in every term may still be the right one: only an experiment tells.
            share = amounts.get(cause, 0.0) / target.value.value
            outbid = causes.claimed(target.weighed, cause, target.value.value) / target.value.value
            for name in one.step:
                wanted = max(share / _SUGGESTED, outbid / _OUTBID) >= max(1.0, self._setup_s(name) / self._start_s)
                wanted = wanted and max(share, 0.0) * abs(of_step) >= least_of_step
                if name not in one.term and wanted and (name in _SETUP_S) == costly:
                    names[name] = max(share, outbid)
        yield from self._of_step(target, Stage.CONFIRM, sorted(names, key=lambda name: -names[name]))

    def _of_step(self, target: Explanation, stage: str, names: Iterable[str]) -> Iterator[Experiment]:
        """Complete steps with the factors not yet tried so."""
        one = self._experiment(target, None, stage)
        tried = {name for earlier in self._like(one, (stage,)) for name in earlier.factors}
        new = [name for name in dict.fromkeys(names) if name not in tried]
        applicable = [name for name in new if self._setup_s(name)][:_MOST_STEP_FACTORS]
        if applicable:
            others = [name for name in new if not self._setup_s(name)]  # which say why they do not apply
            yield from self._fitting(replace(one, factors=(*applicable, *others)))

    def _steps_again(self, target: Explanation) -> Iterator[Experiment]:
        """More rounds, once, of complete steps with the factors that stayed undecided."""
        one = self._experiment(target, None, Stage.CONFIRM)
        if before := self._like(one, (Stage.CONFIRM,)):
            verdicts: dict[str, set[tuple[str, str | None]]] = defaultdict(set)
            for total in target.attribution.causes:
                verdicts[total.cause].add((total.verdict, total.reason))
            of_factor = {name: verdicts[cause] for name, cause in causes.factors(Scope.STEP).items()}
            decided = {name for name, found in of_factor.items() if {one for one, _ in found} == {Verdict.CONFIRMED}}
            # A cause that claims a part of the step is judged by what it claims, not by all of the anomaly.
            open_ = {name for name, found in of_factor.items() if _OPEN_VERDICT in found}
            outcomes = self._about(target, None)
            yield from self._again(one, before, outcomes, decided, open_)

    def _of_terms(self, target: Explanation, terms: Sequence[Share]) -> Iterator[Experiment]:
        for share in terms:
            yield from self._of_term(target, share)

    def _proven_elsewhere(self, target: Explanation, terms: Sequence[Share]) -> Iterator[Experiment]:
        """Fresh rounds at once for terms that did not run yet, with what confirmed the same cause in one like it.

        A factor changes operators, so the other term must run one of the same.
        """
        for share in terms:
            if self._about(target, share):
                continue
            claiming = self._claiming(target, share)
            owner = causes.factors(Scope.TERM, claiming)
            operators = set(self.replayable[share.key.layer, share.key.phase])
            names = {
                one.factor: None
                for one in self.diagnosis.outcomes
                if one.experiment.scope == Scope.TERM and one.factor and owner.get(one.factor) in claiming
                if one.verdict == Verdict.CONFIRMED and one.factor not in self._known_of_steps
                if not operators.isdisjoint(self.replayable.get((one.experiment.layer, one.experiment.phase), ()))
            }
            if names:
                yield from self._fitting(
                    replace(self._experiment(target, share, Stage.CONFIRM), factors=_most_hopeful(tuple(names)))
                )

    def _of_term(self, target: Explanation, share: Share) -> Iterator[Experiment]:
        """The next stage of one term."""
        outcomes = self._about(target, share)
        alone = self._experiment(target, share, Stage.ALONE)
        tries = len(self._like(alone, (Stage.ALONE, Stage.CONFIRM)))
        shown = reproduces(outcomes, share)
        if tries == 0 or (shown == Reproduction.UNDECIDED and tries == 1):
            yield from self._fitting(with_more_rounds(alone) if tries else alone)
        if not _shows(shown):
            return
        if not self._screens(target, share):
            if not _confirmed(outcomes):
                yield from self._screen(target, share)
            return
        confirm = self._experiment(target, share, Stage.CONFIRM)
        before = self._like(confirm, (Stage.CONFIRM,))
        own, others = self._hopeful(outcomes), self._hopeful_elsewhere(target, share)
        if not own and before:
            yield from self._again(confirm, before, outcomes)
        if own or others:
            yield from self._fitting(replace(confirm, factors=_most_hopeful(own, others)))

    def _grid(self, target: Explanation, share: Share) -> Iterator[Experiment]:
        """More batch sizes around the bend of a term that was screened."""
        grid = self._experiment(target, share, Stage.GRID)
        if grid.functional_kind == FIXED_COST or self._like(grid, (Stage.GRID,)) or not self._screens(target, share):
            return
        sizes = _between(grid.batches)
        if len(sizes) > len(grid.batches) and len(sizes) > 3 and _shows(reproduces(self._about(target, share), share)):
            yield from self._fitting(replace(grid, batches=sizes))

    def _about(self, target: Explanation, share: Share | None) -> list[Outcome]:
        return about(self.diagnosis.outcomes, target.functional, share)

    def _claiming(self, target: Explanation, share: Share) -> list[str]:
        """Causes that explain some of a term, the largest total first."""
        return [total.cause for total in target.attribution.causes for one in total.terms if one.label == share.label]

    def _hopeful(self, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
        return tuple(name for name in hopeful(outcomes) if name not in self._known_of_steps)

    @cached_property
    def _known_of_steps(self) -> frozenset[str]:
        """The factors of terms for causes that complete steps test, and have confirmed: a term would say it again."""
        totals = (total for target, _ in self._targets for total in target.attribution.causes)
        known = {one.cause for one in totals if one.confirmed_on_steps}
        return frozenset(
            name for name, cause in causes.factors(Scope.TERM).items() if cause in known and _is_of_steps(cause)
        )

    def _screens(self, target: Explanation, share: Share) -> list[Experiment]:
        return self._like(self._experiment(target, share, Stage.SCREEN), (Stage.SCREEN,))

    def _screen(self, target: Explanation, share: Share) -> Iterator[Experiment]:
        """A screen of a term with as many of the factors not yet tried as it has time for."""
        one = self._experiment(target, share, Stage.SCREEN)
        known = {
            name for earlier in self._like(one, (Stage.SCREEN,)) for name in earlier.factors
        } | self._known_of_steps
        names = tuple(name for name in self._ordered(target, share) if name not in known)
        most_s = _LONG_SCREEN * self._usual_s(one)
        while len(names) > _LEAST_SCREENED and self._shortest_s(replace(one, factors=names)) > most_s:
            names = names[:-1]
        if names:
            yield from self._fitting(replace(one, factors=names))

    def _hopeful_elsewhere(self, target: Explanation, share: Share) -> tuple[str, ...]:
        """What screens of a term suggest for the other targets that the term makes, alone too.

        Where a screen does not tell their values from 0, a share of them means nothing.
        """
        found: list[str] = []
        for one, own in self._targets:
            of_term = next((s for s in own if s.key == share.key), None)
            if one is target or of_term is None:
                continue
            outcomes = self._about(one, of_term)
            if _shows(reproduces(outcomes, of_term)):
                found += self._hopeful([o for o in outcomes if o.taken is None or np.isfinite(o.taken.low)])
        return tuple(found)

    def _again(
        self,
        one: Experiment,
        before: Sequence[Experiment],
        outcomes: Sequence[Outcome],
        decided: Container[str] = (),
        open_: Container[str] = (),
    ) -> Iterator[Experiment]:
        """More rounds, once, for factors whose cause is open, and for undecided ones unless another is confirmed."""
        known = decisive(outcomes)
        of_first = [known[name] for name in before[0].factors if name in known] if len(before) == 1 else []
        confirmed = _confirmed(of_first)
        undecided = [o.factor for o in of_first if o.factor in open_ or (o.reason == TOO_WIDE and not confirmed)]
        if names := tuple(name for name in undecided if name and name not in decided):
            yield from self._fitting(with_more_rounds(replace(one, factors=names)))

    def _ordered(self, target: Explanation, share: Share) -> list[str]:
        """The factors of terms: first those of causes that claim some of the term, last those of other devices."""
        claiming = self._claiming(target, share)
        owner = causes.factors(Scope.TERM, claiming)
        idle = _OF_OTHER_DEVICES.get(self.device, frozenset())
        ranks = {cause: claiming.index(cause) for cause in claiming}
        usual = {name: rank for rank, name in enumerate(_TERM_SCREEN)}
        last = len(claiming), len(usual)
        return sorted(owner, key=lambda n: (n in idle, ranks.get(owner[n], last[0]), usual.get(n, last[1])))

    def _of_context(self, target: Explanation, terms: Sequence[Share]) -> Iterator[Experiment]:
        """Complete steps for a target of which no cause is confirmed: the rest of the step may make it."""
        if _confirmed(target.attribution.causes):
            return
        if any(reproduces(self._about(target, s), s) == Reproduction.REPRODUCES for s in terms[:1]):
            return
        tried = {
            name
            for one in self.made
            if one.scope == Scope.STEP and one.functional == target.functional.weights
            for name in one.factors
        }
        screened = self._like(self._experiment(target, None, Stage.SCREEN), (Stage.SCREEN,))
        if not screened:
            yield from self._of_step(
                target, Stage.SCREEN, [n for n in _STEP_SCREEN.get(self.device, ()) if n not in tried]
            )
        else:
            yield from self._of_step(target, Stage.CONFIRM, hopeful(self._about(target, None)))

    def _remedies(self, target: Explanation, terms: Sequence[Share]) -> Iterator[Experiment]:
        """Complete steps with what made a term faster alone."""
        one = self._experiment(target, None, Stage.REMEDY)
        tried = {name for e in self.made if e.scope == Scope.STEP and e.stage != Stage.SCREEN for name in e.factors}
        names: dict[str, float] = {}
        for share in terms:
            for name, outcome in decisive(self._about(target, share)).items():
                gain = outcome.gain
                fresh = outcome.experiment.stage == Stage.CONFIRM
                if fresh and gain and gain.low > 0 and gain.value >= _HELPS and name in causes.factors(Scope.STEP):
                    names[name] = max(names.get(name, 0.0), gain.value)
        new = [name for name in sorted(names, key=lambda name: (-names[name], name)) if name not in tried]
        if new:
            largest = int(self.diagnosis.curve.conditions[-1])
            batches = tuple(sorted({*one.batches, largest}))
            yield from self._fitting(replace(one, factors=tuple(new[:_MOST_STEP_FACTORS]), batches=batches))

    def _experiment(self, target: Explanation, share: Share | None, stage: str) -> Experiment:
        """An experiment without factors, with the usual rounds.

        On a term it tests all targets that the term makes and that do not make it much longer, on complete steps all
        that need no further batch sizes.
        """
        scope = Scope.STEP if share is None else Scope.TERM
        batches = set(target.functional.conditions)
        most_ms = 0.0 if share is None else _ALSO_COSTS * self._pass_ms(share.key, batches)
        also: list[Explanation] = []
        for one, terms in self._targets:
            wider = batches | set(one.functional.conditions)
            if share is None:
                fits = wider == batches
            else:
                made = stage != Stage.GRID and any(term.key == share.key for term in terms)
                fits = made and self._pass_ms(share.key, wider) <= most_ms
            if one is not target and fits:
                also.append(one)
                batches = wider
        return Experiment(
            max((one.number for one in self.made), default=-1) + 1,
            stage,
            scope,
            target.functional.weights,
            target.functional.kind,
            tuple(sorted(map(int, batches))),
            layer=share.key.layer if share else None,
            phase=share.key.phase if share else None,
            also=tuple((one.functional.kind, one.functional.weights) for one in also),
            rounds=rounds_of(stage, scope),
        )

    def _like(self, one: Experiment, stages: Sequence[str]) -> list[Experiment]:
        """Earlier experiments on the same subject in these stages; one that was interrupted may be made once more."""
        same = [
            e for e in self.made if e.stage in stages and any(subject(e1) == subject(one) for e1 in e.by_functional())
        ]
        unfinished = [e for e in same if not e.done]
        return same if len(unfinished) > 1 else [e for e in same if e.done]

    def _fitting(self, one: Experiment) -> Iterator[Experiment]:
        """The experiment with its time limit, if it fits the time; if need be with fewer rounds, targets or factors."""
        usual_s = self._usual_s(one) * (1 + len(one.also) / 2)
        while True:
            for least in (one.rounds[0], max(one.rounds[0] // 2, 4)):
                setup_s, round_s = self._times_s(one)
                needed_s = setup_s + least * round_s
                if needed_s <= self.time_left_s:
                    limit_s = min(self.time_left_s, max(needed_s, setup_s + usual_s))
                    deadline_s = None if np.isinf(self.time_left_s) else round(self.time_left_s, 1)
                    rounds = (least, one.rounds[1])
                    yield replace(one, rounds=rounds, time_limit_s=round(limit_s, 1), deadline_s=deadline_s)
                    return
            if one.also:
                one = next(one.by_functional())
                continue
            if len(one.factors) < 2:
                return
            in_steps = one.scope == Scope.STEP
            costly = max(one.factors, key=lambda name: (in_steps and self._setup_s(name), one.factors.index(name)))
            one = replace(one, factors=tuple(name for name in one.factors if name != costly))
            if in_steps and not any(map(self._setup_s, one.factors)):
                return  # none of the rest applies to the device

    def _shortest_s(self, one: Experiment) -> float:
        setup_s, round_s = self._times_s(one)
        return setup_s + one.rounds[0] * round_s

    def _usual_s(self, one: Experiment) -> float:
        return _ROUNDS[one.stage, one.scope][1] * max(1.0, self.time_left_s / _USUAL_LIMIT_S)

    def _times_s(self, one: Experiment) -> tuple[float, float]:
        """Expected seconds before the first round, and of one round."""
        variants = 1 + len(one.factors)
        if one.scope == Scope.STEP:
            setup_s = self._start_s + sum(map(self._setup_s, one.factors))
            variants -= sum(self._setup_s(name) == 0 for name in one.factors)
            pass_ms = self._times_ms(None, one.batches)
        else:
            setup_s = _TERM_SETUP_S
            variants -= len(_OF_OTHER_DEVICES.get(self.device, frozenset()) & set(one.factors))
            pass_ms = self._times_ms(Key(one.layer, one.phase, KERNELS), one.batches)
        runs_ms = _RUNS_PER_VISIT * pass_ms
        if one.scope == Scope.STEP and self.device != "cpu":  # each visit brings the GPU to its clocks
            steps = [EXPERIMENT.steps_of_visit(1, round(time_ms * 1e6)) for time_ms in pass_ms]
            runs_ms = np.maximum(pass_ms, warm_up_ns(self.device) / 1e6) + steps * pass_ms
        return setup_s, variants * (float(runs_ms.sum()) / 1e3 + len(one.batches) * _VISIT_S)

    @property
    def _start_s(self) -> float:
        """Expected seconds until the complete step runs in a process of its own."""
        return _STEP_SETUP_S.get(self.device, _STEP_SETUP_S["cpu"])

    def _setup_s(self, factor: str) -> float:
        """Expected seconds until the complete step runs with a factor; 0 if it does not apply to the device."""
        if self.device == "cpu" and factor in _GPU_ONLY:
            return 0.0
        return _SETUP_S.get(factor, self._start_s)

    def _pass_ms(self, key: Key | None, batches: Iterable[float]) -> float:
        """Time of a term, or of the step without a key, summed over some batch sizes; 0 if it is not known."""
        return float(self._times_ms(key, batches).sum())

    def _times_ms(self, key: Key | None, batches: Iterable[float]) -> npt.NDArray[np.float64]:
        """Time of a term, or of the step without a key, by batch size, shape (batch sizes,); 0 if it is not known."""
        at = sorted(map(float, batches))
        curve, terms = self.diagnosis.curve, self.diagnosis.terms
        if key is None:
            sizes, times = curve.conditions, np.array([point.time_ms.value for point in curve.points])
        elif terms is None or key not in terms.keys:
            return np.zeros(len(at))
        else:
            sizes, times = terms.conditions, terms.values_ms[:, terms.keys.index(key)]
        found: npt.NDArray[np.float64] = np.interp(at, [float(size) for size in sizes], times)
        return found


def rounds_of(stage: str, scope: str) -> tuple[int, int]:
    """Minimum and maximum number of rounds of an experiment."""
    return _ROUNDS[stage, scope][0]


def with_more_rounds(one: Experiment) -> Experiment:
    """The experiment with twice as many rounds, for factors that stayed undecided."""
    return replace(one, rounds=(2 * one.rounds[0], 2 * one.rounds[1]))


def hopeful(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The factors that a screen suggests and that have not run on fresh rounds.

    First those that may take the anomaly away, the best first, unless one is confirmed; without those that take away
    much less than the best one, which come if that one fails. Then those that make the term much faster.
    """
    fresh = {one.factor for one in outcomes if one.experiment.stage == Stage.CONFIRM}
    # Splitting takes most anomalies away: it rules no other factor out.
    telling = {name for name, cause in causes.factors(Scope.TERM).items() if cause not in causes.LAST_OF_CONFIRMED}
    proven = _confirmed(one for one in outcomes if one.factor in telling)
    suspected, helping = {}, {}
    for one in outcomes:
        if one.experiment.stage != Stage.SCREEN or one.factor is None or one.factor in fresh or one.taken is None:
            continue
        if one.taken.value >= _HOPEFUL and one.verdict != Verdict.REFUTED and one.reason != LEVELLED and not proven:
            suspected[one.factor] = min(one.taken.value, 1.0)
        gain = one.gain
        if gain and gain.low > 0 and gain.value >= _HELPS_MUCH and one.facts is not None and one.facts.remedy:
            helping[one.factor] = gain.value
    best = max((worth for name, worth in suspected.items() if name in telling), default=0.0)
    likely = {name: worth for name, worth in suspected.items() if worth >= _NEAR_BEST * best}
    first, then = (sorted(found, key=lambda name: (-found[name], name)) for found in (likely, helping))
    return _most_hopeful(first, then)


def _amounts(target: Explanation) -> dict[str, float]:
    """The amount of each cause of an anomaly, confirmed or not."""
    amounts: dict[str, float] = defaultdict(float)
    for total in target.attribution.causes:
        amounts[total.cause] += total.amount
    return amounts


def _confirmed(judged: Iterable[Outcome | causes.CauseTotal]) -> bool:
    return any(one.verdict == Verdict.CONFIRMED for one in judged)


def _shows(shown: str | None) -> bool:
    """Whether a term alone shows its share of an anomaly, at least partly."""
    return shown in (Reproduction.REPRODUCES, Reproduction.PARTLY)


def _is_of_steps(cause: str) -> bool:
    """Whether complete steps can test a cause by a factor that no term alone has."""
    one = causes.interventions().get(cause)
    return one is not None and not set(one.step) <= set(one.term)


def _most_hopeful(*names: Sequence[str]) -> tuple[str, ...]:
    """The first of some lists of factors, as many as one experiment on fresh rounds takes."""
    return tuple(dict.fromkeys(chain.from_iterable(names)))[:_MOST_CONFIRMED]


def _between(batches: Sequence[int]) -> tuple[int, ...]:
    """Whole batch sizes from the smallest to the largest, evenly spread, with those of the functional."""
    even = np.linspace(batches[0], batches[-1], _GRID_SIZES).round().astype(int)
    return tuple(sorted({*batches, *map(int, even)}))
