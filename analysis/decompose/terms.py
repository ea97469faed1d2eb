"""The terms of T: time of kernels and idle time by layer and phase, profiling overhead and slow
steps, at every condition.

A condition is a property by which steps differ: a batch size, a number of devices with a batch
size, a run, a rank. At each, T = Σ terms + profiling overhead + slow steps, and so for every
functional of T, to the last digit. The pace of the unprofiled steps is Σ terms + profiling
overhead; the slow steps are what T has beyond the pace. The terms are means of steps whose parts
are known, over those that the pace takes.

A replicate takes all steps of the rounds it draws: with means, resampling the steps inside as well
would count their noise twice (Davison and Hinkley, Bootstrap Methods and their Application, 1997,
section 3.8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from ...profiling.recording.disturbed import select_used_steps
from ...profiling.recording.schema import INPUT
from .averaged_steps import Samples, durations_ms, fastest_first, weights_of
from .curve import (
    MODELLED,
    Curve,
    Point,
    are_in_rounds,
    coefficients,
    list_focused_rounds,
    list_shared_rounds,
    native,
)
from .functionals import Condition, Functional
from .statistics import (
    ALL_STEPS,
    FASTER_HALF,
    LEVEL,
    RELATIVE_ROUNDING,
    REPLICATES,
    Estimate,
    Floats,
    counts_of,
    effective_rounds,
    estimate,
    group_equal,
    holm,
    moderate,
    round_counts,
    spread_of,
    time_estimate,
)

KERNELS = "kernels"
# of GPUs or processes with each other: its layer is that of the hook that started it
COMMUNICATION = "communication"
IDLE = "idle"
# time in which no kernel was seen, of steps whose work nobody records, see `marked`
NOT_RECORDED = "not recorded"
OVERHEAD = "profiling overhead"
SLOW_STEPS = "slow steps"  # what T has beyond the pace
OF_ALL_STEPS = "of_all_steps"  # column of exclusive times, see `marked.with_averaged`
OUTSIDE, OPTIMIZER = "outside layers", "optimizer"  # labels of work that belongs to no layer
# Remedy for a recording without any device work.
RECORD_DEVICE = (
    "If the device did work, record again with its activity, e.g. with "
    "`nsys profile --trace=cuda,nvtx`; under WSL 2 it may be invisible."
)
_SEED = 2


@dataclass(frozen=True)
class Key:
    """Identity of a term."""

    layer: str | None  # module path; None for work outside layers
    phase: str | None  # forward, backward or optimizer; None without a phase
    kind: str  # kernels, communication, idle, or a kind of waiting between ranks

    @classmethod
    def of(cls, layer: Any, phase: Any, kind: Any) -> Key:
        """The key of values of a table; NaN and NA become None."""
        layer = None if pd.isna(layer) else str(layer)
        phase = None if pd.isna(phase) else str(phase)
        return cls(layer, phase, str(kind))

    @property
    def label(self) -> str:
        """Layer and phase of kernels, also of idle time that has a place; else the kind."""
        return self.label_with()

    def label_with(self, layer_class: str | None = None) -> str:
        """The label with the class of the layer, e.g. `2 (Conv2d) forward`."""
        work = work_label(self.layer, self.phase, layer_class)
        if self.kind == IDLE and (self.layer, self.phase) == (None, INPUT):
            return INPUT
        if self.kind in (IDLE, NOT_RECORDED) and (self.layer, self.phase) != (None, None):
            return f"{self.kind} in {work}"
        return work if self.kind == KERNELS else self.kind


def join_phases(key: Key) -> Key:
    """The key of a layer, all its phases together; work outside layers stays apart by phase."""
    return key if key.layer is None else replace(key, phase=None)


_OVERHEAD_KEY, _SLOW_KEY = Key(None, None, OVERHEAD), Key(None, None, SLOW_STEPS)


def _sum_of(curve: Curve, functional: Functional, weights: Floats) -> tuple[float, Floats]:
    """A weighted sum of the times of a curve, and of its replicates, ms."""
    times = np.array([point.time_ms.value for point in curve.points_of(functional)])
    return math.fsum(weights * times), curve.replicates_ms @ weights


def work_label(layer: str | None, phase: str | None, layer_class: str | None = None) -> str:
    """Layer and phase of work, e.g. `conv1 forward`; outside layers e.g. `optimizer` or
    `forward outside layers`.
    """
    if layer is not None:
        return " ".join(filter(None, (layer_label(layer, layer_class), phase)))
    if phase == OPTIMIZER:
        return OPTIMIZER
    return f"{phase or 'work'} {OUTSIDE}"


def is_outside(label: str) -> bool:
    """Whether a label of `work_label` names work outside layers."""
    return label == OPTIMIZER or label.endswith(OUTSIDE)


def layer_label(layer: str, layer_class: str | None) -> str:
    """A layer's path, and its class if that is known."""
    if layer_class:
        return f"{layer} ({layer_class})"
    return layer


