"""Matrix products of a GPU through cuBLASLt, or with a small workspace for cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ..factor import Factor, TermChange
from ..replay.operator_kinds import reason_unless_product
from ..replay.runnable import environment

_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # 8 buffers of 16 KiB


@contextmanager
def _through_cublaslt() -> Iterator[None]:
    library = import_torch().backends.cuda.preferred_blas_library
    former = library()
    library("cublaslt")
    try:
        yield
    finally:
        library(former)


@contextmanager
def _small_workspace() -> Iterator[None]:
    # PyTorch reads the variable when it makes the next
    clear = import_torch()._C._cuda_clearCublasWorkspaces
    with environment(*_WORKSPACE):
        clear()
        try:
            yield
        finally:
            clear()


LT = Factor(
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
WORKSPACE = Factor(
    name="small_workspace",
    what="cuBLAS gets a workspace of 128 KiB",
    remedy="limit cuBLAS's workspace in {where}",
    refuses={"cpu": "cuBLAS runs on NVIDIA's GPUs"},
    term=TermChange(
        how="CUBLAS_WORKSPACE_CONFIG=:16:8 in the environment of the process",
        reason_against=reason_unless_product,
        around=_small_workspace,
    ),
)
