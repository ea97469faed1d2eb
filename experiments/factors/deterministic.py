"""Deterministic algorithms only: a bend from a switch between algorithms, one of them with atomics, goes away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.runnable import environment, setting

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


FACTOR = Factor(
    name="deterministic",
    what="only deterministic algorithms are chosen",
    remedy="choose deterministic algorithms for {where}",
    refuses={"cpu": "on a CPU, PyTorch's operators are deterministic but for a few that scatter"},
    term=TermChange(
        how="torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment",
        around=_deterministic,
    ),
    step=StepChange(
        how="torch.use_deterministic_algorithms(True, warn_only=True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
        "environment",
        prepare=_prepare,
    ),
)