@dataclass(frozen=True)
class TermWork:
    """The part of a term's contribution that is more work per sample, see `causes.work`."""

    # the part, in the functional's unit; the rest of the contribution is the same work done more
    # slowly. None if no work is known.
    value: Estimate | None
    known_ms: float  # time at the larger batch size whose work is known
    time_ms: float  # all of the term's time there


@dataclass(frozen=True)
class Share:
    """Contribution of a term to a functional."""

    key: Key  # the term
    value: Estimate  # the contribution with its interval, in the functional's unit
    real: bool = False  # whether it is significant, tested over all shares of the functional (Holm)
    # kernel with the most time in the term at the condition that the functional is taken at; None
    # if unknown
    kernel_before: str | None = None
    kernel_after: str | None = None  # kernel with the most time at the condition compared with it
    layer_class: str | None = None  # class of the layer, e.g. Conv2d; None if unknown.
    # line of the program with most of its time at the largest batch size, e.g. `model.py:41`; None
    # if unknown.
    line: str | None = None
    # the part that is more work per sample; None if the term has no kernels
    work: TermWork | None = None
    label: str = field(init=False)  # name of the term

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.key.label_with(self.layer_class))

    @property
    def layer(self) -> str:
        """Name of the layer alone; of work outside layers its label."""
        return join_phases(self.key).label_with(self.layer_class)


def test_family(shares: Iterable[Share]) -> list[Share]:
    """Test the shares as one family (Holm)."""
    listed = list(shares)
    adjusted = holm([share.value.p for share in listed])
    tested = []
    for share, p in zip(listed, adjusted, strict=True):
        tested.append(replace(share, real=p < LEVEL))
    return tested


