"""Measuring protocols, as data, and the batch sizes they are applied to."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..errors import CurvescopeError


@dataclass(frozen=True)
class Protocol:
    """How a sweep measures; printed with every result.

    A visit profiles as many steps as it times unprofiled, but at least one, at most `profiled_steps`, and none that
    would make its profiled part longer than the rest of the visit: profiling at most about doubles a visit, or adds one
    step to it where that step alone takes longer.

    Attributes:
        name: name of the protocol.
        rounds: least and most rounds over all batch sizes; between them the time limit and `until` decide.
        discarded_steps: steps at the start of each visit that are run and not kept; at least one.
        steps_per_visit: least and most unprofiled steps of one visit; between them `visit_s` decides.
        visit_s: seconds that the unprofiled steps of one visit may take.
        profiled_steps: most profiled steps of one visit; 0 for none.
        time_limit_s: no round starts that is not expected to end within it, once the least number is done; None for
            none: all rounds are run.
        statistic: T(b) as a statistic of the unprofiled steps: median or mean.
        until: largest half-width of the interval of any T(b), as a share of it, at which to stop; None: never.
        images: samples that pass in all rounds together, so that a batch size takes images/batch steps; None: the
            steps do not depend on the batch size.
    """

    name: str
    rounds: tuple[int, int]
    discarded_steps: int
    steps_per_visit: tuple[int, int]
    visit_s: float
    profiled_steps: int
    time_limit_s: float | None
    statistic: str = "median"
    until: float | None = None
    images: int | None = None

    def steps_of_visit(self, batch: int, discarded_ns: int) -> int:
        """Unprofiled steps of one visit, from the duration of its last discarded step."""
        if self.images is not None:
            return max(1, math.ceil(self.images / (batch * self.rounds[0])))
        least, most = self.steps_per_visit
        return max(least, min(most, round(self.visit_s / max(discarded_ns / 1e9, 1e-6))))


PROTOCOLS = {
    "default": Protocol("default", (6, 40), 1, (1, 8), 0.3, 8, 112.0),
    "quick": Protocol("quick", (4, 12), 1, (1, 4), 0.15, 4, 27.0),
    # The benchmark post that gave the VGG figures on a GTX 1080: the mean of 100 runs.
    "addfor": Protocol("addfor", (10, 10), 1, (10, 10), 0.0, 8, None, "mean"),
    # Images/s over all iterations, epochs · images / (batch · devices) of them. Five rounds, so that there is a spread.
    "dell": Protocol("dell", (5, 5), 1, (1, 1), 0.0, 8, None, "mean", images=10_000),
    # 20 steps ignored, 100 measured, 7 repeats, the median.
    "dlperf": Protocol("dlperf", (7, 7), 20, (100, 100), 0.0, 8, None),
}


def get_protocol(name: str) -> Protocol:
    """The protocol of that name.

    Raises:
        CurvescopeError: there is none.
    """
    if name not in PROTOCOLS:
        raise CurvescopeError(f"--protocol {name}: choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


def parse_batches(text: str) -> tuple[int, ...]:
    """Batch sizes from `1,2,4` (as listed), `1..32` (powers of two times the first), or `32..160:8` (steps of 8).

    Raises:
        CurvescopeError: not of these forms, or not positive and increasing.
    """
    form = "use a list as in 1,2,4, powers of two as in 1..32, or a step as in 32..160:8"
    if match := re.fullmatch(r"(\d+)\.\.(\d+)(?::(\d+))?", text.strip()):
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 0)
        if first < 1 or last < first or (match[3] and step < 1):
            raise CurvescopeError(f"--batch {text}: batch sizes start at 1 and increase; {form}.")
        return tuple(range(first, last + 1, step)) if match[3] else doubled(first, last)
    try:
        batches = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise CurvescopeError(f"--batch {text}: not batch sizes; {form}.") from None
    if min(batches) < 1 or list(batches) != sorted(set(batches)):
        raise CurvescopeError(f"--batch {text}: batch sizes start at 1 and increase; {form}.")
    return batches


def doubled(first: int, last: int) -> tuple[int, ...]:
    """`first` and its doubles up to `last`."""
    return tuple(first << n for n in range((last // first).bit_length()))


def parse_bytes(text: str, option: str) -> int:
    """A size as in 8GB (10⁹ bytes each), 8GiB, 500MB or 12e9.

    Raises:
        CurvescopeError: not of this form, or not positive.
    """
    units = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    try:
        size = round(float(match[1]) * units[match[2]]) if match else 0
    except (ValueError, KeyError):
        size = 0
    if size < 1:
        raise CurvescopeError(f"{option} {text}: a size, as in 8GB, 8GiB or 500MB.")
    return size
