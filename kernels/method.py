"""How a problem is measured: verified first, then sampled in visits until its median is known well
enough.

The problems of a sweep are visited in turn, so slow drift of the machine affects all of them
equally. The interval of the median is taken from the medians of the visits, which contain the
drift, unlike single samples.
"""

from __future__ import annotations

import math
import statistics
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr

from .backends import Backend, Prepared, UnsupportedError, run_in_turn
from .conditions import Conditions, Note, describe_disturbance
from .problem import Array, Error, Problem
from .timers import Run, Sample, Timer, without_waiting

CONFIDENCE = 0.95
# A sample lasts at least this many timer resolutions, so the timer's error stays below 0.2 %.
SAMPLE_RESOLUTIONS = 500
# Calibration uses the minimum of several samples, because a single one may contain an interruption.
_CALIBRATION_SAMPLES = 3
# No interruption makes a run this long that is really too short for a timer.
_CERTAINLY_LONG_NS = 10_000_000
# An interval needs several visits, so visits may exceed the time limit, but only up to this factor.
_OVERTIME = 4


class BenchOutcome:
    """Result of preparing and verifying a problem; only OK and NOT_VERIFIED problems are timed."""

    OK = "ok"
    INCORRECT = "incorrect"  # the result differs from the reference; not timed
    NOT_VERIFIED = "not_verified"  # timed without a check
    UNSUPPORTED = "unsupported"  # the backend or the device lacks this operation
    FAILED = "failed"  # it raised an error


TIMED = (BenchOutcome.OK, BenchOutcome.NOT_VERIFIED)


