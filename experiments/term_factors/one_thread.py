"""One thread on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change

FACTS = FactorFacts(
    "one_thread",
    what="the work runs on one thread",
    remedy="run {where} on one thread",
    how="torch.set_num_threads(1) before it and the former number after it; OMP_NUM_THREADS=1 for the whole process",
)


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - any operator
    """See `FactorModule`."""
    if on_cuda(device):
        return "the work runs on the GPU"
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


CHANGE = Change(around=_one_thread)