def total_ms(shares: Iterable[Share]) -> float:
    """Sum of the shares' values."""
    return math.fsum(share.value.value for share in shares)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms at every condition."""

    keys: tuple[Key, ...]  # keys of the terms, without profiling overhead
    conditions: tuple[Condition, ...]  # conditions with a profiled step, increasing
    values_ms: Floats  # times, shape (conditions, terms)
    replicates_ms: Floats  # bootstrap replicates, shape (replicates, conditions, terms)
    # numbers of steps whose parts are known, and of those that are averaged, by condition
    profiled: Mapping[Condition, tuple[int, int]]
    rounds: Mapping[Condition, int]  # number of rounds of the averaged steps, by condition
    shared: tuple[int, ...] = ()  # rounds that the replicates draw from
    # whether they are means of slow steps too, so that no term of these is left
    of_all_steps: bool = False
    # terms over some of the conditions, each from more rounds than these; see `Curve.focused`
    focused: tuple[Terms, ...] = ()

    def time_ms(self, key: Key | None, condition: Condition) -> float | None:
        """Time of a term at a condition; None where no step of it was profiled, or without such a
        term.
        """
        if key not in self.keys or condition not in self.conditions:
            return None
        return float(self.values_ms[self.conditions.index(condition), self.keys.index(key)])

    def covers(self, functional: Functional) -> bool:
        """Whether every condition of a functional has a profiled step, so that it can be split."""
        return set(functional.conditions) <= set(self.behind(functional).conditions)

    def behind(self, functional: Functional) -> Terms:
        """The terms that a functional is split into: these, or focused ones from more rounds."""
        conditions = set(functional.conditions)
        able = [terms for terms in self.focused if conditions <= set(terms.conditions)]
        return max(able, key=lambda terms: len(terms.shared), default=self)

    def decompose(self, functional: Functional, curve: Curve | None = None) -> list[Share]:
        """Split the functional of T; the values of the shares add up to it.

        There is a share per term, then the profiling overhead and the slow steps, if steps ran
        unprofiled; all are tested as one family. Without a curve of the same recording T is the sum
        of the terms.
        """
        terms = self.behind(functional)
        if terms is not self:
            return terms.decompose(functional, curve and curve.behind(functional))
        weights = coefficients(functional, self.conditions)
        scale = self._scale(weights)
        shares = []
        for i, key in enumerate(self.keys):
            shares.append(Share(key, self._estimate(functional, weights, i, scale)))
        if curve is None or curve.profiled or curve.statistic == MODELLED:
            return test_family(shares)
        rounds = min(self._rounds(functional), curve.rounds_behind(functional))
        timed = coefficients(functional, curve.conditions)
        pace_ms, paces = _sum_of(curve if self.of_all_steps else curve.paces, functional, timed)
        value = math.fsum([pace_ms, *-(weights @ self.values_ms)])
        rounding = RELATIVE_ROUNDING * scale
        if abs(value) > rounding:  # else the pace is of the very steps of the terms
            drawn = paces - np.einsum("b,rbt->r", weights, self.replicates_ms)
            overhead = estimate(value, drawn, rounds, scale)
            shares.append(Share(_OVERHEAD_KEY, overhead))
        time_ms, times = _sum_of(curve, functional, timed)
        if curve.pace is not None and abs(time_ms - pace_ms) > rounding:
            slow = estimate(time_ms - pace_ms, times - paces, rounds, scale, of_mean=True)
            shares.append(Share(_SLOW_KEY, slow))
        return test_family(shares)

    def sum(self, functional: Functional, wanted: Callable[[Key], bool] | None = None) -> Estimate:
        """Sum of the contributions of some terms, by default all, to a functional."""
        terms = self.behind(functional)
        if terms is not self:
            return terms.sum(functional, wanted)
        weights = coefficients(functional, self.conditions)
        chosen = np.array([wanted is None or wanted(key) for key in self.keys], bool)
        values = weights @ self.values_ms
        replicates = np.einsum("b,rbt->r", weights, self.replicates_ms[:, :, chosen])
        rounds = self._rounds(functional)
        scale = self._scale(weights)
        return estimate(float(values[chosen].sum()), replicates, rounds, scale)

    def sum_weighted(
        self, functional: Functional, key: Key, weights: Mapping[Condition, float]
    ) -> Estimate:
        """A sum of the times of one term, with weights by condition and the rounds of the
        functional.
        """
        terms = self.behind(functional)
        if terms is not self:
            return terms.sum_weighted(functional, key, weights)
        listed = np.array([weights.get(condition, 0.0) for condition in self.conditions])
        scale = self._scale(coefficients(functional, self.conditions))
        return self._estimate(functional, listed, self.keys.index(key), scale)

    def moderate(self, functional: Functional, unseen: float = 0.0) -> list[Estimate]:
        """The contribution of each term, with an interval that allows for the usual spread of all
        terms, see `statistics.moderate`, and for an unseen one of each time.
        """
        terms = self.behind(functional)
        if terms is not self:
            return terms.moderate(functional, unseen)
        weights = coefficients(functional, self.conditions)
        scale = self._scale(weights)
        estimates, rounds, sizes = [], [], []
        for column, values in enumerate(self.values_ms.T):
            estimates.append(self._estimate(functional, weights, column, scale))
            rounds.append(self._rounds(functional, values))
            sizes.append(float(np.linalg.norm(weights * values)))
        return moderate(estimates, rounds, sizes, unseen)

    def group_by(self, group: Callable[[Key], Key]) -> Terms:
        """Add up the terms by another key, a function of the present one."""
        keys, member = group_equal([group(key) for key in self.keys])
        replicates_ms = np.tensordot(member, self.replicates_ms, (0, 2))
        focused = [terms.group_by(group) for terms in self.focused]
        return replace(
            self,
            keys=tuple(keys),
            values_ms=self.values_ms @ member,
            replicates_ms=np.moveaxis(replicates_ms, 0, 2),
            focused=tuple(focused),
        )

    def curve(self, steps: pd.DataFrame, by: str = "batch") -> Curve:
        """Curve of the profiled steps, for recordings without unprofiled ones; T is the exact sum
        of the terms.
        """
        replicates = self.replicates_ms.sum(axis=2)
        paid, points = select_used_steps(steps), []
        for i, condition in enumerate(self.conditions):
            time_ms = float(self.values_ms.sum(axis=1)[i])
            times_ms = durations_ms(paid[paid[by] == condition])
            time = time_estimate(time_ms, replicates[:, i], self.rounds[condition])
            spread = spread_of(times_ms, time_ms)
            points.append(Point(condition, time, spread, len(times_ms), len(times_ms)))
        return Curve(
            points=tuple(points),
            replicates_ms=replicates,
            rounds=min(self.rounds.values()),
            statistic=ALL_STEPS,
            profiled=True,
        )

    def _scale(self, weights: Floats) -> float:
        """The largest contribution of a term at a condition, against which rounding is judged."""
        contributions = np.abs(weights[:, None] * self.values_ms)
        return float(contributions.max(initial=0.0))

    def _estimate(
        self, functional: Functional, weights: Floats, term: int, scale: float
    ) -> Estimate:
        values = self.values_ms[:, term]
        replicates = self.replicates_ms[:, :, term] @ weights
        rounds = self._rounds(functional, values)
        return estimate(float(weights @ values), replicates, rounds, scale)

    def _rounds(self, functional: Functional, values: Floats | None = None) -> float:
        """Effective number of rounds behind a functional of one term; without values, the fewest of
        any condition.
        """
        weights = coefficients(functional, self.conditions)
        counted = np.flatnonzero(weights)
        rounds = [self.rounds[self.conditions[index]] for index in counted]
        if values is None:
            return effective_rounds(rounds, np.zeros(len(counted)))
        sizes = weights * values
        return effective_rounds(rounds, sizes[counted])


def estimate_terms(
    kernel_times: pd.DataFrame,
    steps: pd.DataFrame,
    by: str = "batch",
    statistic: str = FASTER_HALF,
    sampled: tuple[Sequence[Key], Mapping[Condition, Samples]] | None = None,
) -> Terms:
    """Terms by layer and phase.

    `kernel_times` is its result, or a table whose column `kind` has further kinds. The unprofiled
    ones of the `steps`, set aside or not, say which rounds visited which conditions. Without any,
    or with the column `of_all_steps`, terms are means of all profiled steps. `sampled` has the keys
    and samples of marked steps, see `marked.Marked.settle`; the profiled steps are the default.
    """
    timed = steps[~steps["profiled"].astype(bool)]
    takes_all = timed.empty or (OF_ALL_STEPS in kernel_times and kernel_times[OF_ALL_STEPS].any())
    taken = None if takes_all else statistic
    keys, samples = sampled or _take_samples(kernel_times, steps, by)
    shared = list_shared_rounds(steps if timed.empty else timed, by)
    focused = []
    for conditions, rounds in list_focused_rounds(timed, by):
        of_focus = _in_rounds(samples, conditions, rounds)
        if len(of_focus) == len(conditions):
            focused.append(terms_of(keys, of_focus, rounds, taken))
    if focused and len(shared) > 1:
        samples = _in_rounds(samples, tuple(samples), shared) or samples
    return replace(terms_of(keys, samples, shared, taken), focused=tuple(focused))


def _take_samples(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, by: str
) -> tuple[list[Key], dict[Condition, Samples]]:
    """Keys of the terms, and their times in the profiled steps of each condition."""
    grouped = kernel_times.groupby([by, "step", "layer", "phase", "kind"], dropna=False, sort=False)
    by_term = grouped["exclusive_ms"].sum().unstack(["layer", "phase", "kind"])
    table = by_term.fillna(0.0).sort_index(axis=1)
    profiled = steps[steps["profiled"].astype(bool)]
    round_of = profiled.set_index([by, "step"])["round"]
    samples = {}
    for condition in sorted(table.index.unique(by)):
        of_condition = table.xs(condition, level=by)
        rounds = round_of.xs(condition, level=by).loc[of_condition.index]
        times_ms = of_condition.to_numpy(np.float64)
        samples[native(condition)] = Samples(times_ms, rounds.to_numpy(np.int64))
    return [Key.of(*column) for column in table], samples


def _in_rounds(
    samples: Mapping[Condition, Samples], conditions: Sequence[Condition], rounds: Sequence[int]
) -> dict[Condition, Samples]:
    """The samples of some conditions in some rounds; without a condition that has none there."""
    chosen = {}
    for condition in conditions:
        sample = samples.get(condition)
        if sample is None:
            continue
        inside = np.isin(sample.rounds, rounds)
        if inside.any():
            chosen[condition] = Samples(sample.times_ms[inside], sample.rounds[inside])
    return chosen


def in_rounds(
    kernel_times: pd.DataFrame,
    steps: pd.DataFrame,
    conditions: Sequence[Condition],
    rounds: Sequence[int],
    by: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The kernel times and the steps of some conditions in some rounds.

    A condition that is profiled in none of these rounds has its kernels, and their steps, from the
    others: where steps are marked, two rounds name the kernels.
    """
    inside = are_in_rounds(steps, conditions, rounds, by)
    of_rounds = kernel_times["step"].isin(steps.loc[inside, "step"])
    lacking = set(conditions) - set(kernel_times.loc[of_rounds, by])
    elsewhere = steps["profiled"].astype(bool) & steps[by].isin(lacking)
    of_others = kernel_times[by].isin(lacking)
    return kernel_times[of_rounds | of_others], steps[inside | elsewhere]