@dataclass(frozen=True)
class Method:
    """Settings of a measurement; recorded with every result.

    Attributes:
        cache: "cold" clears the caches before every sample by reading a buffer twice the size of
            the last-level cache. "hot" leaves data in the caches.
        until: target half-width of the median's interval, as a fraction of the median; sampling
            stops there.
        time_limit_s: time for one problem; sampling stops then even if `until` is not reached.
        visits: least and most visits.
        visit_s: sampling time of one visit.
        samples_per_visit: least and most samples of a visit.
        profile: whether each visit ends with one call under the profiler, to record its kernels.
            This takes some 20 ms more than the call.
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
    """Two of the values that bracket the median of their distribution with 95 % confidence; None
    for fewer than six.
    """
    ordered, j = sorted(values), _find_rank(len(values))
    return (ordered[j - 1], ordered[-j]) if j > 0 else None


@cache
def _find_rank(count: int) -> int:
    """The j of the j-th smallest and j-th largest of so many values that bracket the median; 0 if
    none do.
    """
    # Two order statistics bracket the median: David and Nagaraja, Order Statistics, 3rd edition,
    # section 7.1. The j-th smallest lies above the median if fewer than j values lie below it: a
    # binomial count with p = 1/2.
    fewer = bdtr(np.arange(count), count, 0.5)
    return int(np.count_nonzero(2 * fewer <= 1 - CONFIDENCE))


class Verification(NamedTuple):
    """The outcome of a problem, a sentence about it unless it is ok, and the error against the
    reference.
    """

    outcome: str
    detail: str = ""
    error: Error | None = None


@dataclass
class BenchMeasurement:
    """One problem on one backend: its outcome, and its samples visit by visit."""

    problem: Problem
    seed: int = 0  # of the random operands
    calls: int = 1  # runs in one sample
    inner: int = 1  # repetitions of the problem in one run
    visits: list[list[Sample]] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)  # of all visits, also discarded ones
    discarded: Counter[str] = field(default_factory=Counter)  # number of samples by reason
    verification: Verification | None = None
    spent_s: float = 0.0  # duration of all visits so far
    _prepared: Prepared | None = None

    @property
    def timed(self) -> bool:
        """Whether the outcome allows timing."""
        return self.verification is not None and self.verification.outcome in TIMED

    def durations_ns(self) -> list[float]:
        """Durations of all samples, ns."""
        return [sample.duration_ns for visit in self.visits for sample in visit]

    def visit_medians_ns(self) -> list[float]:
        """Median duration of each visit, ns."""
        return [statistics.median(sample.duration_ns for sample in visit) for visit in self.visits]

    def interval_ns(self) -> tuple[float, float] | None:
        """Interval of the median, ns; None for fewer than six visits."""
        interval = median_interval(self.visit_medians_ns())
        if interval is None:
            return None
        median = statistics.median(self.durations_ns())
        return min(interval[0], median), max(interval[1], median)

    def done(self, method: Method) -> bool:
        """Whether no further visit is needed."""
        if self.verification is not None and not self.timed:
            return True
        least, most = method.visits
        if len(self.visits) < least:
            return self.spent_s > _OVERTIME * method.time_limit_s
        if len(self.visits) >= most or self.spent_s >= method.time_limit_s:
            return True
        interval = self.interval_ns()
        assert interval is not None
        return (interval[1] - interval[0]) / 2 <= method.until * statistics.median(
            self.durations_ns()
        )

    def prepare(self, backend: Backend, method: Method) -> Prepared | None:
        """Create operands and kernel, and verify on the first call; None where the problem is not
        to be timed.
        """
        if self._prepared is not None:
            return self._prepared
        if self.verification is not None and not self.timed:
            return None
        operands = self.problem.operands(np.random.default_rng(self.seed))
        try:
            prepared = backend.prepare(self.problem, operands)
            if self.verification is None:
                prepared.run()
                self.discarded["verified"] += 1
                self.verification = _verify(self.problem, operands, prepared, method)
        except (UnsupportedError, NotImplementedError) as error:
            self.verification = Verification(BenchOutcome.UNSUPPORTED, str(error))
        except (
            Exception
        ) as error:  # any library error is the outcome of this problem; the others continue
            if "not implemented for" in str(error):  # torch's message for an unsupported dtype
                self.verification = Verification(
                    BenchOutcome.UNSUPPORTED, str(error).splitlines()[0]
                )
            else:
                where = traceback.extract_tb(error.__traceback__)[-1]
                line = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
                self.verification = Verification(BenchOutcome.FAILED, line)
        if self.timed:
            if method.cache == "cold" and prepared.once is not None:
                prepared = prepared._replace(run=prepared.once, inner=1)
            self._prepared, self.inner = prepared, prepared.inner
        return self._prepared

    def release(self) -> None:
        """Free the operands; the next visit creates them again."""
        self._prepared = None

    def take(self, backend: Backend, method: Method) -> list[Sample]:
        """Take the samples of one visit; empty where the problem is not to be timed."""
        prepared = self.prepare(backend, method)
        if prepared is None:
            return []
        before = _before(backend, prepared, method)
        timer = prepared.timer or backend.timer
        backend.watch.begin()
        (first,) = timer.take(prepared.run, 1, 1, before)  # includes fresh memory and cold code
        if first.duration_ns > _OVERTIME * method.time_limit_s * 1e9:
            # A second run would exceed the time limit again, so this sample is kept. It contains no
            # compilation: the verification ran before.
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

    def _keep(
        self, taken: list[Sample], prepared: Prepared, conditions: Conditions
    ) -> list[Sample]:
        """Add the samples of a visit; discard those that waited for the host, and all if the device
        throttled.
        """
        inner = prepared.inner
        samples = [s._replace(duration_ns=s.duration_ns / inner) for s in without_waiting(taken)]
        if waiting := len(taken) - len(samples):
            self.discarded["waited for the host"] += waiting
        self.conditions.append(conditions)
        self.spent_s += conditions.wall_ns / 1e9
        if conditions.throttle_reasons:
            self.discarded["throttled: " + ", ".join(conditions.throttle_reasons)] += len(samples)
            return []
        self.visits.append(samples)
        return samples

    def notes(self, backend: Backend, method: Method) -> list[Note]:
        """Notes on precision and disturbances, each with a remedy."""
        if not self.timed:
            return []
        notes = describe_disturbance(self.conditions)
        if not self.visits:
            return notes
        median = statistics.median(self.durations_ns())
        waited = statistics.mean(sample.waits_for_host for visit in self.visits for sample in visit)
        if waited > 0.5:
            sentence = (
                "host-bound: the device waited for the host in every sample, so times contain the "
                "host's work: measure a larger problem"
            )
            notes.append(Note("host-bound", waited, sentence))
        interval = self.interval_ns()
        if interval is None:
            notes.append(
                Note("visits", 0, "fewer than six visits, so no interval: raise --time-limit")
            )
        elif (share := (interval[1] - interval[0]) / 2 / median) > method.until:
            reached = f"within {share:.1%}" if share < 1 else "not within 100%"
            sentence = (
                f"{reached} at the time limit, requested {method.until:.1%}: raise --time-limit"
            )
            notes.append(Note("precision", share, sentence))
        sample_ns = median * self.calls * self.inner
        timer = backend.timer
        if sample_ns < SAMPLE_RESOLUTIONS / 2 * timer.resolution_ns:
            share = timer.resolution_ns / sample_ns
            what = "the timer's resolution" if timer.empty_ns is None else "an empty pair of events"
            sentence = f"{what} is {share:.1%} of a sample: --cache hot times many calls at once"
            notes.append(Note("resolution", share, sentence))
        if note := getattr(self.problem, "note", None):
            notes.append(note)
        return notes


def _verify(
    problem: Problem, operands: tuple[Array, ...], prepared: Prepared, method: Method
) -> Verification:
    if not method.verify:
        return Verification(BenchOutcome.NOT_VERIFIED, "verification was not requested")
    result = prepared.result()
    error = None if result is None else problem.error(operands, result)
    if error is None:
        return Verification(BenchOutcome.NOT_VERIFIED, "there is no result or no reference")
    if error.acceptable:
        return Verification(BenchOutcome.OK, "", error)
    detail = f"the result is off by {error.largest:.3g}, allowed {error.allowed:.3g}: not timed"
    return Verification(BenchOutcome.INCORRECT, detail, error)


def _before(backend: Backend, prepared: Prepared, method: Method) -> Run | None:
    """The function to run before every sample."""
    if method.cache == "hot":
        return prepared.before
    return backend.flush if prepared.before is None else run_in_turn(backend.flush, prepared.before)


def _calibrate(timer: Timer, prepared: Prepared, discarded: Counter[str]) -> tuple[int, float]:
    """The number of calls that makes a sample long enough for the timer, and the time of one call,
    ns.
    """
    enough_ns = SAMPLE_RESOLUTIONS * timer.resolution_ns
    calls = 1
    while True:
        samples = timer.take(prepared.run, calls, _CALIBRATION_SAMPLES, prepared.before)
        discarded["calibration"] += len(samples)
        call_ns = min(sample.duration_ns for sample in samples)
        sample_ns = max(call_ns * calls, 1)
        if sample_ns >= enough_ns:
            return calls, call_ns
        # Aim 10 % beyond the estimate, but grow at most tenfold: the estimate from a short sample
        # is inexact.
        calls = min(10 * calls, math.ceil(1.1 * calls * enough_ns / sample_ns))
