"""Names the shape of a cost curve in words that people use, each part with its error.

An edge is a rise from one size to the next beyond what smooth work explains: beyond the slopes on
both sides of it, and beyond work in proportion to the size. A slow size takes longer than a larger
one. Both are tested on the pieces of `curve_pieces`, so a single noisy time makes none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.words import Word
from .curve_families import expect_jumps
from .curve_pieces import Fit, Piece
from .decompose.statistics import LEVEL, Estimate, Floats, Ints

MATERIAL = 0.05  # real curves bend a little everywhere
_LONG = 3  # sizes of a piece whose slope is known well
_OUTGROWN = 1.05  # of the time in proportion to the size
_FULL = 0.9  # of the largest rate, from which on more batching helps no more
_FLOOR = 1.25  # times the least time, that a floor reaches at most
_TWICE = 2.0  # ratio of sizes that a floor or a plateau has at least
_PROPORTION = 1.15  # power of the size, from which on work grows faster than the size
_FELL = 0.8  # of the largest rate, that is left where work outgrows the size
_LEAST_SAW = 4  # sizes of each kind, for a saw tooth
_TEETH = (2, 4, 8, 16)


class Shape(Word):
    """Shapes of a curve."""

    SLOW = "slow size"  # a larger size takes less time
    CLIFF = "cliff"  # one edge
    STAIRS = "stairs"  # edges at multiples of one number
    EDGES = "edges"  # several edges without a common number
    KNEE = "knee"  # the same time for small sizes, then in proportion
    PLATEAU = "plateau"  # a rate that no longer rises
    SAW = "saw tooth"  # sizes that are no multiple of a number take longer
    SUPER = "super-linear"  # the rate falls with the size
    NONE = "none"


class Certainty(Word):
    """How sure an event is."""

    IS = "is"
    MAY_BE = "may be"  # as sure, but by an assumed error
    SMALL = "real but under 5 %"
    NOISE = "noise"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One edge, or the end of slow sizes."""

    kind: str  # edge or slow
    before: int  # the last size before it
    at: int  # the first size behind it
    sizes: tuple[int, ...]  # of slow ones, those that take longer than `at`; empty for an edge
    # time beyond what smooth work explains; of slow sizes, of the last one beyond that of `at`
    extra_ms: Estimate
    share: float  # of the time of `at` without it
    p_adjusted: float  # adjusted over the table
    certainty: str  # is, may be, real but under 5 %, or noise


@dataclass(frozen=True, kw_only=True)
class Named:
    """The shape of a curve."""

    shape: str  # the word for it, see `Shape`
    step: int | None = None  # of stairs or a saw tooth, the number whose multiples are its edges
    steps: tuple[int, ...] = ()  # other numbers that fit the sizes as well, largest first
    at: int | None = None  # size of a knee, or from which on batching helps no more
    share: float | None = None  # how much longer the other sizes of a saw tooth take
    low: float | None = None  # lower end of that share's 95 % interval
    high: float | None = None  # upper end
    rival: str = ""  # the next best reading


def find_events(fit: Fit, tests: int | None = None) -> tuple[Event, ...]:
    """The edges and slow sizes of a curve, increasing in size, of those with p under the level.

    `tests` is the number of tests of the whole table; default: one for each two neighbours.
    """
    tests = max(len(fit.sizes) - 1, 1) if tests is None else tests
    slow = _slow_events(fit, tests)
    hidden = {size for event in slow for size in event.sizes}
    kept = [p for p in fit.pieces if not _all_in(fit, p, hidden)]
    edges = [_edge(fit, *pair, tests) for pair in itertools.pairwise(kept)]
    events = [*slow, *(edge for edge in edges if edge is not None)]
    events += _find_excesses(fit, events, tests)
    return tuple(sorted(events, key=lambda event: event.at))


def _find_excesses(fit: Fit, events: Sequence[Event], tests: int) -> list[Event]:
    """Rises beyond proportion that the pieces smooth over, where times have errors of their own.

    A rise beside another one is no edge: such work outgrows its size.
    """
    if not math.isinf(fit.degrees):
        return []
    taken = {size for event in events for size in (event.at, *event.sizes)}
    base, value, error = _beyond_proportion(fit)
    beyond = value > (_OUTGROWN - 1) * base
    beside = np.append(False, beyond[:-1]) | np.append(beyond[1:], False)
    found = []
    for place in np.flatnonzero(beyond & ~beside).tolist():
        before, at = (int(size) for size in fit.sizes[place : place + 2])
        if at not in taken:
            tested = float(value[place]), float(error[place])
            found.append(_event(fit, "edge", (before, at), (), tested, float(base[place]), tests))
    return found


