"""Half of the threads on a CPU: less waiting for each other, and cores for what else runs."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target


def _reason_against(_: Target) -> str | None:
    threads = import_torch().get_num_threads()
    return f"half of {threads} threads is one, which is a change of its own" if threads < 4 else None


def _prepare(_: Target) -> None:
    torch = import_torch()
    torch.set_num_threads(torch.get_num_threads() // 2)


FACTOR = Factor(
    name="half_threads",
    what="the work runs on half of the threads",
    remedy="run {where} on half of the threads",
    refuses={"cuda": "the work runs on the GPU"},
    step=StepChange(
        how="torch.set_num_threads(torch.get_num_threads() // 2), or OMP_NUM_THREADS in the environment",
        variables=lambda: {"OMP_NUM_THREADS": str(import_torch().get_num_threads() // 2)},
        common=4,
        reason_against=_reason_against,
        prepare=_prepare,
    ),
    sets="threads",
)
