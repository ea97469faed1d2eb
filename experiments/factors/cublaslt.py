"""Matrix products through cuBLASLt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ..factor import Factor, TermChange
from ..replay.operator_kinds import reason_unless_product


@contextmanager
def _through_cublaslt() -> Iterator[None]:
    library = import_torch().backends.cuda.preferred_blas_library
    former = library()
    library("cublaslt")
    try:
        yield
    finally:
        library(former)


FACTOR = Factor(
    name="cublaslt",
    what="matrix products run through cuBLASLt instead of cuBLAS",
    remedy="run {where} through cuBLASLt",
    refuses={"cpu": "cuBLASLt runs on NVIDIA's GPUs"},
    term=TermChange(
        how="torch.backends.cuda.preferred_blas_library('cublaslt')",
        reason_against=reason_unless_product,
        around=_through_cublaslt,
    ),
    levels=True,
)
