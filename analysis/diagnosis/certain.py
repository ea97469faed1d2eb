"""Parts of a step that cost too much for certain, whatever the sum of all parts does.

The noise of a step is the noise of all its parts: a copy of 50 ms is sure while the step is known
to 100 ms. Counts of work, from the shapes of operators, need no test. Times are tested: few rows
first, the layers at all batch sizes, then the parts of a layer that is sure. How sure and how large
a part must be: `decompose.slow_sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from ..causes.case import Case
from ..causes.work import asks_for_more, weigh_more_work
from ..decompose.curve import MODELLED, Curve
from ..decompose.functionals import Functional, neighbours_of, outlier
from ..decompose.slow_sizes import LEVEL_OF_LAYERS, least_of_layer
from ..decompose.statistics import LEVEL, MATERIAL, Estimate, holm
from ..decompose.terms import IDLE, KERNELS, Key, Share, Terms, join_phases


@dataclass(frozen=True)
class CertainPart:
    """A layer that costs more at a batch size than the smaller ones say, for certain."""

    functional: Functional  # what its time is compared by, e.g. the excess from 16 to 24
    label: str  # name of the layer, with its phase where one phase makes most of it
    layer: str  # name of the layer alone
    key: Key  # of the layer, all its phases together
    # line of the program with most of its time, e.g. `model.py:41`; None if unknown
    line: str | None
    value: Estimate  # what it costs more at the larger batch size, ms
    step_share: float  # the same as a share of the step
    # why it is more work, from the shapes of operators; None if its time is tested
    from_shapes: str | None
    # p of a time that is in proportion, adjusted over all layers and sizes; None from shapes
    p_adjusted: float | None
    # what it costs more at the largest size, as a share of the step, where all larger sizes pay it;
    # None elsewhere
    share_at_largest: float | None = None

    @property
    def place(self) -> str:
        """Name of what is one finding: the layer of counted work, else the layer and its phase."""
        return self.label if self.from_shapes is None else self.layer

    @property
    def batch(self) -> int:
        """The batch size at which it costs more."""
        return int(self.functional.last)


def find_certain(
    curve: Curve, terms: Terms | None, tested: Mapping[Functional, Sequence[Case]]
) -> tuple[CertainPart, ...]:
    """The certain parts of a recording, the largest first, each at the size where it is worst.

    `tested` has the terms of every functional that was tested, with their records.
    """
    if terms is None or curve.statistic == MODELLED:
        return ()
    layers = terms.group_by(join_phases)
    parts = list(_count_work(curve, tested))
    counted = {part.layer for part in parts}
    for part in _test_layers(curve, terms, layers, tested):
        if part.layer not in counted:
            parts.append(part)
    worst: dict[str, CertainPart] = {}
    for part in sorted(parts, key=lambda part: -part.step_share):
        worst.setdefault(part.place, part)
    told = [_follow(part, curve, layers) for part in worst.values()]
    return tuple(sorted(told, key=lambda part: -part.step_share))


def _follow(part: CertainPart, curve: Curve, layers: Terms) -> CertainPart:
    """A part with its share at the largest size, where all larger sizes cost at least half as much
    more for each sample.
    """
    smaller = [size for size in layers.conditions if size < part.batch]
    larger = [size for size in layers.conditions if size > part.batch]
    if not smaller or not larger or larger[-1] != curve.conditions[-1]:
        return part
    times_ms = dict(
        zip(layers.conditions, layers.values_ms[:, layers.keys.index(part.key)], strict=True)
    )
    each_ms = times_ms[smaller[-1]] / smaller[-1]
    more_ms = {size: times_ms[size] - size * each_ms for size in larger}
    least_ms = part.value.value / part.batch / 2  # for each sample
    if any(more_ms[size] < size * least_ms for size in larger):
        return part
    return replace(part, share_at_largest=more_ms[larger[-1]] / curve.times_ms[larger[-1]])


def _count_work(curve: Curve, tested: Mapping[Functional, Sequence[Case]]) -> Iterator[CertainPart]:
    """The layers whose operators do more work per sample, by their shapes."""
    for functional, cases in tested.items():
        for layer, counted in _group_counted(cases).items():
            largest = max(counted, key=lambda part: part.share.value.value)
            share = largest.share
            if len(counted) > 1:
                value = _add([part.share.value for part in counted])
                share = replace(share, key=layer, value=value)
            part = _part(curve, functional, share, share.value, largest.detail)
            if part.step_share >= MATERIAL:
                yield part


class _Counted(NamedTuple):
    """The counted work of a term."""

    share: Share  # its value is the counted work
    detail: str  # why it is more work


def _group_counted(cases: Sequence[Case]) -> dict[Key, list[_Counted]]:
    """The terms that do more work per sample, by layer."""
    layers: dict[Key, list[_Counted]] = {}
    for case in cases:
        work, claim = case.share.work, weigh_more_work(case)
        if work is not None and work.value is not None and claim and asks_for_more(case):
            share = replace(case.share, value=work.value)
            layers.setdefault(join_phases(share.key), []).append(
                _Counted(share, claim.detail or "")
            )
    return layers


def _add(values: Sequence[Estimate]) -> Estimate:
    """The sum of some values, with an interval that is wide enough however they vary together."""
    return Estimate(
        value=math.fsum(value.value for value in values),
        low=math.fsum(value.low for value in values),
        high=math.fsum(value.high for value in values),
        p=max(value.p for value in values),
    )


def _test_layers(
    curve: Curve, terms: Terms, layers: Terms, tested: Mapping[Functional, Sequence[Case]]
) -> Iterator[CertainPart]:
    """The layers whose time is more than in proportion, by a test."""
    unseen = curve.unseen.layer
    rows = []
    for functional in tested:
        for key, value in _list_times(layers, functional, unseen):
            rows.append((functional, key, value))
    adjusted = holm([value.p for _, _, value in rows])
    phases = cache(lambda functional: _list_times(terms, functional, unseen))
    for (functional, layer, value), p in zip(rows, adjusted, strict=True):
        if p >= LEVEL_OF_LAYERS or value.value <= 0:
            continue
        inside = [case.share for case in tested[functional] if join_phases(case.share.key) == layer]
        share = _inside(phases(functional), layer, value, inside)
        part, switches = _part(curve, functional, share, share.value, p_adjusted=p), _switch(inside)
        is_large = part.step_share >= least_of_layer(curve.least, has_other_kernels=switches)
        if is_large and (switches or _may_hold(curve, part)):
            yield part


def _may_hold(curve: Curve, part: CertainPart) -> bool:
    """Whether the step may be off by as much as a part of it: by the same comparison, and of its
    neighbours by half of that, as the larger one may be as slow.
    """
    whole = curve.judging(part.functional).evaluate(part.functional)
    beside = neighbours_of(part.batch, curve.conditions)
    if beside is None or whole.high < part.value.value:
        return whole.high >= part.value.value
    between = outlier(*beside)
    return curve.judging(between).evaluate(between).high >= part.value.value / 2


def _switch(shares: Sequence[Share]) -> bool:
    """Whether the longest kernel of a phase is another one at the larger size."""
    return any(share.kernel_before != share.kernel_after for share in shares)


def _list_times(terms: Terms, functional: Functional, unseen: float) -> list[tuple[Key, Estimate]]:
    """What the work of each layer adds to a functional, and what a layer in which nothing runs
    adds.
    """
    keys = terms.behind(functional).keys
    values = zip(keys, terms.moderate(functional, unseen), strict=True)
    chosen = []
    for key, value in values:
        if key.kind == KERNELS or (key.kind == IDLE and key.layer is not None):
            chosen.append((key, value))
    return chosen


def _inside(
    phases: Sequence[tuple[Key, Estimate]], layer: Key, value: Estimate, shares: Sequence[Share]
) -> Share:
    """The phase that makes most of a layer's part, if it is significant there; else the layer."""
    inside = [(key, of_phase) for key, of_phase in phases if join_phases(key) == layer]
    known = {share.key: share for share in shares}
    adjusted = holm([of_phase.p for _, of_phase in inside])
    for (key, of_phase), p in zip(inside, adjusted, strict=True):
        if key in known and p < LEVEL and of_phase.value > value.value / 2:
            return replace(known[key], value=of_phase)
    classes = (share.layer_class for share in shares)
    return Share(layer, value, layer_class=next(classes, None))


def _part(
    curve: Curve,
    functional: Functional,
    share: Share,
    value: Estimate,
    from_shapes: str | None = None,
    p_adjusted: float | None = None,
) -> CertainPart:
    step_share = value.value / curve.at(functional.last).time_ms.value
    return CertainPart(
        functional,
        share.label,
        share.layer,
        join_phases(share.key),
        share.line,
        value,
        step_share,
        from_shapes,
        p_adjusted,
    )
