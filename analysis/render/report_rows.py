"""Rows that numbers of the report rest on: timed steps, and the runs of experiments."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

MOST_ROWS = 3000
# Titles and columns in the page.
_TABLES = {
    "steps": ("Timed steps", ["step", "batch", "round", "index", "profiled"]),
    "experiments": ("Runs of experiments", ["experiment", "factor", "batch", "round", "index"]),
}


def finite(value: float | None) -> float | None:
    """A number of six digits; None for what is unknown or infinite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def rows_document(table: str, rows: pd.DataFrame) -> dict[str, Any] | None:
    """Rows of a table with their times in ms, and their energy in J where one is known; None without rows."""
    if rows.empty:
        return None
    title, columns = _TABLES[table]
    shown = rows[columns].astype(object).where(rows[columns].notna(), None).assign(ms=rows["duration_ns"] / 1e6)
    if "energy_uj" in rows and rows["energy_uj"].notna().any():
        joules = rows["energy_uj"].astype("Float64") / 1e6
        shown["J"] = joules.astype(object).where(joules.notna(), None)
    listed = [[_plain(value) for value in row] for row in shown.head(MOST_ROWS).itertuples(index=False)]
    return {"title": title, "columns": [*shown], "rows": listed, "more": max(0, len(rows) - MOST_ROWS)}


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return finite(round(value, 6)) if isinstance(value, float) else value
