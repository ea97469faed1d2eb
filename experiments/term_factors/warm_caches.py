"""Operands that the run before left in the caches."""

from __future__ import annotations

from ...profiling.recording.experiments import FactorFacts
from ..replay.recorded_call import CallFamily, tensors_of
from .change import Caches, Change

FACTS = FactorFacts("warm_caches", what="operands stay in the caches from the run before", remedy=None, how=None)


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `FactorModule`."""
    return None if any(tensors_of(family.largest.arguments)) else "none of its operands is a tensor"


CHANGE = Change(caches=Caches.WARM, same_work=True)
