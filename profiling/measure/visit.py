"""One visit of one batch size: discarded steps, unprofiled steps, then profiled ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..attribution.events import StepRows
from ..attribution.operator_work import count_work
from ..hardware.host_usage import host_use_between, read_host_use
from ..hardware.memory_usage import read_peak, reset_peak
from ..workload.network_step import Workload
from .experiment import Empty, StepRow, Visit
from .protocol import Protocol

OUT_OF_MEMORY = "out of memory"
# What torch's allocators, oneDNN and the C++ library say when memory runs out, on CUDA and on the CPU.
_OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "bad_alloc", "could not create a memory")


def visit(workload: Workload, batch: int, protocol: Protocol) -> Visit | Empty:
    """Measure one batch size once.

    Args:
        workload: what to step.
        batch: samples in a step.
        protocol: how many steps.

    Returns:
        The steps, or that the batch does not fit the memory.
    """
    unprofiled: list[StepRow] = []
    profiled: list[StepRows] = []
    began_ns = workload.clock_ns()
    try:
        discarded_ns = discard_steps(workload, batch, protocol.discarded_steps)
        unprofiled = time_steps(workload, protocol.steps_of_visit(batch, discarded_ns))
        most = min(len(unprofiled), protocol.profiled_steps)
        # One by one: those that fitted the memory stay.
        for rows in profile_steps(workload, most, workload.clock_ns() - began_ns):
            profiled.append(rows)
        return Visit(unprofiled, profiled)
    except (MemoryError, RuntimeError) as error:
        if not memory_ran_out(error):
            raise
        empty = Empty(OUT_OF_MEMORY, (str(error).strip() or type(error).__name__).splitlines()[0])
    # After the handler, where the traceback no longer holds the step's tensors.
    workload.release()
    # The profiler takes memory of its own: a step that fits without it was measured.
    return Visit(unprofiled, profiled, profile_fits=False) if unprofiled else empty


def memory_ran_out(error: Exception) -> bool:
    """Whether that is what the error says, whichever library it is from."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY_WORDS)


def discard_steps(workload: Workload, batch: int, count: int) -> int:
    """Load a batch and run steps that are not kept; returns the duration of the last, nanoseconds."""
    workload.load(batch)
    duration_ns = 0
    for _ in range(count):
        _, duration_ns = workload.time_step()
    return duration_ns


def time_steps(workload: Workload, count: int) -> list[StepRow]:
    """Time steps of the loaded batch; columns as in `Visit.unprofiled`."""
    fresh_peak = reset_peak(workload.device)
    timed: list[StepRow] = []
    for _ in range(count):
        before = read_host_use()
        start_ns, duration_ns = workload.time_step()
        used = host_use_between(before, read_host_use())
        timed.append({"start_ns": start_ns, "duration_ns": duration_ns, **used})
    if not fresh_peak:
        return timed
    peak = read_peak(workload.device)
    return [{**row, **peak} for row in timed]


def profile_steps(
    workload: Workload, most: int, limit_ns: float, before: Callable[[], object] = lambda: None
) -> Iterator[StepRows]:
    """Profile steps of the loaded batch, one profiler session each.

    A session costs time besides its step: on two busy cores 30 to 60 ms for the 1,000 kernels of AlexNet, 0.7 to 1 s
    for the 7,500 of GoogLeNet, 3 s for the 17,000 of BERT-Base. So time bounds the number.

    Args:
        workload: what to step.
        most: number of steps unless the time ends them; 0 profiles nothing.
        limit_ns: no step after the first starts that is not expected to end within it. The first use of the profiler
            in a process, a second or so, counts.
        before: see `torch_step.record_step`.

    Yields:
        The rows of each step.
    """
    began_ns = workload.clock_ns()
    for number in range(1, most + 1):
        if number == 1:
            workload.warm_up_profiler()
        step_began_ns = workload.clock_ns()
        yield workload.record_step(count_work, before=before)
        now_ns = workload.clock_ns()
        if now_ns - began_ns + (now_ns - step_began_ns) > limit_ns:
            return
