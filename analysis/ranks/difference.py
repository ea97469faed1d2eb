"""The difference of two ranks, or of two groups of ranks, split like any anomaly into its terms.

Both sides run the same steps, so the steps are taken in pairs: common effects cancel, and the
bootstrap is over steps. The wall times of synchronised ranks are equal: extra time of one is
communication (waiting) of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...base.errors import CurvescopeError
from ..decompose.averaged_steps import Samples
from ..decompose.functionals import Functional
from ..decompose.statistics import Estimate, Floats
from ..decompose.terms import COMMUNICATION, IDLE, Key, Share, terms_of
from ..decompose.warm_up import is_far, is_named
from .tables import Name, Reduction


@dataclass(frozen=True, kw_only=True)
class RankDifference:
    """One group of ranks minus another."""

    name: str  # name of the group
    against: str  # name of the other group
    ranks: tuple[int, int]  # numbers of ranks of both
    # number of steps that both ran, and number of those that the estimate uses: without a warm-up
    steps: tuple[int, int]
    value: Estimate  # difference of mean step times, in ms
    own: Estimate  # difference of non-communication time, in ms
    # one per term, largest first, idle last; they add up to `value`. `kernel_before` and
    # `kernel_after` are the kernels with the most time in the other group and in the group.
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Group:
    """The mean rank of a reduction."""

    name: str
    ranks: int
    # mean over the ranks that ran the step, by (step, key id)
    times_ms: Mapping[tuple[int, int], float]
    members: Mapping[int, int]  # number of ranks by step


def group_of(name: str, reduction: Reduction, less: Reduction | None = None) -> Group:
    """Average the ranks of a reduction, but for the ranks of `less`, a reduction of some of
    them.
    """
    sums = _sums(reduction)
    members = _members(reduction)
    ranks = set(reduction.column("ranks", "rank").tolist())
    if less is not None:
        ranks -= set(less.column("ranks", "rank").tolist())
        for place, time in _sums(less).items():
            sums[place] -= time
        for step, count in _members(less).items():
            members[step] -= count
    members = {step: count for step, count in members.items() if count}
    means = {}
    for (step, key), time in sums.items():
        if step in members:
            means[step, key] = time / members[step] / 1e6
    return Group(name, len(ranks), means, members)


def _sums(reduction: Reduction) -> dict[tuple[int, int], int]:
    sums = {}
    for step, key, time in reduction.rows("kernel_times", "step", "key", "exclusive_ns"):
        sums[step, key] = time
    return sums


def _members(reduction: Reduction) -> dict[int, int]:
    step, count = np.unique(reduction.column("steps", "step"), return_counts=True)
    return dict(zip(step.tolist(), count.tolist(), strict=True))


def explain_difference(
    own: Group, other: Group, names: Reduction, steps: Collection[int] | None = None
) -> RankDifference:
    """Split the difference of two groups over their common steps, or some of them; CurvescopeError
    if there is none.

    `names` is a reduction with the names of both groups' keys.
    """
    shared = set(own.members) & set(other.members)
    common = sorted(shared if steps is None else shared.intersection(steps))
    if not common:
        raise CurvescopeError(
            f"{own.name} and {other.name} have no step in common: there is nothing to compare."
        )
    named = names.read_names()
    terms = sorted(_terms(own, named) | _terms(other, named))
    keys = [_key(named[term]) for term in terms]
    own_times = _times_of_terms(own, named, common, terms)
    other_times = _times_of_terms(other, named, common, terms)
    is_work = np.array([key.kind != IDLE for key in keys])
    # Both sides of a pair are used, or none.
    is_slow = _begins_slowly(own_times, is_work) or _begins_slowly(other_times, is_work)
    warms_up = is_slow and common[0] == min(own.members)
    used = slice(int(warms_up), None)
    rounds = np.array(common)[used]
    sides = {
        own.name: Samples(own_times[used], rounds),
        other.name: Samples(other_times[used], rounds),
    }
    split = terms_of(keys, sides)
    weights = ((own.name, 1.0), (other.name, -1.0))
    functional = Functional("difference", own.name, None, weights)
    before = _main_kernels(other, named)
    after = _main_kernels(own, named)
    shares = []
    for share in split.decompose(functional):
        kernel_before = before.get(share.key)
        kernel_after = after.get(share.key)
        shares.append(replace(share, kernel_before=kernel_before, kernel_after=kernel_after))
    shares.sort(key=lambda share: (share.key.kind == IDLE, -abs(share.value.value)))
    return RankDifference(
        name=own.name,
        against=other.name,
        ranks=(own.ranks, other.ranks),
        steps=(len(common), len(rounds)),
        value=split.sum(functional),
        own=split.sum(functional, lambda key: key.kind != COMMUNICATION),
        shares=tuple(shares),
    )


def _terms(group: Group, named: Mapping[int, Name]) -> set[int]:
    return {named[key].term for _, key in group.times_ms}


def _times_of_terms(
    group: Group, named: Mapping[int, Name], steps: Sequence[int], terms: Sequence[int]
) -> Floats:
    """Times of a group in ms, shape (steps, terms)."""
    row = {step: i for i, step in enumerate(steps)}
    column = {term: i for i, term in enumerate(terms)}
    times = np.zeros((len(steps), len(terms)))
    for (step, key), time in group.times_ms.items():
        if step in row:
            term = named[key].term
            times[row[step], column[term]] += time
    return times


def _begins_slowly(times: Floats, is_work: npt.NDArray[np.bool_]) -> bool:
    """Whether the first step is far slower than the others, and its work is not the reason."""
    whole = times.sum(axis=1)
    work = times[:, is_work].sum(axis=1)
    return is_far(whole) and not is_named(whole, [work])


def _main_kernels(group: Group, named: Mapping[int, Name]) -> dict[Key, str | None]:
    """The kernel with the most time in each term."""
    total: dict[int, float] = {}
    for (_, key), time in group.times_ms.items():
        total[key] = total.get(key, 0.0) + time
    main = {}
    for key in sorted(total, key=lambda key: (total[key], key)):
        name = named[key]
        main[_key(name)] = name.name
    return main


def _key(name: Name) -> Key:
    return Key(name.layer, name.phase, name.kind)
