"""The difference of two ranks, or of two groups of ranks, split like any anomaly into its terms.

The difference of mean step times is a linear functional, so it splits exactly over layers, phases, kernels and idle.
Both sides run the same steps, so the steps are taken in pairs: what they have in common cancels, and the bootstrap is
over steps. Where ranks step together their wall times are the same and the split says how: what one spends in a layer
the others spend in communication, waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ...profiling.errors import CurvescopeError
from ..decompose.anomalies import LEVEL, ExplainedPart
from ..decompose.curve import Curve
from ..decompose.functionals import Functional
from ..decompose.statistics import Estimate, estimate, holm
from ..decompose.terms import Part, terms_of
from .tables import COMMUNICATION, IDLE, Reduction

_ONE = 0  # the place of the paired differences on the axis of batch sizes


@dataclass(frozen=True)
class Difference:
    """One group of ranks less another.

    Attributes:
        name: of the group.
        against: of the other.
        ranks: how many each has.
        steps: that both ran, and how many of them the estimate uses: the half nearest the median.
        value: mean step time of the one less that of the other, in ms.
        own: the same of own time: all but communication.
        parts: the shares of all terms, largest first, idle last; they add up to `value`. Kernels are those with the
            most time in the term, of the other group and of the one.
    """

    name: str
    against: str
    ranks: tuple[int, int]
    steps: tuple[int, int]
    value: Estimate
    own: Estimate
    parts: tuple[ExplainedPart, ...]


@dataclass(frozen=True)
class Group:
    """The mean rank of a reduction.

    Attributes:
        name: what to call it.
        ranks: how many there are.
        times_ms: by (step, part), mean over the ranks that ran the step.
        members: ranks that ran each step.
    """

    name: str
    ranks: int
    times_ms: Mapping[tuple[int, int], float]
    members: Mapping[int, int]


def group_of(name: str, reduction: Reduction, less: Reduction | None = None) -> Group:
    """The mean rank of a reduction, without those of another one that is part of it.

    Args:
        name: what to call it.
        reduction: of some ranks.
        less: of ranks among them to leave out.
    """
    sums, members = _sums(reduction), _members(reduction)
    ranks = set(reduction.column("ranks", "rank").tolist())
    if less is not None:
        ranks -= set(less.column("ranks", "rank").tolist())
        for key, time in _sums(less).items():
            sums[key] -= time
        for step, count in _members(less).items():
            members[step] -= count
    means = {key: time / members[key[0]] / 1e6 for key, time in sums.items() if members[key[0]]}
    return Group(name, len(ranks), means, {step: count for step, count in members.items() if count})


def _sums(reduction: Reduction) -> dict[tuple[int, int], int]:
    columns = (reduction.column("parts", c).tolist() for c in ("step", "part", "exclusive_ns"))
    return {(step, part): time for step, part, time in zip(*columns, strict=True)}


def _members(reduction: Reduction) -> dict[int, int]:
    step, count = np.unique(reduction.column("steps", "step"), return_counts=True)
    return dict(zip(step.tolist(), count.tolist(), strict=True))


def explain_difference(one: Group, other: Group, names: Reduction, steps: Collection[int] | None = None) -> Difference:
    """Split the difference of two groups.

    Args:
        one: the group to explain.
        other: what it is held against.
        names: a reduction that has the names of the parts of both.
        steps: to look at; all if not given.

    Raises:
        CurvescopeError: they have no step in common.
    """
    common = sorted(step for step in set(one.members) & set(other.members) if steps is None or step in steps)
    if not common:
        raise CurvescopeError(f"{one.name} and {other.name} have no step in common: there is nothing to compare.")
    named = names.named()
    terms = sorted({named[part][4] for group in (one, other) for _, part in group.times_ms})
    keys = [named[term][:3] for term in terms]
    place = {step: i for i, step in enumerate(common)}
    column = {term: i for i, term in enumerate(terms)}
    times = np.zeros((len(common), len(terms)))
    for group, sign in ((one, 1.0), (other, -1.0)):
        for (step, part), time in group.times_ms.items():
            if step in place:
                times[place[step], column[named[part][4]]] += sign * time
    split = terms_of(keys, {_ONE: times})
    whole = Functional("difference", _ONE, None, ((_ONE, 1.0),), "ms")
    rounds = split.profiled[_ONE][1]
    replicates = split.replicates_ms[:, 0, :]
    size = float(np.abs(split.values_ms).max(initial=0.0))
    shares = split.decompose(whole, Curve((), split.replicates_ms.sum(axis=2), rounds, "mean", watched=True))
    adjusted = holm([share.value.p for share in shares])
    main = [_main_kernels(group, named) for group in (other, one)]
    parts = [_explained(share, main, p < LEVEL) for share, p in zip(shares, adjusted, strict=True)]
    parts.sort(key=lambda e: (e.part.kind == IDLE, -abs(e.part.value.value)))
    own = np.array([kind != COMMUNICATION for _, _, kind in keys])
    values = split.values_ms[0]
    return Difference(
        one.name,
        other.name,
        (one.ranks, other.ranks),
        (len(common), rounds),
        estimate(float(values.sum()), replicates.sum(axis=1), rounds, size),
        estimate(float(values[own].sum()), replicates[:, own].sum(axis=1), rounds, size),
        tuple(parts),
    )


_Key = tuple[str | None, str | None, str]


def _main_kernels(
    group: Group, named: Mapping[int, tuple[str | None, str | None, str, str | None, int]]
) -> dict[_Key, str | None]:
    """The kernel with the most time in each term."""
    total: dict[int, float] = {}
    for (_, part), time in group.times_ms.items():
        total[part] = total.get(part, 0.0) + time
    return {named[part][:3]: named[part][3] for part, _ in sorted(total.items(), key=lambda item: (item[1], item[0]))}


def _explained(share: Part, main: list[dict[_Key, str | None]], real: bool) -> ExplainedPart:
    before, after = (kernels.get((share.layer, share.phase, share.kind)) for kernels in main)
    return ExplainedPart(share, before, after, real)
