"""Selects the steps of an inference server that make one cost curve, and names what else changes
with the batch size.

Prefill and decode are different work, so a curve has steps of one mode: decode over requests,
prefill over tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ...base.errors import CurvescopeError
from ...profiling.attribution.served_steps import DECODE, MIXED, PREFILL
from ...profiling.recording.axis import Axis

MODES = (DECODE, PREFILL, MIXED)
LEAST_STEPS = 3  # of a batch size, where three sizes have so many: an interval needs some
_MOVES = 0.2  # relative change of the context per request that is told


@dataclass(frozen=True)
class Context:
    """The context per request over the axis, in tokens; it changes the work of attention, too."""

    first: tuple[int, float]  # the smallest size, and the median context there
    last: tuple[int, float]  # the same of the largest size
    least: float
    most: float

    @property
    def moves(self) -> bool:
        """Whether it changes over the axis, so that the curve shows both."""
        return self.most > (1 + _MOVES) * self.least


@dataclass(frozen=True, kw_only=True)
class ServedSteps:
    """Steps of one mode."""

    mode: str
    steps: pd.DataFrame  # the rows of `steps`; their column `batch` is the axis
    axis: Axis  # the axis: requests, or tokens of prefill and mixed steps
    numbers: Mapping[str, int]  # of the steps of every mode that has some
    total: int  # number of all steps
    # number of sizes that are left out because they have few steps, and of these steps
    rare: tuple[int, int]
    context: Context | None  # None if the marks do not tell it


def is_served(steps: pd.DataFrame) -> bool:
    """Whether an inference server ran the steps."""
    return bool(steps["mode"].isin(MODES).any())


def select_served(steps: pd.DataFrame, mode: str | None = None) -> ServedSteps:
    """The steps of one mode: decode, prefill or mixed; CurvescopeError if no step has it.

    By default it is the mode with most sizes that have three steps, decode first.
    """
    by_mode = {}
    for name in MODES:
        by_mode[name] = _on_axis(steps[steps["mode"] == name], name)
    if mode is None:
        mode = max(MODES, key=lambda name: _rank(by_mode[name]))
    mine = by_mode[mode]
    if mine.empty:
        present = ", ".join(name for name in MODES if not by_mode[name].empty)
        raise CurvescopeError(
            f"--mode {mode}: no step of the profile is of this mode; it has {present}."
        )
    kept, rare = _leave_out_rare(mine)
    numbers = {name: len(rows) for name, rows in by_mode.items() if len(rows)}
    return ServedSteps(
        mode=mode,
        steps=kept,
        axis=Axis() if mode == DECODE else Axis("tokens"),
        numbers=numbers,
        total=len(steps),
        rare=(rare["batch"].nunique(), len(rare)),
        context=_find_context(kept),
    )


def _rank(steps: pd.DataFrame) -> tuple[int, bool]:
    """How much the steps of a mode tell: their repeated sizes, or else whether there are any."""
    return len(_list_repeated(steps)), not steps.empty


def _leave_out_rare(steps: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The steps of sizes that repeat, where enough do, and the others."""
    repeated = _list_repeated(steps)
    if len(repeated) < LEAST_STEPS:
        return steps, steps[:0]
    repeats = steps["batch"].isin(repeated)
    return steps[repeats], steps[~repeats]


def _on_axis(steps: pd.DataFrame, mode: str) -> pd.DataFrame:
    if mode == DECODE or steps["tokens"].isna().all():
        return steps[steps["batch"].notna()]
    timed = steps[steps["tokens"].notna()]
    return timed.assign(requests=timed["batch"], batch=timed["tokens"])


def _list_repeated(steps: pd.DataFrame) -> Sequence[int]:
    count = steps.groupby("batch").size()
    return [int(size) for size in count.index[count >= LEAST_STEPS]]


def _find_context(steps: pd.DataFrame) -> Context | None:
    requests = steps["requests"] if "requests" in steps else steps["batch"]
    per_request = steps["context_tokens"] / requests
    context = per_request.groupby(steps["batch"]).median().dropna()
    if context.empty:
        return None
    first = context.index[0], float(context.iloc[0])
    last = context.index[-1], float(context.iloc[-1])
    return Context(first, last, float(context.min()), float(context.max()))
