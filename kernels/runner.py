"""Runs the problems of a sweep on a backend and writes them as a recording that `explain` and
`breakdown` read.

A sample is a row of `steps`, with the axis value as its batch. A profiled call gives rows of
`kernels`.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..base.masking import without_secrets
from ..profiling.attribution.events import StepRows
from ..profiling.hardware import ceilings
from ..profiling.hardware.host import describe_environment
from ..profiling.hardware.limits import Hardware, OfPeak, hardware_of
from ..profiling.hardware.locked_clocks import read_locked_clock_hz
from ..profiling.hardware.register import register
from ..profiling.measure.loop import SEED, Loop, VisitWriter
from ..profiling.measure.sites.site import AS_LEFT, RUN, Facts, Site
from ..profiling.measure.stopping import Complete
from ..profiling.measure.visits import Visit, VisitPlan
from ..profiling.recording.schema import OPERATOR_MODE
from ..profiling.recording.store import RecordingWriter
from .backends import Backend
from .conditions import Conditions, Note
from .method import BenchMeasurement, Method
from .problem import Error, Problem
from .sweeps import Sweep

# Operands of all problems of a sweep are kept up to this total size, on a GPU also up to a share of
# its memory, which holds a working set for each memory level; beyond it, each visit creates its own
# again (5 s a gigabyte).
_KEPT_BYTES, _KEPT_SHARE = 1_000_000_000, 1 / 3


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measured result of one problem; durations are of one call.

    Attributes:
        problem: label of the problem.
        value: value of the problem on the sweep's axis.
        outcome: one of `method.Outcome`.
        detail: a sentence if the outcome is not ok.
        error: largest error, in the result's unit; None if nothing was compared or the error is not
            finite.
        error_allowed: largest acceptable error.
        error_projected: whether sums with random signs were compared instead of each element.
        n: number of kept samples.
        visits: number of visits with kept samples.
        calls: calls of the problem in one sample.
        median_ns: median duration; None, like the durations below, if nothing was timed.
        low_ns: lower end of the median's interval; None for fewer than six visits.
        high_ns: upper end of the median's interval; None for fewer than six visits.
        best_ns: shortest sample.
        fastest_visit_ns: smallest median of a visit.
        clock_hz: lowest and highest clock of the device over the visits; None if unknown.
        flops: FLOPs of one call, by the direct algorithm.
        bytes_compulsory: bytes of one call, each operand once.
        parts: number and name of the units that one call consists of, e.g. (20000, "load"), if the
            table shows the duration of one unit; else None.
        discarded: number of discarded samples by reason.
        notes: disturbances and limits of the precision.
        gflop_per_s: FLOPs of the direct algorithm over the median.
        gb_per_s: compulsory bytes over the median; GB is 10⁹ bytes.
        of_peak: the roof of the device that it comes nearest to, and its share of that; None where
            no roof is known. Operands that stay in the last-level cache are none of DRAM.
        axes: values of its axes, by name.
        kernels: the kernels of one call on a GPU by name, with their numbers, as a profiler saw
            them: how much of it the library fused. None on a CPU and without a profile.
    """

    problem: str
    value: int
    outcome: str
    detail: str
    error: float | None
    error_allowed: float | None
    error_projected: bool
    n: int
    visits: int
    calls: int
    median_ns: float | None
    low_ns: float | None
    high_ns: float | None
    best_ns: float | None
    fastest_visit_ns: float | None
    clock_hz: tuple[int, int] | None
    flops: int | None
    bytes_compulsory: int | None
    parts: tuple[int, str] | None
    discarded: dict[str, int]
    notes: tuple[Note, ...]
    of_peak: OfPeak | None = None
    axes: Mapping[str, int | str] = field(default_factory=dict)
    kernels: Mapping[str, int] | None = None
    gflop_per_s: float | None = field(init=False)
    gb_per_s: float | None = field(init=False)

    def __post_init__(self) -> None:
        for name, amount in (("gflop_per_s", self.flops), ("gb_per_s", self.bytes_compulsory)):
            rate = amount / self.median_ns if amount and self.median_ns else None
            object.__setattr__(self, name, rate)

    @property
    def uncertainty(self) -> float | None:
        """Half the interval of the median, as a fraction of the median."""
        if self.median_ns is None or self.low_ns is None or self.high_ns is None:
            return None
        return (self.high_ns - self.low_ns) / 2 / self.median_ns


