"""One visit of one batch size: discarded steps, timed steps, and in some rounds a profiled one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..attribution.events import Operation, StepRows
from ..hardware.host_usage import host_use_between, read_host_use
from ..hardware.memory_usage import read_peak, reset_peak
from ..workload.network_step import Workload
from .protocol import Protocol

OUT_OF_MEMORY = "out of memory"
# What torch's allocators, oneDNN and the C++ library say when memory runs out, on CUDA and on the CPU.
_OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "bad_alloc", "could not create a memory")


@dataclass(frozen=True)
class Empty:
    """Why a cell has no measurement.

    Attributes:
        why: out of memory, killed or failed.
        detail: what the library or the system said.
    """

    why: str
    detail: str


@dataclass(frozen=True)
class Visit:
    """What one visit measured.

    Attributes:
        timed: columns of the `steps` table for each timed step, the recording's own numbering left out.
        profiled: rows of the profiled step; null where none was asked for.
        profile_fits: false where it was asked for and did not fit the memory beside the step.
    """

    timed: list[dict[str, Any]]
    profiled: StepRows | None = None
    profile_fits: bool = True


def visit(workload: Workload, batch: int, protocol: Protocol, profile: bool) -> Visit | Empty:
    """Measure one batch size once.

    Args:
        workload: what to step.
        batch: samples in a step.
        protocol: how many steps.
        profile: end with a profiled step.

    Returns:
        What was measured, or that the batch does not fit the memory.
    """
    timed = []
    try:
        timed = _time_steps(workload, batch, protocol)
        if not profile:
            return Visit(timed)
        workload.warm_up_profiler()
        return Visit(timed, workload.record_step(count_work))
    except (MemoryError, RuntimeError) as error:
        if not memory_ran_out(error):
            raise
        empty = Empty(OUT_OF_MEMORY, (str(error).strip() or type(error).__name__).splitlines()[0])
    # After the handler, where the traceback no longer holds the step's tensors.
    workload.release()
    # The profiler takes memory of its own: a step that fits without it was measured.
    return Visit(timed, profile_fits=False) if timed else empty


def part_of_visit(batch: int, repeat: int) -> str:
    """Name of the parts that one visit adds to the tables."""
    return f"b{batch:07d}_r{repeat:05d}"


def memory_ran_out(error: Exception) -> bool:
    """Whether that is what the error says, whichever library it is from."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY_WORDS)


def _time_steps(workload: Workload, batch: int, protocol: Protocol) -> list[dict[str, Any]]:
    workload.load(batch)
    for _ in range(protocol.discarded_steps):
        _, discarded_ns = workload.time_step()
    return time_steps(workload, protocol.steps_of_visit(batch, discarded_ns))


def time_steps(workload: Workload, count: int) -> list[dict[str, Any]]:
    """Time so many steps of the loaded batch; columns as of `Visit.timed`."""
    fresh_peak = reset_peak(workload.device)
    timed: list[dict[str, Any]] = []
    for _ in range(count):
        before = read_host_use()
        start_ns, duration_ns = workload.time_step()
        used = host_use_between(before, read_host_use())
        timed.append({"start_ns": start_ns, "duration_ns": duration_ns, **used})
    if not fresh_peak:
        return timed
    peak = read_peak(workload.device)
    return [{**row, **peak} for row in timed]


def count_work(operation: Operation) -> tuple[int | None, int | None]:
    """FLOPs and compulsory bytes of an operator call, from its shapes."""
    from ..attribution.operator_work import work

    counted = work(operation.name, operation.shapes, operation.dtypes, operation.concrete)
    return counted.flops, counted.bytes_compulsory
