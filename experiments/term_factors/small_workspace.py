"""A small workspace for cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import is_product, on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change, environment

FACTS = FactorFacts(
    "small_workspace",
    what="cuBLAS gets a workspace of 128 KiB",
    remedy="limit cuBLAS's workspace in {where}",
    how="CUBLAS_WORKSPACE_CONFIG=:16:8 in the environment of the process",
)
_CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # 8 buffers of 16 KiB


def reason_against(family: CallFamily, device: str) -> str | None:
    """See `FactorModule`."""
    if not on_cuda(device):
        return "cuBLAS runs on NVIDIA's GPUs"
    return None if is_product(family.largest) else "it is no matrix product"


@contextmanager
def _small_workspace() -> Iterator[None]:
    clear = import_torch()._C._cuda_clearCublasWorkspaces  # PyTorch reads the variable when it makes the next
    with environment(*_CUBLAS):
        clear()
        try:
            yield
        finally:
            clear()


CHANGE = Change(around=_small_workspace)
