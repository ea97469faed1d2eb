"""Factors of NVIDIA's libraries: which one works, with which algorithms and how much memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target, TermChange, set_by
from ..replay.operator_kinds import is_batch_norm, is_convolution, reason_unless_product
from ..replay.recorded_call import CallFamily
from ..replay.runnable import environment, setting

# Matrix products of a GPU through cuBLASLt, by its choice or by timing, or with a small workspace
# for cuBLAS.

# What PyTorch takes of cuBLASLt's list, which is in the order of the library's own estimate.
LISTED = 16
_VARIABLES_OF_LIST = (
    ("TORCH_BLAS_PREFER_CUBLASLT", "1"),
    ("PYTORCH_TUNABLEOP_ENABLED", "1"),
    ("PYTORCH_TUNABLEOP_CUBLASLT_REQUESTED_ALGO_COUNT", str(LISTED)),
)
_WORKSPACE_OF_CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # 8 buffers of 16 KiB


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
    with environment(*_WORKSPACE_OF_CUBLAS):
        clear()
        try:
            yield
        finally:
            clear()


@contextmanager
def _tune() -> Iterator[None]:
    """Products through the fastest of cuBLASLt's candidates, which PyTorch times once for each."""
    tunable = import_torch().cuda.tunable
    former = tunable.is_enabled(), tunable.tuning_is_enabled()
    tunable.set_filename(os.devnull)  # else what it found goes to a file of the working directory
    tunable.set_cublaslt_requested_algo_count(LISTED)
    with _through_cublaslt():
        tunable.enable(True)
        tunable.tuning_enable(True)
        try:
            yield
        finally:
            tunable.enable(former[0])
            tunable.tuning_enable(former[1])


def why_no_list() -> str | None:
    """Why PyTorch cannot time the candidates of cuBLASLt, as a clause; None if it can."""
    torch = import_torch()
    if hasattr(torch.cuda.tunable, "set_cublaslt_requested_algo_count"):
        return None
    return f"torch {torch.__version__} does not time cuBLASLt's list of algorithms; torch 2.14 does"


def _reason_against_list(family: CallFamily) -> str | None:
    reason = reason_unless_product(family) or why_no_list()
    if reason is None and import_torch().cuda.tunable.is_enabled():
        return "PyTorch times the library's algorithms already"
    return reason


CUBLASLT = Factor(
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
CUBLASLT_LIST = Factor(
    name="cublaslt_list",
    what=f"matrix products run through cuBLASLt, each with the fastest of the first {LISTED} "
    "algorithms that it lists",
    remedy="run {where} through cuBLASLt, with the fastest of the algorithms that it lists",
    refuses={"cpu": "cuBLASLt runs on NVIDIA's GPUs"},
    term=TermChange(
        how=set_by(dict(_VARIABLES_OF_LIST)),
        reason_against=_reason_against_list,
        around=_tune,
        discarded=2,  # the first run of a product times the algorithms
    ),
    levels=True,
)
SMALL_WORKSPACE = Factor(
    name="small_workspace",
    what="cuBLAS gets a workspace of 128 KiB",
    remedy="limit cuBLAS's workspace in {where}",
    refuses={"cpu": "cuBLAS runs on NVIDIA's GPUs"},
    term=TermChange(
        how=set_by({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}),
        reason_against=reason_unless_product,
        around=_small_workspace,
    ),
)


# cuDNN's algorithms: chosen by timing instead of a heuristic, with little workspace, or none of
# them.

_REFUSES = {"cpu": "cuDNN runs on NVIDIA's GPUs"}
# MiB of one convolution; cuDNN reads it when it chooses an algorithm
_WORKSPACE_OF_CUDNN = {"CUDNN_CONV_WSCAP_DBG": "16"}
_TIMING = "torch.backends.cudnn.benchmark = True"


def _reason_against_timing(family: CallFamily) -> str | None:
    if not is_convolution(family.largest):
        return "PyTorch lets cuDNN choose for convolutions only"
    return "cuDNN times its algorithms already" if import_torch().backends.cudnn.benchmark else None


def _reason_against_steps(target: Target) -> str | None:
    return None if target.may_convolve else "the steps have no convolution"


def _reason_against_none(family: CallFamily) -> str | None:
    call = family.largest
    return (
        None
        if is_convolution(call) or is_batch_norm(call)
        else "PyTorch does not run this operator through cuDNN"
    )


CUDNN_BENCHMARK = Factor(
    name="cudnn_benchmark",
    what="cuDNN times its algorithms and takes the fastest",
    remedy="let cuDNN choose the algorithms of {where} by timing",
    refuses=_REFUSES,
    term=TermChange(
        how=_TIMING,
        reason_against=_reason_against_timing,
        around=lambda: setting(import_torch().backends.cudnn, "benchmark", True),
        own_thread=True,  # PyTorch keeps cuDNN's choice by thread, whatever `benchmark` says later
    ),
    # In the steps that are not recorded.
    step=StepChange(
        how=_TIMING,
        screen=3,
        common=14,
        reason_against=_reason_against_steps,
        prepare=lambda _: setattr(import_torch().backends.cudnn, "benchmark", True),
    ),
    is_made_in_programs=True,
)
# At every batch size, so that no algorithm is lost where the memory is full.
CUDNN_WORKSPACE = Factor(
    name="cudnn_workspace",
    what="cuDNN gets a workspace of 16 MiB for a convolution",
    remedy="limit cuDNN's workspace in {where}",
    refuses=_REFUSES,
    step=StepChange(
        how=set_by(_WORKSPACE_OF_CUDNN),
        reason_against=_reason_against_steps,
        variables=lambda: _WORKSPACE_OF_CUDNN,
        prepare=lambda _: os.environ.update(_WORKSPACE_OF_CUDNN),
    ),
    partial=True,
)
NO_CUDNN = Factor(
    name="no_cudnn",
    what="operators run without cuDNN",
    remedy="run {where} without cuDNN",
    refuses=_REFUSES,
    term=TermChange(
        how="with torch.backends.cudnn.flags(enabled=False): around the layer's call",
        reason_against=_reason_against_none,
        around=lambda: setting(import_torch().backends.cudnn, "enabled", False),
    ),
    levels=True,
)


# Deterministic algorithms only: a bend from a switch between algorithms, one of them with atomics,
# goes away.

_CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def _deterministic() -> Iterator[None]:
    torch = import_torch()
    former = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    # Filling new memory, which PyTorch does besides, is no part of an algorithm.
    with (
        setting(torch.utils.deterministic, "fill_uninitialized_memory", False),
        environment(*_CUBLAS),
    ):
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(former[0], warn_only=former[1])


def _prepare(_: Target) -> None:
    """Choose deterministic algorithms; operators that have none run as before."""
    torch = import_torch()
    os.environ.update([_CUBLAS])  # cuBLAS reads it when the first handle is created
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True, warn_only=True)


DETERMINISTIC = Factor(
    name="deterministic",
    what="only deterministic algorithms are chosen",
    remedy="choose deterministic algorithms for {where}",
    refuses={"cpu": "on a CPU, PyTorch's operators are deterministic but for a few that scatter"},
    term=TermChange(
        how="torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
        "environment",
        around=_deterministic,
    ),
    step=StepChange(
        how="torch.use_deterministic_algorithms(True, warn_only=True), and "
        "CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
        "environment",
        prepare=_prepare,
    ),
)