def kept_bytes(device: Mapping[str, Any]) -> int:
    """Bytes of the operands that are kept between the visits of a sweep, on a device
    (`Backend.describe`).
    """
    return max(_KEPT_BYTES, int(_KEPT_SHARE * (device.get("memory_bytes") or 0)))


def run_sweep(
    sweep: Sweep,
    backend: Backend,
    method: Method,
    path: Path,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Measure the problems of one sweep, and record them in a new folder, marked if it is
    interrupted.

    After every visit `report` receives the problem's current result.
    """
    device = backend.describe()
    meta = _metadata(sweep, backend, method, device)
    with register(f"bench of {sweep.label}"), RecordingWriter(path, meta) as writer:
        hardware = hardware_of(meta)
        sites = {
            value: ProblemSite(sweep, value, backend, method, hardware) for value in sweep.problems
        }
        visits = VisitWriter(writer, OPERATOR_MODE)
        works = [problem.work for problem in sweep.problems.values()]
        keeps = sum(work.bytes_compulsory or 0 for work in works) <= kept_bytes(device)

        def visit(value: int, round_: int) -> None:
            visits.write(value, round_, sites[value].visit(value))
            report(sites[value].result(value))
            if not keeps:
                sites[value].end()

        def results() -> list[Result]:
            begun = [value for value, site in sites.items() if site.measurement.verification]
            return [sites[value].result(value) for value in begun]

        try:
            Loop(
                conditions=tuple(sites),
                visit=visit,
                rule=Complete((0, None)),
                finished=lambda value: sites[value].measurement.done(method),
            ).run()
        finally:
            writer.update(results=[asdict(result) for result in results()])
    return results()


def _metadata(
    sweep: Sweep, backend: Backend, method: Method, device: dict[str, Any]
) -> dict[str, Any]:
    timer = {"timer": backend.timer.name, "empty_ns": backend.timer.empty_ns}
    settings = {"name": "bench", "statistic": "median", **timer}
    return {
        "recording_type": "bench",
        "argv": without_secrets(sys.argv[1:]),
        "network": sweep.label,
        "step": OPERATOR_MODE,
        "batches": list(sweep.problems),
        "batch_axis": sweep.axis,
        "layers": sweep.layers,
        "phase": sweep.phase,
        "around": None if sweep.around is None else asdict(sweep.around),
        "protocol": settings | asdict(method),
        "backend": backend.name,
        "seed": SEED,
        "device": device,
        "ceilings": ceilings.entry_for(device),
        "locked_sm_clock_hz": read_locked_clock_hz(),
        **describe_environment(),
    }


class ProblemSite(Site):
    """One problem on a backend, whose call is the step of a visit."""

    def __init__(
        self, sweep: Sweep, value: int, backend: Backend, method: Method, hardware: Hardware
    ) -> None:
        """Take the problem of a sweep's value, and the limits of its device; nothing runs."""
        self.measurement = BenchMeasurement(sweep.problems[value], SEED)
        self._sweep, self._backend, self._method = sweep, backend, method
        self._hardware = hardware
        self._kernels: Counter[str] | None = None  # of one profiled call

    def facts(self) -> Facts:
        """What happens around timed calls; the first of a visit is discarded."""
        caches = AS_LEFT if self._method.cache == "hot" else self._method.cache
        return Facts(RUN, discards=1, samples_clocks=True, caches=caches)

    def visit(self, condition: int, how: VisitPlan | None = None) -> Visit:
        """Take the samples of one visit, and profile a call that is short enough."""
        del condition, how  # the site has one problem, and its method
        before = len(self.measurement.conditions)
        samples = self.measurement.take(self._backend, self._method)
        limit_ns = self._method.time_limit_s * 1e9
        unprofiled, profiled = [], []
        for sample in samples:
            duration_ns = round(sample.duration_ns)
            unprofiled.append({"start_ns": sample.start_ns, "duration_ns": duration_ns})
        if self._method.profile and samples and samples[0].duration_ns < limit_ns:
            profiled.append(self._profile())
        clocks = [_clock_row(each) for each in self.measurement.conditions[before:]]
        return Visit(unprofiled, profiled, clocks=clocks)

    def end(self) -> None:
        """Free the operands; a later visit creates them again."""
        self.measurement.release()

    def _profile(self) -> StepRows:
        """One call under the profiler, with the problem's work on its longest kernel."""
        prepared = self.measurement.prepare(self._backend, self._method)
        assert prepared is not None
        if self._method.cache == "cold":
            self._backend.flush()
        rows = self._backend.record(prepared.run, self._sweep.layer, self._sweep.phase)
        if rows is None:
            timer = prepared.timer or self._backend.timer
            (run,) = timer.take(prepared.run, 1, 1, prepared.before)
            duration_ns = round(run.duration_ns / prepared.inner)
            kernel = {
                "name": prepared.kernel,
                "start_ns": run.start_ns,
                "duration_ns": duration_ns,
                "layer": self._sweep.layer,
                "phase": self._sweep.phase,
                "source": "bench",
            }
            rows = StepRows([kernel], [(run.start_ns, duration_ns)], {})
        elif self._backend.describe()["kind"] == "cuda":  # a CPU has parts of operators, no kernels
            self._kernels = Counter(str(row["name"]) for row in rows.kernels)
        if rows.kernels:
            work = self.measurement.problem.work
            longest = max(rows.kernels, key=lambda row: row["duration_ns"])
            longest |= {"flops": work.flops, "bytes_compulsory": work.bytes_compulsory}
        return rows

    def result(self, value: int) -> Result:
        """The measured result so far, at a value of the sweep."""
        measurement = self.measurement
        assert measurement.verification is not None
        outcome, detail, error = measurement.verification
        problem = measurement.problem
        work = problem.work
        times = _describe_times(measurement)
        return Result(
            problem=problem.label,
            value=value,
            outcome=outcome,
            detail=detail,
            **_describe_error(error),
            **times,
            of_peak=self._of_peak(times["median_ns"]),
            axes=axes_of(problem),
            kernels=None if self._kernels is None else dict(self._kernels),
            flops=work.flops,
            bytes_compulsory=work.bytes_compulsory,
            parts=getattr(problem, "parts", None),
            discarded=dict(measurement.discarded),
            notes=tuple(measurement.notes(self._backend, self._method)),
        )

    def _of_peak(self, median_ns: float | None) -> OfPeak | None:
        """The share of the roof that the problem comes nearest to."""
        problem = self.measurement.problem
        if not median_ns or getattr(problem, "parts", None):
            return None
        flops = {problem.precision: problem.work.flops or 0}
        size = problem.work.bytes_compulsory or 0
        is_cold = self._method.cache == "cold"
        moves = is_cold or size > (self._hardware.cache_bytes or 0)
        bytes_per_s = size / median_ns * 1e9 if size and moves else None
        return self._hardware.of_peak(flops, median_ns / 1e9, bytes_per_s)


def axes_of(problem: Problem) -> dict[str, int | str]:
    """The values of a problem's axes, by name; a pair as 2x1."""
    axes: dict[str, int | str] = {}
    for name in getattr(problem, "__dataclass_fields__", {}):
        value = getattr(problem, name)
        if isinstance(value, tuple):
            axes[name] = "x".join(map(str, value))
        elif isinstance(value, (int, str)):
            axes[name] = value
    return axes


def _describe_error(error: Error | None) -> dict[str, Any]:
    if error is None:
        return {"error": None, "error_allowed": None, "error_projected": False}
    largest = error.largest if math.isfinite(error.largest) else None
    return {
        "error": largest,
        "error_allowed": error.allowed,
        "error_projected": error.projected,
    }


def _describe_times(measurement: BenchMeasurement) -> dict[str, Any]:
    durations = measurement.durations_ns()
    interval = measurement.interval_ns() if durations else None
    low, high = interval or (None, None)
    clocks = [each.clock_hz for each in measurement.conditions if each.clock_hz]
    medians = measurement.visit_medians_ns()
    return {
        "n": len(durations),
        "visits": len(measurement.visits),
        "calls": measurement.calls * measurement.inner,
        "median_ns": statistics.median(durations) if durations else None,
        "low_ns": low,
        "high_ns": high,
        "best_ns": min(durations, default=None),
        "fastest_visit_ns": min(medians, default=None),
        "clock_hz": (min(clocks), max(clocks)) if clocks else None,
    }


def _clock_row(conditions: Conditions) -> dict[str, Any]:
    """A row of `clocks`."""
    reasons = conditions.throttle_reasons
    text = None if reasons is None else "|".join(reasons)
    return {
        "start_ns": conditions.start_ns,
        "sm_clock_hz": conditions.clock_hz,
        "throttle_reasons": text,
    }
