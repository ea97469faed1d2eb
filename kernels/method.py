"""How a problem is measured: verified first, then sampled in visits until its median is known well enough.

A visit runs the problem once or more without keeping it, then takes samples for a while. The problems of a sweep are
visited in turn, so that slow drift of the machine touches all of them. The medians of the visits bracket the median of
the problem: between order statistics of six or more independent values it lies with 95 % whatever their distribution
(David and Nagaraja, Order Statistics, 3rd edition, section 7.1), and unlike single samples visits see the drift.
"""

from __future__ import annotations

import math
import statistics
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from .backends import Backend, Prepared, UnsupportedError
from .conditions import Conditions, Note, describe_disturbance
from .problem import Array, Error, Problem
from .timers import Run, Sample, Timer

CONFIDENCE = 0.95
# A sample lasts at least this many resolutions of its timer: the reading's own error is below 0.2 %.
SAMPLE_RESOLUTIONS = 500
# The least of a few: a single one may hold an interruption, and look long enough.
_CALIBRATION_SAMPLES = 3
# No interruption makes a run that long that is too short for a timer.
_CERTAINLY_LONG_NS = 10_000_000
# An interval needs visits, so they may take longer than the time limit, but not for ever.
_OVERTIME = 4
CACHES = ("cold", "hot")


class Outcome:
    """What became of a problem; only the first and the third are timed."""

    OK = "ok"
    INCORRECT = "incorrect"  # its result is not the reference's: not timed
    NOT_VERIFIED = "not_verified"  # timed without a check
    UNSUPPORTED = "unsupported"  # the backend or the device has no such operation
    FAILED = "failed"  # it raised an error


