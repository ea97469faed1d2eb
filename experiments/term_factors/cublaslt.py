"""Matrix products through cuBLASLt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import is_product, on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change

FACTS = FactorFacts(
    "cublaslt",
    what="matrix products run through cuBLASLt instead of cuBLAS",
    remedy="run {where} through cuBLASLt",
    how="torch.backends.cuda.preferred_blas_library('cublaslt')",
)


def reason_against(family: CallFamily, device: str) -> str | None:
    """See `FactorModule`."""
    if not on_cuda(device):
        return "cuBLASLt runs on NVIDIA's GPUs"
    return None if is_product(family.largest) else "it is no matrix product"


@contextmanager
def _through_cublaslt() -> Iterator[None]:
    library = import_torch().backends.cuda.preferred_blas_library
    former = library()
    library("cublaslt")
    try:
        yield
    finally:
        library(former)


CHANGE = Change(around=_through_cublaslt)
