"""One thread for each physical core on a CPU: two threads on one core share its units for arithmetic."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.hardware.host import physical_cores
from ..factor import Factor, StepChange, Target


def _prepare(_: Target) -> None:
    torch = import_torch()
    threads, cores = torch.get_num_threads(), physical_cores()
    if cores is None:
        raise CurvescopeError("the system does not say which processors share a core")
    if threads <= cores:
        raise CurvescopeError(f"threads are no more than physical cores already ({threads} of {cores})")
    torch.set_num_threads(cores)


FACTOR = Factor(
    name="physical_cores",
    what="there is one thread for each physical core",
    remedy="run {where} on one thread for each physical core",
    refuses={"cuda": "the work runs on the GPU"},
    step=StepChange(
        how="torch.set_num_threads(N) or OMP_NUM_THREADS=N, N the number of physical cores (lscpu)",
        common=5,
        prepare=_prepare,
    ),
    sets="threads",
)
