"""Conversion of results to JSON documents."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ..decompose.statistics import Estimate


def to_plain(value: Any) -> Any:
    """Convert dataclasses and named tuples for JSON; an infinite end of an interval becomes null: unknown."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """An estimate for JSON; unknown ends of its interval are None."""
    low, high = (float(end) if math.isfinite(end) else None for end in (estimate.low, estimate.high))
    return {"value": float(estimate.value), "low": low, "high": high}


def finite(value: float | None) -> float | None:
    """A number of six digits; None for what is unknown or infinite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