def _beyond_proportion(fit: Fit) -> tuple[Floats, Floats, Floats]:
    """Of each two neighbours: the larger one's time in proportion to the smaller one's, what it
    takes beyond it, and the standard error of that.
    """
    sizes, times = fit.sizes, fit.times
    base = times[:-1] * sizes[1:] / sizes[:-1]
    error = np.hypot(base * fit.errors[:-1], times[1:] * fit.errors[1:])
    return base, times[1:] - base, error


def list_rest(fit: Fit, events: Sequence[Event]) -> list[float]:
    """The p of each two neighbours without an event, of times with errors of their own: where the
    larger one surely takes less than in proportion, other tests are corrected for fewer.
    """
    if not math.isinf(fit.degrees):
        return []
    taken = {event.at for event in events}
    _, value, error = _beyond_proportion(fit)
    rest = []
    for at, each, own in zip(fit.sizes[1:].astype(int).tolist(), value, error, strict=True):
        if at not in taken:
            rest.append(p_of(float(each / own), math.inf) if each < 0 else 1.0)
    return rest


def _all_in(fit: Fit, piece: Piece, sizes: set[int]) -> bool:
    return all(int(size) in sizes for size in fit.sizes[piece.first : piece.last + 1])


def _edge(fit: Fit, left: Piece, right: Piece, tests: int) -> Event | None:
    """What the rise between two pieces has beyond smooth work; None for a rise that it explains."""
    before, at = float(fit.sizes[left.last]), float(fit.sizes[right.first])
    of_left, of_right = -left.row(before), right.row(at)
    beyond = []
    is_jump = left.shape is not None and right.first == left.last + 1
    if is_jump:
        beyond.append((-left.jump_row(at), right.jump_row(at)))
    elif not _outgrows(left, before, before=True) and not _outgrows(right, at, before=False):
        beyond.append((of_left * at / before, of_right))
    if not is_jump and min(left.count, right.count) > 1:
        left_slope, right_slope = _slopes(left, right, before, at)
        beyond.append((of_left - left_slope, of_right - right_slope))
    tested = [_value(fit, left, row, right, other) for row, other in beyond]
    value, error = max(tested, key=lambda test: test[0], default=(0.0, 0.0))
    if value <= 0:
        return None
    places = int(before), int(at)
    return _event(fit, "edge", places, (), (value, error), right.at(at) - value, tests)


def _outgrows(piece: Piece, size: float, *, before: bool) -> bool:
    """Whether the time of a piece grows faster than its size."""
    if piece.count < _LONG:
        return False
    slope = float(piece.slope_row(size, before=before) @ piece.coefficients)
    return slope * size > _OUTGROWN * piece.at(size)


def _slopes(left: Piece, right: Piece, before: float, at: float) -> tuple[Floats, Floats]:
    """What smooth work adds from one piece to the next: the steeper of both slopes; of short
    pieces both, as one may end and the other begin between them.
    """
    of_left = (at - before) * left.slope_row(before, before=True)
    of_right = (at - before) * right.slope_row(at, before=False)
    if min(left.count, right.count) < _LONG:
        return of_left, of_right
    if of_left @ left.coefficients >= of_right @ right.coefficients:
        return of_left, 0 * of_right
    return 0 * of_left, of_right


def _slow_events(fit: Fit, tests: int) -> list[Event]:
    """Falls from one piece to the next, each with the sizes before it that take longer."""
    found: list[Event] = []
    for left, right in itertools.pairwise(fit.pieces):
        before, at = float(fit.sizes[left.last]), float(fit.sizes[right.first])
        value, error = _value(fit, left, left.jump_row(before), right, -right.jump_row(at))
        if value <= 0:
            continue
        level = right.at(at)
        slow = []
        for size, time, relative in zip(fit.sizes, fit.times, fit.errors, strict=True):
            if size <= before and time * (1 - 2 * relative) > level * (1 + MATERIAL):
                slow.append(int(size))
        places = int(before), int(at)
        event = _event(fit, "slow", places, tuple(slow), (value, error), level, tests)
        if event.certainty == Certainty.IS and slow:
            found.append(event)
    return found


