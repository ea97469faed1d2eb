"""Denormal numbers count as 0: processors take many times as long for them."""

from __future__ import annotations

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.collect.inject import FLUSH_VARIABLE, startup_path
from ..factor import Factor, StepChange, Target


def _prepare(_: Target) -> None:
    """Set it before the process has further threads, which inherit it."""
    if not import_torch().set_flush_denormal(True):
        raise CurvescopeError("this processor cannot flush denormal numbers")


FACTOR = Factor(
    name="flush_denormal",
    what="denormal numbers count as 0",
    remedy="flush denormal numbers in {where}",
    refuses={"cuda": "the work runs on the GPU"},
    step=StepChange(
        how="torch.set_flush_denormal(True) before the first operator",
        environment=lambda _: {FLUSH_VARIABLE: "1", "PYTHONPATH": startup_path()},
        common=12,
        prepare=_prepare,
    ),
)