def terms_of(
    keys: Sequence[Key],
    samples: Mapping[Condition, Samples],
    shared: Sequence[int] | None = None,
    statistic: str | None = None,
) -> Terms:
    """Estimate terms from their times by condition, increasing.

    A replicate draws from the rounds `shared`, e.g. `curve.list_shared_rounds`. If there are fewer
    than two and all steps were profiled, it draws steps instead. Without a statistic T is the mean
    of all steps.
    """
    if shared is None:
        rounds_of = [set(sample.rounds.tolist()) for sample in samples.values()]
        shared = sorted(set.intersection(*rounds_of))
    drawn = None
    if statistic is not None or len(shared) > 1:
        drawn = round_counts(len(shared))
    generator = np.random.default_rng(_SEED)
    values, replicates = [], []
    profiled, rounds = {}, {}
    for condition, sample in samples.items():
        used = fastest_first(sample)
        times, n = sample.times_ms[used], len(used)
        taken = weights_of(np.ones((1, n)), statistic)
        value = (taken @ times)[0]
        profiled[condition] = (n, int(np.count_nonzero(taken)))
        if drawn is None:
            drawn_steps = generator.integers(0, n, (REPLICATES, n))
            counts = counts_of(drawn_steps, n)
            rounds[condition] = n
        else:
            member = np.array(shared)[:, None] == sample.rounds[used]
            counts = drawn @ member
            rounds[condition] = int(member.any(axis=1).sum())
        means = weights_of(counts, statistic) @ times
        is_drawn = counts.sum(axis=1)[:, None] > 0
        values.append(value)
        replicates.append(np.where(is_drawn, means, value))
    # The replicates of a term lie together in memory: most estimates are of a single term.
    by_term = np.ascontiguousarray(np.stack(replicates, axis=1).transpose(2, 0, 1))
    return Terms(
        keys=tuple(keys),
        conditions=tuple(samples),
        values_ms=np.array(values),
        replicates_ms=np.moveaxis(by_term, 0, 2),
        profiled=profiled,
        rounds=rounds,
        shared=tuple(shared),
        of_all_steps=statistic is None,
    )


def main_kernels(
    kernel_times: pd.DataFrame, batches: Sequence[int]
) -> dict[tuple[str | None, str | None], list[str | None]]:
    """The kernel with the most time in every layer and phase, a name (or None) per batch size."""
    place = ["layer", "phase", "batch"]
    wanted = kernel_times["batch"].isin(batches) & (kernel_times["name"] != IDLE)
    kernels = kernel_times.loc[wanted, [*place, "name", "exclusive_ms"]]
    by_name = kernels.groupby([*place, "name"], dropna=False)
    total = by_name["exclusive_ms"].sum().reset_index()
    largest = total.sort_values("exclusive_ms").drop_duplicates(place, keep="last")
    column = {batch: i for i, batch in enumerate(batches)}
    names: dict[tuple[str | None, str | None], list[str | None]] = {}
    for row in largest.itertuples():
        key = Key.of(row.layer, row.phase, KERNELS)
        of_batches = names.setdefault((key.layer, key.phase), [None] * len(batches))
        of_batches[column[row.batch]] = row.name
    return names