def _value(
    fit: Fit, left: Piece, of_left: Floats, right: Piece, of_right: Floats
) -> tuple[float, float]:
    """A sum of coefficients of two pieces, and its standard error."""
    value = float(of_left @ left.coefficients + of_right @ right.coefficients)
    if right.jump_error and right.first == left.last + 1:
        return value, fit.noise * right.jump_error * right.at(float(fit.sizes[right.first]))
    variance = of_left @ left.covariance @ of_left
    variance += of_right @ right.covariance @ of_right
    return value, fit.noise * math.sqrt(max(float(variance), 0.0))


def _event(
    fit: Fit,
    kind: str,
    places: tuple[int, int],
    slow: tuple[int, ...],
    tested: tuple[float, float],
    base: float,
    tests: int,
) -> Event:
    value, error = tested
    p = p_of(value / error if error else math.inf, fit.degrees)
    half = error * quantile(fit.degrees)
    place = int(np.searchsorted(fit.sizes, places[0]))
    one_sided = p / 2  # an edge is a rise, and slow sizes end with a fall
    adjusted = min(1.0, one_sided * tests / float(expect_jumps(fit.sizes)[place]))
    share = value / base if base > 0 else math.inf
    return Event(
        kind=kind,
        before=places[0],
        at=places[1],
        sizes=slow,
        extra_ms=Estimate(value, value - half, value + half, p),
        share=share,
        p_adjusted=adjusted,
        certainty=_certainty(adjusted, share),
    )


def judge(event: Event, p_adjusted: float, assumed: bool) -> Event:
    """The event at another adjusted p, e.g. over a larger family; with an error that is assumed it
    may only be.
    """
    certainty = _certainty(p_adjusted, event.share)
    if assumed and certainty == Certainty.IS:
        certainty = Certainty.MAY_BE
    return replace(event, p_adjusted=p_adjusted, certainty=certainty)


def _certainty(p_adjusted: float, share: float) -> str:
    if p_adjusted >= LEVEL:
        return Certainty.NOISE
    return Certainty.IS if share >= MATERIAL else Certainty.SMALL


def p_of(ratio: float, degrees: float) -> float:
    """Two-sided p of a value over its standard error; normal for infinite degrees."""
    from scipy.special import ndtr, stdtr

    if math.isinf(degrees):
        return float(2 * ndtr(-abs(ratio)))
    return float(2 * stdtr(degrees, -abs(ratio)))


def quantile(degrees: float) -> float:
    """The 97.5 % quantile of t, or of the normal distribution for infinite degrees."""
    from scipy.special import ndtri, stdtrit

    share = 1 - LEVEL / 2
    if math.isinf(degrees):
        return float(ndtri(share))
    return float(stdtrit(degrees, share))


def claimed(events: Sequence[Event]) -> list[Event]:
    """The events that are said: those that are, or may be."""
    return [event for event in events if event.certainty in (Certainty.IS, Certainty.MAY_BE)]


def name_shapes(fit: Fit, events: Sequence[Event]) -> tuple[Named, ...]:
    """The shapes of a curve: what its events are, then how it rises; none where it has neither."""
    shapes = []
    said = claimed(events)
    if any(event.kind == "slow" for event in said):
        shapes.append(Named(shape=Shape.SLOW, rival=_smooth_rival(fit)))
    edges = [event for event in said if event.kind == "edge"]
    if len(edges) == 1:
        shapes.append(Named(shape=Shape.CLIFF, rival=_smooth_rival(fit)))
    elif edges:
        steps = _common_steps(fit, edges)
        named = Named(shape=Shape.STAIRS if steps else Shape.EDGES, rival=_smooth_rival(fit))
        step = steps[0] if steps else None
        shapes.append(replace(named, step=step, steps=tuple(steps[1:4])))
    if (rise := _rise(fit, may_outgrow=not said)) is not None:
        shapes.append(rise)
    return tuple(shapes) or (Named(shape=Shape.NONE, rival=_smooth_rival(fit)),)


def _smooth_rival(fit: Fit) -> str:
    """The reading without events, or the largest noise that hides one."""
    if len(fit.pieces) > 1:
        return f"one smooth line, which misses the times by {fit.smooth_noise:.0%}"
    return f"an edge under {3 * fit.noise:.0%} of the time, which the noise would hide"


