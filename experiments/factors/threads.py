"""Fewer threads on a CPU: what dividing the work, waiting for each other or for cores, and sharing a core cost goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.hardware.host import physical_cores
from ..factor import Factor, StepChange, Target, TermChange

_REFUSES = {"cuda": "the work runs on the GPU"}


def _usual() -> int:
    return int(import_torch().get_num_threads())


def _half() -> str | None:
    return (
        f"half of {_usual()} threads is one, which is a change of its own" if _usual() < 4 else None
    )


def _physical() -> str | None:
    threads, cores = _usual(), physical_cores()
    if cores is None:
        return "the system does not say which processors share a core"
    few = threads <= cores
    return (
        f"threads are no more than physical cores already ({threads} of {cores})" if few else None
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    torch, former = import_torch(), _usual()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def _to_one(_: Target) -> None:
    if _usual() == 1:
        raise CurvescopeError("the steps already run on one thread")
    import_torch().set_num_threads(1)


def _steps_on(
    threads: Callable[[], int], how: str, common: int, why_not: Callable[[], str | None]
) -> StepChange:
    return StepChange(
        how=how,
        variables=lambda: {"OMP_NUM_THREADS": str(threads())},
        common=common,
        reason_against=lambda _: why_not(),
        prepare=lambda _: import_torch().set_num_threads(threads()),
    )


HALF = Factor(
    name="half_threads",
    what="the work runs on half of the threads",
    remedy="run {where} on half of the threads",
    refuses=_REFUSES,
    step=_steps_on(
        lambda: _usual() // 2,
        "torch.set_num_threads(torch.get_num_threads() // 2), or OMP_NUM_THREADS in the environment",
        common=4,
        why_not=_half,
    ),
    sets="threads",
)
PHYSICAL = Factor(
    name="physical_cores",
    what="there is one thread for each physical core",
    remedy="run {where} on one thread for each physical core",
    refuses=_REFUSES,
    step=_steps_on(
        lambda: physical_cores() or 1,
        "torch.set_num_threads(N) or OMP_NUM_THREADS=N, N the number of physical cores (lscpu)",
        common=5,
        why_not=_physical,
    ),
    sets="threads",
)
ONE = Factor(
    name="one_thread",
    what="the work runs on one thread",
    remedy="run {where} on one thread",
    refuses=_REFUSES,
    term=TermChange(
        how="torch.set_num_threads(1) before it and the former number after it; OMP_NUM_THREADS=1 for the whole "
        "process",
        screen=3,
        reason_against=lambda _: "it runs on one thread already" if _usual() == 1 else None,
        around=_one_thread,
    ),
    step=StepChange(
        how="torch.set_num_threads(1), or OMP_NUM_THREADS=1 in the environment",
        variables=lambda: {"OMP_NUM_THREADS": "1"},
        screen=4,
        common=6,
        prepare=_to_one,
    ),
    sets="threads",
)
