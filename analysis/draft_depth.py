"""How many tokens to draft for each pass of a model, by what passes of several tokens take.

A pass that verifies `k` drafted tokens takes the time of `k + 1` tokens. If each is accepted at a
rate `a` and the first refused one ends them, it gives `1 + a + … + a^k` tokens. Drafts are free
here: the time of a drafter comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base.errors import CurvescopeError
from .curve_pieces import Fit
from .decompose.statistics import Estimate
from .size_lists import costs_of

MOST_DEPTH = 63


@dataclass(frozen=True, kw_only=True)
class Depth:
    """One number of drafted tokens."""

    drafted: int  # tokens drafted for a pass
    ms: float  # time of the pass that verifies them
    tokens: float  # tokens that it gives on average
    speedup: Estimate  # tokens a second over those without drafts


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """Which number of drafted tokens pays at an acceptance rate."""

    acceptance: float  # share of drafted tokens that are accepted where all before them were
    best: int  # drafted tokens with the most tokens a second; 0 where none is faster
    loses_from: int | None  # drafted tokens from which on drafting is slower; null without any
    depths: Sequence[Depth]  # every number of them up to the largest pass that was measured


def weigh_depths(fit: Fit, acceptance: float) -> Drafting:
    """The depths of a curve over the tokens of a pass.

    CurvescopeError: no pass of one token was measured, or none of more.
    """
    if fit.sizes[0] != 1 or len(fit.sizes) < 2:
        raise CurvescopeError(
            "--acceptance weighs passes of several tokens against one of a single token: measure "
            "sizes from 1 on."
        )
    largest = int(min(fit.sizes[-1], MOST_DEPTH + 1))
    costs = costs_of(fit, dict.fromkeys(range(1, largest + 1), 1.0))
    depths, tokens = [], 1.0
    for drafted in range(1, largest):
        tokens += acceptance**drafted
        gain = costs.ratio(1, drafted + 1)
        speedup = Estimate(gain.value * tokens, gain.low * tokens, gain.high * tokens, gain.p)
        ms = float(costs.times_ms[drafted])
        depths.append(Depth(drafted=drafted, ms=ms, tokens=tokens, speedup=speedup))
    fastest = max(depths, key=lambda depth: depth.speedup.value)
    slower = len(depths)
    while slower and depths[slower - 1].speedup.value < 1:
        slower -= 1
    best = fastest.drafted if fastest.speedup.value > 1 else 0
    loses_from = None if slower == len(depths) else depths[slower].drafted
    return Drafting(acceptance=acceptance, best=best, loses_from=loses_from, depths=depths)