def _common_steps(fit: Fit, edges: Sequence[Event]) -> list[int]:
    """The numbers whose multiples are the edges, largest first: every edge lies just above one, and
    every multiple from the first edge to the last lies between two near sizes, and has an edge.
    """
    sizes = fit.sizes.astype(int)
    around = [(edge.before, edge.at) for edge in edges]
    first, last = around[0], around[-1]
    widest = max(at - before for before, at in around)
    steps = []
    for step in range(last[1] - first[0], max(2 * widest, 2) - 1, -1):
        begin = -(-first[0] // step) * step
        multiples = [size for size in range(begin, last[1], step) if size >= first[0]]
        each_edge = all((at - 1) // step * step >= before for before, at in around)
        each_multiple = all(_lies_in(size, around) for size in multiples)
        if len(multiples) > 1 and each_edge and each_multiple:
            steps.append(step)
    return [step for step in steps if _is_measured(sizes, step)]


def _lies_in(size: int, around: Sequence[tuple[int, int]]) -> bool:
    return any(before <= size < at for before, at in around)


def _is_measured(sizes: Ints, step: int) -> bool:
    """Whether some sizes lie nearer to each other than half a step, as at its edges."""
    return bool((np.diff(sizes) <= step / 2).any())


def _rise(fit: Fit, *, may_outgrow: bool) -> Named | None:
    """Whether the rate stops to rise, or falls: a knee behind a floor, a plateau, or more than in
    proportion.
    """
    sizes = fit.sizes
    times = np.array([_at(fit, place) for place in range(len(sizes))])
    rates = sizes / times
    if len(sizes) < 3 or sizes[-1] < _TWICE * _TWICE * sizes[0]:
        return None
    top = sizes >= sizes[-1] / 4
    power = _power(sizes[top], times[top])
    if may_outgrow and power > _PROPORTION and rates[-1] < _FELL * rates.max():
        return Named(shape=Shape.SUPER, rival="work in proportion to the size")
    # a slow size that the pieces smooth over is no plateau either
    measured = sizes / fit.times
    is_short = (rates < _FULL * rates.max()) | (measured < (_FULL - fit.errors) * rates.max())
    short = np.flatnonzero(is_short)
    full = int(short[-1]) + 1 if len(short) else 0
    if full == len(sizes) or sizes[-1] < _TWICE * sizes[full]:
        return None
    floor = times <= _FLOOR * times[0]
    level = len(sizes) - 1
    if not floor.all():
        level = int(np.argmin(floor)) - 1
    is_knee = sizes[level] >= 2 * _TWICE * sizes[0] and level < len(sizes) - 1
    return Named(
        shape=Shape.KNEE if is_knee else Shape.PLATEAU,
        at=int(sizes[full]),
        rival="a rate that rises a little further",
    )


def _power(sizes: Floats, times: Floats) -> float:
    logs = np.log(sizes)
    if len(logs) < 2:
        return 0.0
    return float(np.polyfit(logs, np.log(times), 1)[0])


def _at(fit: Fit, place: int) -> float:
    for piece in fit.pieces:
        if piece.first <= place <= piece.last:
            return piece.at(float(fit.sizes[place]))
    raise IndexError(place)


def find_saw(fit: Fit) -> Named | None:
    """A saw tooth: sizes that are no multiple of a number take longer than the next that is one."""
    sizes, times = fit.sizes.astype(int), fit.times
    best: Named | None = None
    for step in _TEETH:
        even = sizes % step == 0
        if even.sum() < _LEAST_SAW:
            continue
        first, *_, last = sizes[even]
        others = ~even & (sizes > first) & (sizes < last)
        if others.sum() < _LEAST_SAW:
            continue
        next_even = np.searchsorted(sizes[even], sizes[others])
        expected = times[even][next_even]
        logs = np.log(times[others] / expected)
        middle = float(np.median(logs))
        error = 1.25 * float(logs.std(ddof=1)) / math.sqrt(len(logs)) + 1e-9
        if middle < math.log1p(MATERIAL) or middle < 4 * error or np.quantile(logs, 0.1) <= 0:
            continue
        low, high = np.expm1([middle - 2 * error, middle + 2 * error]).tolist()
        share = math.expm1(middle)
        found = Named(shape=Shape.SAW, step=step, share=share, low=low, high=high, rival="noise")
        if best is None or share > (best.share or 0.0):
            best = found
    return best
