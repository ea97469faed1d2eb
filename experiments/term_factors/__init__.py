"""Factors that an experiment on one term can change: one module per factor, loaded late."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from ...base.errors import CurvescopeError
from ...profiling.recording.experiments import FactorFacts
from ..replay.recorded_call import CallFamily
from .change import Change

# In the order in which a screen tries them.
NAMES = (
    "onednn",
    "no_onednn",
    "no_nnpack",
    "before_switch",
    "cublaslt",
    "no_cudnn",
    "cudnn_benchmark",
    "other_layout",
    "channels_last",
    "split_batch",
    "padded_batch",
    "one_thread",
    "reused_memory",
    "warm_caches",
    "cold_caches",
    "deterministic",
    "small_workspace",
)


class FactorModule(Protocol):
    """What the module of a factor defines.

    Attributes:
        FACTS: description of the factor.
        CHANGE: change of the runs.
    """

    FACTS: FactorFacts
    CHANGE: Change

    def reason_against(self, family: CallFamily, device: str) -> str | None:
        """The reason why the factor cannot be changed for an operator call, as a clause; None if it can.

        Args:
            family: the recorded call over batch sizes.
            device: `cpu` or `cuda:N`.
        """


def factor(name: str) -> FactorModule:
    """The module of a factor.

    Raises:
        CurvescopeError: there is no such factor.
    """
    if name not in NAMES:
        raise CurvescopeError(f"Unknown factor {name!r}: choose from {', '.join(NAMES)}.")
    return cast(FactorModule, importlib.import_module(f".{name}", __package__))


def all_facts() -> dict[str, FactorFacts]:
    """The facts on every factor, by name."""
    return {name: factor(name).FACTS for name in NAMES}
