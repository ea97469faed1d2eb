"""Selects the steps of an inference server that make one cost curve, and names what else changes
with the batch size.

Prefill and decode are different work, so a curve has steps of one mode: decode over requests,
prefill over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ..base.counted import counted
from ..base.errors import CurvescopeError
from ..profiling.attribution.served_steps import DECODE, MIXED, PREFILL
from ..profiling.recording.axis import Axis

MODES = (DECODE, PREFILL, MIXED)
_LEAST_STEPS = 3  # of a batch size, where three sizes have so many: an interval needs some
_MOVES = 0.2  # relative change of the context per request that is named


@dataclass(frozen=True)
class ServedSteps:
    """Steps of one mode."""

    steps: pd.DataFrame  # the rows of `steps`; their column `batch` is the axis
    axis: Axis  # the axis: requests, or tokens of prefill and mixed steps
    notes: tuple[str, ...]  # sentences on what was left out, and on what moves with the axis


def is_served(steps: pd.DataFrame) -> bool:
    """Whether the steps are those of an inference server."""
    return bool(steps["mode"].isin(MODES).any())


def select_served(steps: pd.DataFrame, mode: str | None = None) -> ServedSteps:
    """The steps of one mode: decode, prefill or mixed; CurvescopeError if no step has it.

    By default it is the mode with most sizes that have three steps, decode first.
    """
    by_mode = {name: _on_axis(steps[steps["mode"] == name], name) for name in MODES}
    if mode is None:
        mode = max(MODES, key=lambda name: (len(_repeated(by_mode[name])), not by_mode[name].empty))
    mine = by_mode[mode]
    if mine.empty:
        present = ", ".join(name for name in MODES if not by_mode[name].empty)
        raise CurvescopeError(
            f"--mode {mode}: no step of the profile is of this mode; it has {present}."
        )
    axis = Axis() if mode == DECODE else Axis("tokens")
    others = [
        counted(len(rows), f"{name} step")
        for name, rows in by_mode.items()
        if name != mode and len(rows)
    ]
    left_out = f"; left out: {' and '.join(others)} (`--mode` chooses)" if others else ""
    notes = [f"{mode.capitalize()} steps only: {len(mine)} of {len(steps)}{left_out}."]
    repeated = _repeated(mine)
    if len(repeated) >= _LEAST_STEPS and len(repeated) < mine["batch"].nunique():
        rare = mine[~mine["batch"].isin(repeated)]
        notes.append(
            f"Left out: {counted(rare['batch'].nunique(), 'size')} with fewer than {_LEAST_STEPS} "
            f"steps each ({counted(len(rare), 'step')})."
        )
        mine = mine[mine["batch"].isin(repeated)]
    return ServedSteps(mine, axis, (*notes, *_context_notes(mine, axis)))


def _on_axis(steps: pd.DataFrame, mode: str) -> pd.DataFrame:
    if mode == DECODE or steps["tokens"].isna().all():
        return steps[steps["batch"].notna()]
    return steps.assign(requests=steps["batch"], batch=steps["tokens"])[steps["tokens"].notna()]


def _repeated(steps: pd.DataFrame) -> Sequence[int]:
    count = steps.groupby("batch").size()
    return [int(size) for size in count.index[count >= _LEAST_STEPS]]


def _context_notes(steps: pd.DataFrame, axis: Axis) -> list[str]:
    """Whether the context per request changes over the axis: then the curve shows both."""
    requests = steps["requests"] if "requests" in steps else steps["batch"]
    context = (steps["context_tokens"] / requests).groupby(steps["batch"]).median().dropna()
    if context.empty:
        return ["The marks do not tell the context, which changes the work of attention, too."]
    if context.max() <= (1 + _MOVES) * context.min():
        return []
    first, last = context.index[0], context.index[-1]
    return [
        f"The context per request moves with the {axis.name}: median {context.iloc[0]:.0f} tokens "
        f"at {first}, {context.iloc[-1]:.0f} at {last} (from {context.min():.0f} to "
        f"{context.max():.0f}). Attention costs more with a longer context, so a deviation in "
        "attention may come from it."
    ]
