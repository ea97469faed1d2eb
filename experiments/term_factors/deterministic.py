"""Deterministic algorithms only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.operator_kinds import on_cuda
from ..replay.recorded_call import CallFamily
from .change import Change, environment, setting

FACTS = FactorFacts(
    "deterministic",
    what="only deterministic algorithms run",
    remedy="use deterministic algorithms in {where}",
    how="torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment",
)
_CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - any operator
    """See `FactorModule`."""
    return None if on_cuda(device) else "on a CPU, PyTorch's operators are deterministic but for a few that scatter"


@contextmanager
def _deterministic() -> Iterator[None]:
    torch = import_torch()
    former = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # Filling new memory, which PyTorch does besides, is no part of an algorithm.
    with setting(torch.utils.deterministic, "fill_uninitialized_memory", False), environment(*_CUBLAS):
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(former[0], warn_only=former[1])


CHANGE = Change(around=_deterministic)
