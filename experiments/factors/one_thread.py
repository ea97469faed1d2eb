"""One thread on a CPU: a cost of dividing work among threads, or of threads that wait for cores, goes away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.recorded_call import CallFamily


def _reason_against(_: CallFamily) -> str | None:
    return "it runs on one thread already" if import_torch().get_num_threads() == 1 else None


@contextmanager
def _one_thread() -> Iterator[None]:
    torch = import_torch()
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def _prepare(_: Target) -> None:
    torch = import_torch()
    if torch.get_num_threads() == 1:
        raise CurvescopeError("the steps already run on one thread")
    torch.set_num_threads(1)


FACTOR = Factor(
    name="one_thread",
    what="the work runs on one thread",
    remedy="run {where} on one thread",
    refuses={"cuda": "the work runs on the GPU"},
    term=TermChange(
        how="torch.set_num_threads(1) before it and the former number after it; OMP_NUM_THREADS=1 for the whole "
        "process",
        screen=3,
        reason_against=_reason_against,
        around=_one_thread,
    ),
    step=StepChange(
        how="torch.set_num_threads(1), or OMP_NUM_THREADS=1 in the environment",
        variables=lambda: {"OMP_NUM_THREADS": "1"},
        screen=4,
        common=6,
        prepare=_prepare,
    ),
    sets="threads",
)