@dataclass(frozen=True)
class Method:
    """How problems are measured; recorded with every result.

    Attributes:
        cache: cold: a buffer twice the last-level cache is gone through before every sample; hot: nothing is, so that
            what fits a cache stays there.
        until: stop once the interval of the median is within this share of it to either side.
        time_limit_s: time for one problem, after which it is left as it is.
        visits: least and most visits.
        visit_s: time a visit samples for.
        samples_per_visit: least and most samples of a visit.
        profile: whether each visit ends with one call under the profiler, to see the kernels; it takes some 20 ms more
            than the call.
        verify: whether results are checked before they are timed.
    """

    cache: str = "cold"
    until: float = 0.01
    time_limit_s: float = 3.0
    visits: tuple[int, int] = (6, 60)
    visit_s: float = 0.1
    samples_per_visit: tuple[int, int] = (1, 200)
    profile: bool = True
    verify: bool = True


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Two of the values between which the median of their distribution lies with 95 %; null for fewer than six."""
    ordered = sorted(values)
    # The j-th smallest lies above the median where fewer than j values lie below it, as many as heads in n tosses.
    j = int(binom.ppf((1 - CONFIDENCE) / 2, len(ordered), 0.5))
    while j > 0 and 2 * binom.cdf(j - 1, len(ordered), 0.5) > 1 - CONFIDENCE:
        j -= 1
    return (ordered[j - 1], ordered[-j]) if j > 0 else None


class Verdict(NamedTuple):
    """The outcome of a problem, a sentence for it where it is not ok, and the error that was found."""

    outcome: str
    detail: str = ""
    error: Error | None = None


@dataclass
class Measurement:
    """One problem on one backend: its verdict and, visit by visit, its samples.

    Attributes:
        problem: what is measured.
        seed: of its operands.
        calls: runs in one sample.
        inner: times the problem is done in one run.
        visits: the samples of each visit.
        conditions: of each visit.
        discarded: samples that were not kept, counted by reason.
        verdict: null before the first visit.
    """

    problem: Problem
    seed: int = 0
    calls: int = 1
    inner: int = 1
    visits: list[list[Sample]] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)
    discarded: Counter[str] = field(default_factory=Counter)
    verdict: Verdict | None = None
    spent_s: float = 0.0
    _prepared: Prepared | None = None

    @property
    def timed(self) -> bool:
        """Whether its outcome lets it be timed."""
        return self.verdict is not None and self.verdict.outcome in (Outcome.OK, Outcome.NOT_VERIFIED)

    def durations_ns(self) -> list[float]:
        """Of all samples."""
        return [sample.duration_ns for visit in self.visits for sample in visit]

    def fastest_visit_ns(self) -> float | None:
        """The least median of a visit; null where there was none."""
        return min((statistics.median(s.duration_ns for s in visit) for visit in self.visits), default=None)

    def interval_ns(self) -> tuple[float, float] | None:
        """Of the median; null for fewer than six visits."""
        interval = median_interval([statistics.median(s.duration_ns for s in visit) for visit in self.visits])
        if interval is None:
            return None
        median = statistics.median(self.durations_ns())
        return min(interval[0], median), max(interval[1], median)

    def done(self, method: Method) -> bool:
        """Whether it needs no further visit."""
        if self.verdict is not None and not self.timed:
            return True
        least, most = method.visits
        if len(self.visits) < least:
            return self.spent_s > _OVERTIME * method.time_limit_s
        if len(self.visits) >= most or self.spent_s >= method.time_limit_s:
            return True
        interval = self.interval_ns()
        assert interval is not None
        return (interval[1] - interval[0]) / 2 <= method.until * statistics.median(self.durations_ns())

    def prepare(self, backend: Backend, method: Method) -> Prepared | None:
        """Make operands and kernel, and at the first time verify; null where the problem is not to be timed."""
        if self._prepared is not None:
            return self._prepared
        if self.verdict is not None and not self.timed:
            return None
        operands = self.problem.operands(np.random.default_rng(self.seed))
        try:
            prepared = backend.prepare(self.problem, operands)
            if self.verdict is None:
                prepared.run()
                self.discarded["verified"] += 1
                self.verdict = _verify(self.problem, operands, prepared, method)
        except (UnsupportedError, NotImplementedError) as error:
            self.verdict = Verdict(Outcome.UNSUPPORTED, str(error))
        except Exception as error:  # whatever a library raises is the problem's outcome; the other problems go on
            if "not implemented for" in str(error):  # torch's words where a kernel lacks a number format
                self.verdict = Verdict(Outcome.UNSUPPORTED, str(error).splitlines()[0])
                return None
            where = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            self.verdict = Verdict(Outcome.FAILED, line)
        if self.timed:
            self._prepared, self.inner = prepared, prepared.inner
        return self._prepared

    def release(self) -> None:
        """Give the operands back; the next visit makes them again."""
        self._prepared = None

    def visit(self, backend: Backend, method: Method) -> list[Sample]:
        """Take the samples of one visit; none where the problem is not to be timed."""
        prepared = self.prepare(backend, method)
        if prepared is None:
            return []
        before = _before(backend, prepared, method)
        timer = prepared.timer or backend.timer
        backend.watch.begin()
        (first,) = timer.take(prepared.run, 1, 1, before)  # fresh memory and cold code are its price
        if first.duration_ns > _OVERTIME * method.time_limit_s * 1e9:
            # So long that a second run would take all the time again: this one must do. It is no first one, which
            # may hold a compilation: the verified run came before.
            return self._keep([first], prepared, backend.watch.end())
        self.discarded["warm-up"] += 1
        sample_ns = self.calls * first.duration_ns
        if method.cache == "cold":
            sample_ns += backend.flush_ns
        elif not self.visits and first.duration_ns < _CERTAINLY_LONG_NS:
            self.calls, call_ns = _calibrate(timer, prepared, self.discarded)
            sample_ns = self.calls * call_ns
        least, most = method.samples_per_visit
        count = max(least, min(most, round(method.visit_s * 1e9 / max(sample_ns, 1))))
        taken = timer.take(prepared.run, self.calls, count, before)
        return self._keep(taken, prepared, backend.watch.end())

    def _keep(self, taken: list[Sample], prepared: Prepared, conditions: Conditions) -> list[Sample]:
        """Add the samples of a visit, or drop them where the device throttled."""
        inner = prepared.inner
        samples = taken if inner == 1 else [Sample(start, duration / inner) for start, duration in taken]
        self.conditions.append(conditions)
        self.spent_s += conditions.wall_ns / 1e9
        if conditions.throttle_reasons:
            self.discarded["throttled: " + ", ".join(conditions.throttle_reasons)] += len(samples)
            return []
        self.visits.append(samples)
        return samples

    def notes(self, backend: Backend, method: Method) -> list[Note]:
        """What a reader of the numbers should know."""
        if not self.timed:
            return []
        notes = describe_disturbance(self.conditions)
        if not self.visits:
            return notes
        median = statistics.median(self.durations_ns())
        interval = self.interval_ns()
        if interval is None:
            notes.append(Note("visits", 0, "fewer than six visits: no interval; give it more with --time-limit"))
        elif (share := (interval[1] - interval[0]) / 2 / median) > method.until:
            reached = f"within {share:.1%}" if share < 1 else "not within 100%"
            sentence = (
                f"{reached} when the time was up, {method.until:.1%} was asked for: give it more with --time-limit"
            )
            notes.append(Note("precision", share, sentence))
        sample_ns = median * self.calls * self.inner
        if sample_ns < SAMPLE_RESOLUTIONS / 2 * backend.timer.resolution_ns:
            share = backend.timer.resolution_ns / sample_ns
            sentence = f"the timer resolves only {share:.1%} of it: --cache hot times many calls at once"
            notes.append(Note("resolution", share, sentence))
        return notes


def _verify(problem: Problem, operands: tuple[Array, ...], prepared: Prepared, method: Method) -> Verdict:
    if not method.verify:
        return Verdict(Outcome.NOT_VERIFIED, "not asked for")
    result = prepared.result()
    error = None if result is None else problem.error(operands, result)
    if error is None:
        return Verdict(Outcome.NOT_VERIFIED, "it keeps no result")
    if error.acceptable:
        return Verdict(Outcome.OK, "", error)
    detail = f"its result is off by {error.largest:.3g}, {error.allowed:.3g} is allowed: not timed"
    return Verdict(Outcome.INCORRECT, detail, error)


def _before(backend: Backend, prepared: Prepared, method: Method) -> Run | None:
    """What runs ahead of every sample."""
    if method.cache == "hot":
        return prepared.before
    if prepared.before is None:
        return backend.flush
    own = prepared.before

    def both() -> None:
        backend.flush()
        own()

    return both


def _calibrate(timer: Timer, prepared: Prepared, discarded: Counter[str]) -> tuple[int, float]:
    """Calls that make a sample long enough for the timer, and the time of one of them."""
    enough_ns = SAMPLE_RESOLUTIONS * timer.resolution_ns
    calls = 1
    while True:
        samples = timer.take(prepared.run, calls, _CALIBRATION_SAMPLES, prepared.before)
        discarded["calibration"] += len(samples)
        call_ns = min(sample.duration_ns for sample in samples)
        sample_ns = max(call_ns * calls, 1)
        if sample_ns >= enough_ns:
            return calls, call_ns
        # A tenth more than it takes by this sample, but not tenfold at once: it is short, and so not exact.
        calls = min(10 * calls, math.ceil(1.1 * calls * enough_ns / sample_ns))
