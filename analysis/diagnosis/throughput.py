"""The batch size as advice: where samples per second stop growing, and which batch size has nearly the most of them."""

from __future__ import annotations

from dataclasses import dataclass

from ...profiling.recording.store import STEP
from ..decompose.curve import UNKNOWN, Curve

_PRECISE = 1.2  # upper end of a time's interval over the time, beyond which nothing is said
_NEAR = 0.95  # of the largest throughput that was measured


@dataclass(frozen=True)
class Throughput:
    """Samples per second over batch sizes."""

    batch: int  # the smallest batch size within 5 % of the best throughput
    per_s: float  # samples per second there
    best: int  # the batch size with the best throughput
    best_per_s: float
    grows: bool  # whether the throughput still grows by more than 5 % at the largest batch size


def throughput_of(curve: Curve) -> Throughput | None:
    """The throughput of a curve; None without steps of two batch sizes, or with times that are hardly known."""
    sizes = [point for point in curve.points if point.condition != UNKNOWN]
    imprecise = any(point.time_ms.high > _PRECISE * point.time_ms.value for point in sizes)
    if curve.unit != STEP or len(sizes) < 2 or imprecise:
        return None
    per_s = {int(point.condition): 1e3 * point.condition / point.time_ms.value for point in sizes}
    best = max(per_s, key=lambda batch: per_s[batch])
    enough = next(batch for batch in sorted(per_s) if per_s[batch] >= _NEAR * per_s[best])
    return Throughput(enough, per_s[enough], best, per_s[best], enough == max(per_s))
