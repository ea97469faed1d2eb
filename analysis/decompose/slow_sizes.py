"""The evidence by which a size is called slow.

One of these holds of the size:

1. A layer does more work per sample, by the shapes of its operators. This is counted and
   needs no test; it is worth a word from 2 % of the step on.
2. The step lies off its neighbours, by a test of all sizes (Holm, 5 %), and by `Curve.least` of its
   time.
3. A layer, or the time in it in which nothing runs, lies above the smaller sizes, by a test of all
   layers at all sizes (Holm, 1 %), and by the same share of the step. Where its kernels stay the
   same nothing but its time speaks for it: then it takes three times that share, and the interval
   of the step must reach as far.
4. A larger size takes less time, by intervals that lie apart.

A process keeps its place in memory, so its rounds repeat what that costs, and no spread of theirs
shows it. Where one process made the rounds on a CPU, a time therefore has a further spread, see
`IN_ONE_PROCESS`, and a deviation counts from 5 % of the step on.
"""

from __future__ import annotations

from typing import NamedTuple

from .statistics import MATERIAL

LEVEL_OF_LAYERS = 0.01  # a word that is wrong costs more trust than a finding earns
LEAST_IN_ONE_PROCESS = 0.05  # of a step; elsewhere `statistics.MATERIAL`
_WITHOUT_CAUSE = 3.0  # times as much of a step for a layer that nothing but its time speaks for
_APART = 4.0  # spreads of one time between two of them: 2.8 standard errors of their difference


class Unseen(NamedTuple):
    """Spread of a time over processes that the rounds of one process do not see, as its share."""

    step: float = 0.0
    layer: float = 0.0  # of a layer, whose parts do not make up for each other


# Identical processes on two cores differ by 2 to 7 % of a step of 2 ms, and by 2 % of longer ones.
# 3 % in place of 2: of 60 simulated sweeps without a slow size 3 had one by 2 %.
IN_ONE_PROCESS = Unseen(step=0.03, layer=0.05)


SEEN = Unseen()  # where processes repeat it, or on a GPU


class Bar(NamedTuple):
    """How far off a size must be to be called slow, and what its interval does not see."""

    least: float = MATERIAL  # share of the step
    unseen: Unseen = SEEN


def set_bar(*, in_one_process: bool) -> Bar:
    """The bar of a recording, by whether one process made the rounds on a CPU."""
    return Bar(LEAST_IN_ONE_PROCESS, IN_ONE_PROCESS) if in_one_process else Bar()


def least_of_layer(least: float, *, has_other_kernels: bool) -> float:
    """The share of the step from which the tested time of a layer counts."""
    return least if has_other_kernels else _WITHOUT_CAUSE * least


def least_between(least: float, unseen: Unseen) -> float:
    """The share of its time by which a size must take longer than a larger one."""
    return max(least, _APART * unseen.step)
