"""Conversion of results to JSON documents."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from ..decompose.statistics import Estimate

# A field that is renamed, removed or gets another meaning makes it the next number; new fields do not.
DOCUMENT_VERSION = 1


def to_plain(value: Any) -> Any:
    """Convert dataclasses and named tuples for JSON; an infinite end of an interval becomes null: unknown."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in documented(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def documented(kind: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that its document has."""
    return [field for field in dataclasses.fields(kind) if field.metadata.get("document", True)]


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """An estimate for JSON; unknown ends of its interval are None."""
    low, high = (float(end) if math.isfinite(end) else None for end in (estimate.low, estimate.high))
    return {"value": float(estimate.value), "low": low, "high": high}


def finite(value: float | None) -> float | None:
    """A number of six digits; None for what is unknown or infinite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def print_document(kind: str, document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output; its first field, `schema`, names its kind and version.

    Args:
        kind: kind of the document, one of `curvescope.json_documents.DOCUMENTS`.
        document: the document.
    """
    print(json_text({"schema": f"curvescope.{kind}/{DOCUMENT_VERSION}", **document}))


def json_text(document: Mapping[str, Any]) -> str:
    """A document as strict JSON."""
    return json.dumps(document, allow_nan=False)
