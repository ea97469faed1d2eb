"""Columns of a microbenchmark's result, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.numbers import duration

if TYPE_CHECKING:
    from ...kernels.runner import Result


def percent(value: float | None) -> str:
    """An uncertainty as text; `?` if unknown."""
    if value is None:
        return "?"
    return f"{value:.1%}" if value < 1 else ">100%"


def outcome_in_words(result: Result) -> str:
    """The outcome of a result as text."""
    return str(result.outcome).replace("_", " ")


def columns(result: Result) -> tuple[str, ...]:
    """Median, its interval, number of samples and rates of a result, as text."""
    if result.median_ns is None:
        return (outcome_in_words(result), "", "", "", "")
    count, unit = result.parts or (1, "")
    median = duration(result.median_ns / count)
    if unit:
        median += f" a {unit}"
    mark = "" if result.outcome == "ok" else "*"
    flop_rate = f"{result.gflop_per_s:.1f}" if result.gflop_per_s else "-"
    byte_rate = f"{result.gb_per_s:.2f}" if result.gb_per_s and not result.parts else "-"
    return (median, percent(result.uncertainty), f"{result.n}{mark}", flop_rate, byte_rate)
