"""One thread for each physical core on a CPU: two threads on one core share its units for arithmetic."""

from __future__ import annotations

from ...base.torch_runtime import import_torch
from ...profiling.hardware.host import physical_cores
from ..factor import Factor, StepChange, Target


def _reason_against(_: Target) -> str | None:
    threads, cores = import_torch().get_num_threads(), physical_cores()
    if cores is None:
        return "the system does not say which processors share a core"
    few = threads <= cores
    return f"threads are no more than physical cores already ({threads} of {cores})" if few else None


def _prepare(_: Target) -> None:
    cores = physical_cores()
    assert cores is not None  # `_reason_against` refuses it
    import_torch().set_num_threads(cores)


FACTOR = Factor(
    name="physical_cores",
    what="there is one thread for each physical core",
    remedy="run {where} on one thread for each physical core",
    refuses={"cuda": "the work runs on the GPU"},
    step=StepChange(
        how="torch.set_num_threads(N) or OMP_NUM_THREADS=N, N the number of physical cores (lscpu)",
        variables=lambda: {"OMP_NUM_THREADS": str(physical_cores())},
        common=5,
        reason_against=_reason_against,
        prepare=_prepare,
    ),
    sets="threads",
)
