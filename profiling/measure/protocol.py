"""Measuring protocols, and the parsers of batch sizes and memory sizes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...base.errors import CurvescopeError
from ...base.sizes import parse_sizes


@dataclass(frozen=True)
class Protocol:
    """How a sweep measures; printed with every result.

    A visit marks as many steps as it times unprofiled, on a CPU, and profiles as many, but at least
    one, at most `profiled_steps`, and none that would make its profiled part longer than the rest
    of the visit: profiling at most about doubles a visit, or adds one step to it where that step
    alone takes longer.

    Attributes:
        name: name of the protocol.
        rounds: minimum and maximum number of rounds over all batch sizes; `time_limit_s` and
            `until` choose between.
        discarded_steps: minimum number of steps at the start of each visit that are not recorded;
            at least one. On a GPU as many more are discarded as take 100 ms, there and before every
            profiled step, to raise its clocks.
        steps_per_visit: minimum and maximum number of unprofiled steps of one visit; `visit_s`
            chooses between.
        visit_s: seconds for the unprofiled steps of one visit.
        profiled_steps: maximum number of profiled steps of one visit; 0 for none.
        time_limit_s: seconds of the run, in which as many rounds and sizes are measured as fit, see
            `affordable`; None runs all rounds.
        statistic: of the unprofiled steps that is their pace: mean of the faster half, median or
            mean. T(b) is then the mean of all steps, or the same median or mean.
        until: half-width of the widest interval of any T(b), as a share of T(b), at which to stop;
            None: never.
        images: samples of all rounds together, so that a batch size takes images/batch steps; None:
            the number of steps does not depend on the batch size.
        profiled_rounds: rounds in which a batch size is profiled, where marks time its layers in
            every round; on a GPU, which has no marks, every second one after them too; None: all.
    """

    name: str
    rounds: tuple[int, int]
    discarded_steps: int
    steps_per_visit: tuple[int, int]
    visit_s: float
    profiled_steps: int
    time_limit_s: float | None
    statistic: str = "mean of the faster half"  # analysis/decompose/statistics.py says why
    until: float | None = None
    images: int | None = None
    profiled_rounds: int | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether a publication fixes the number of rounds."""
        return self.rounds[0] == self.rounds[1]

    @property
    def chooses_steps(self) -> bool:
        """Whether the number of steps of a visit is not fixed."""
        return self.steps_per_visit[0] < self.steps_per_visit[1]

    def steps_of_visit(self, batch: int, discarded_ns: int) -> int:
        """Number of unprofiled steps of one visit, from the duration of its last discarded step."""
        if self.images is not None:
            return max(1, math.ceil(self.images / (batch * self.rounds[0])))
        least, most = self.steps_per_visit
        return max(least, min(most, round(self.visit_s / max(discarded_ns / 1e9, 1e-6))))

    def is_filled_by(self, step_ns: float) -> bool:
        """Whether a step takes a visit by itself."""
        return step_ns >= 1e9 * self.visit_s > 0


PROTOCOLS = {
    "default": Protocol("default", (6, 40), 1, (1, 8), 0.3, 8, 60.0, profiled_rounds=2),
    "quick": Protocol("quick", (4, 12), 1, (1, 4), 0.15, 4, 27.0, profiled_rounds=2),
    # The post that published the VGG times on a GTX 1080: the mean of 100 runs.
    "addfor": Protocol("addfor", (10, 10), 1, (10, 10), 0.0, 8, None, "mean"),
    # Images/s over all epochs · images / (batch · devices) iterations. Five rounds give a spread.
    "dell": Protocol("dell", (5, 5), 1, (1, 1), 0.0, 8, None, "mean", images=10_000),
    # 20 steps ignored, 100 measured, 7 times; the median.
    "dlperf": Protocol("dlperf", (7, 7), 20, (100, 100), 0.0, 8, None, "median"),
}

# One profiled step, and one unprofiled one before it: nothing is timed.
ONE_STEP = Protocol("one step", (1, 1), 1, (1, 1), 0.0, 1, None)
# Of a visit of an experiment on complete steps, as in a quick sweep: more would not help, because
# rounds vary more.
EXPERIMENT = Protocol("experiment", (1, 1), 1, (1, 4), 0.15, 0, None)


def get_protocol(name: str) -> Protocol:
    """Find a protocol by name."""
    if name not in PROTOCOLS:
        raise CurvescopeError(f"--protocol {name}: choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


def parse_batches(text: str, option: str = "--batch") -> tuple[int, ...]:
    """Parse batch sizes, or values of another axis, which increase; see `base.sizes`."""
    batches = parse_sizes(option, text)
    if list(batches) != sorted(set(batches)):
        raise CurvescopeError(f"{option} {text}: write sizes that increase, each once.")
    return batches


def parse_bytes(text: str, option: str) -> int:
    """Parse a number of bytes, e.g. 8GB (10⁹ bytes each), 8GiB, 500MB or 12e9."""
    units = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    try:
        size = round(float(match[1]) * units[match[2]]) if match else 0
    except (ValueError, KeyError):
        size = 0
    if size < 1:
        raise CurvescopeError(f"{option} {text}: write a size, e.g. 8GB, 8GiB or 500MB.")
    return size
