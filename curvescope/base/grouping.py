"""The choices of `--by` for the rows of a view; the MCP server offers the same."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

BreakdownBy: TypeAlias = Literal["layer", "kernel", "phase", "op", "line"]
CompareBy: TypeAlias = Literal["layer", "op", "family", "kernel"]
RooflineBy: TypeAlias = Literal["kernel", "layer", "phase"]

BREAKDOWN_BY: tuple[str, ...] = get_args(BreakdownBy)
COMPARE_BY: tuple[str, ...] = get_args(CompareBy)
ROOFLINE_BY: tuple[str, ...] = get_args(RooflineBy)
