"""The losses of the first steps of a user's step, which show whether a change trains as before."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from .any_workload import AnyWorkload

STEPS, LIMIT_S = 50, 20.0
_SEED = 0


def read_losses(
    workload: AnyWorkload, batch: int, clock_s: Callable[[], float] = time.monotonic
) -> list[float | None]:
    """The losses of steps that are made anew from one seed; empty where a step returns none.

    They end after `STEPS`, after `LIMIT_S`, or with None for a loss that is not finite.
    """
    if not workload.is_users:
        return []
    workload.release()
    _set_seeds()
    workload.load(batch)
    losses: list[float | None] = []
    ends_s = clock_s() + LIMIT_S
    while len(losses) < STEPS and (not losses or clock_s() < ends_s):
        loss = find_loss(workload.submit())
        if loss is None:
            return []
        losses.append(loss if math.isfinite(loss) else None)
        if losses[-1] is None:
            break
    return losses


def find_loss(result: object) -> float | None:
    """The loss that a step returns: a number, an array of one, or either as an attribute `loss`."""
    value: Any = getattr(result, "loss", result)
    try:
        value = value.item() if hasattr(value, "item") else value
        return None if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, RuntimeError):  # no number, or several
        return None


def _set_seeds() -> None:
    """Seed Python, NumPy and torch, as far as they are loaded."""
    random.seed(_SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(_SEED)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(_SEED)
