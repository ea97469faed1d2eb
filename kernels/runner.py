"""Runs the problems of a sweep on a backend and writes them as a recording that `explain` and
`breakdown` read.

A sample is a row of `steps`, with the axis value as its batch; a profiled call gives rows of
`kernels`.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..base.masking import without_secrets
from ..profiling.attribution.events import StepRows
from ..profiling.hardware import ceilings
from ..profiling.hardware.host import describe_environment
from ..profiling.hardware.locked_clocks import read_locked_clock_hz
from ..profiling.hardware.register import registered
from ..profiling.measure.loop import SEED, Loop, VisitWriter
from ..profiling.measure.stopping import Complete
from ..profiling.measure.visits import Visit
from ..profiling.recording.schema import OPERATOR_MODE
from ..profiling.recording.store import RecordingWriter
from .backends import Backend
from .conditions import Note
from .method import BenchMeasurement, Method
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
    gflop_per_s: float | None = field(init=False)
    gb_per_s: float | None = field(init=False)

    def __post_init__(self) -> None:
        for name, amount in (("gflop_per_s", self.flops), ("gb_per_s", self.bytes_compulsory)):
            object.__setattr__(
                self, name, amount / self.median_ns if amount and self.median_ns else None
            )

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
    meta = {
        "recording_type": "bench",
        "argv": without_secrets(sys.argv[1:]),
        "network": sweep.label,
        "step": OPERATOR_MODE,
        "batches": list(sweep.problems),
        "batch_axis": sweep.axis,
        "layers": sweep.layers,
        "protocol": {
            "name": "bench",
            "statistic": "median",
            "timer": backend.timer.name,
            **asdict(method),
        },
        "backend": backend.name,
        "seed": SEED,
        "device": (device := backend.describe()),
        "ceilings": ceilings.entry_for(device),
        "locked_sm_clock_hz": read_locked_clock_hz(),
        **describe_environment(),
    }
    with registered(f"bench of {sweep.label}"), RecordingWriter(path, meta) as writer:
        run = _Run(sweep, backend, method, writer, report)
        try:
            conditions = tuple(sweep.problems)
            Loop(
                conditions=conditions,
                visit=run.visit,
                rule=Complete((0, None)),
                finished=run.finished,
            ).run()
        finally:
            writer.update(results=[asdict(result) for result in run.results()])
    return run.results()


class _Run:
    def __init__(
        self,
        sweep: Sweep,
        backend: Backend,
        method: Method,
        writer: RecordingWriter,
        report: Callable[[Result], None],
    ) -> None:
        self._sweep, self._backend, self._method, self._report = sweep, backend, method, report
        self._measurements = {
            value: BenchMeasurement(p, SEED) for value, p in sweep.problems.items()
        }
        self._visits = VisitWriter(writer, OPERATOR_MODE)
        self._keep = sum(
            p.work.bytes_compulsory or 0 for p in sweep.problems.values()
        ) <= kept_bytes(backend.describe())

    def results(self) -> list[Result]:
        return [
            self._result(value, m)
            for value, m in self._measurements.items()
            if m.verification is not None
        ]

    def finished(self, value: int) -> bool:
        return self._measurements[value].done(self._method)

    def visit(self, value: int, round_: int) -> None:
        measurement = self._measurements[value]
        before = len(measurement.conditions)
        samples = measurement.visit(self._backend, self._method)
        unprofiled = [
            {"start_ns": s.start_ns, "duration_ns": round(s.duration_ns)} for s in samples
        ]
        cheap = bool(samples) and samples[0].duration_ns < self._method.time_limit_s * 1e9
        profiled = [self._profile(measurement)] if cheap and self._method.profile else []
        clocks = [
            {
                "start_ns": conditions.start_ns,
                "sm_clock_hz": conditions.clock_hz,
                "throttle_reasons": None
                if conditions.throttle_reasons is None
                else "|".join(conditions.throttle_reasons),
            }
            for conditions in measurement.conditions[before:]
        ]
        self._visits.write(value, round_, Visit(unprofiled, profiled, clocks=clocks))
        self._report(self._result(value, measurement))
        if not self._keep:
            measurement.release()

    def _profile(self, measurement: BenchMeasurement) -> StepRows:
        """One call under the profiler, with the problem's work on its longest kernel."""
        prepared = measurement.prepare(self._backend, self._method)
        assert prepared is not None
        if self._method.cache == "cold":
            self._backend.flush()
        rows = self._backend.record(prepared.run, self._sweep.layer, self._sweep.phase)
        if rows is None:
            timer = prepared.timer or self._backend.timer
            (run,) = timer.take(prepared.run, 1, 1, prepared.before)
            window = run.start_ns, round(run.duration_ns / prepared.inner)
            kernel = {
                "name": prepared.kernel,
                "start_ns": window[0],
                "duration_ns": window[1],
                "layer": self._sweep.layer,
                "phase": self._sweep.phase,
                "source": "bench",
            }
            rows = StepRows([kernel], [window], {})
        if rows.kernels:
            work = measurement.problem.work
            longest = max(rows.kernels, key=lambda row: row["duration_ns"])
            longest |= {"flops": work.flops, "bytes_compulsory": work.bytes_compulsory}
        return rows

    def _result(self, value: int, measurement: BenchMeasurement) -> Result:
        assert measurement.verification is not None
        outcome, detail, error = measurement.verification
        durations = measurement.durations_ns()
        low, high = (measurement.interval_ns() if durations else None) or (None, None)
        work = measurement.problem.work
        clocks = [c.clock_hz for c in measurement.conditions if c.clock_hz]
        return Result(
            problem=measurement.problem.label,
            value=value,
            outcome=outcome,
            detail=detail,
            error=error.largest if error and math.isfinite(error.largest) else None,
            error_allowed=error.allowed if error else None,
            error_projected=error.projected if error else False,
            n=len(durations),
            visits=len(measurement.visits),
            calls=measurement.calls * measurement.inner,
            median_ns=statistics.median(durations) if durations else None,
            low_ns=low,
            high_ns=high,
            best_ns=min(durations, default=None),
            fastest_visit_ns=min(measurement.visit_medians_ns(), default=None),
            clock_hz=(min(clocks), max(clocks)) if clocks else None,
            flops=work.flops,
            bytes_compulsory=work.bytes_compulsory,
            parts=getattr(measurement.problem, "parts", None),
            discarded=dict(measurement.discarded),
            notes=tuple(measurement.notes(self._backend, self._method)),
        )
