"""Results as JSON holds them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


def plain(value: Any) -> Any:
    """Dataclasses and named tuples as JSON holds them; an infinite end of an interval is null: not known."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
