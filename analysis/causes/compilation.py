"""Compilation inside a step: torch.compile traces and compiles again, or leaves the compiled code at graph breaks."""

from __future__ import annotations

import re

import pandas as pd

from .case import Intervention
from .single_profile import ProfiledStep, Suggestion, fact, gap_ms, host_gaps, stack_of

CAUSE = "compilation in the step"
INTERVENTION = Intervention(
    expected="With code that is compiled once, these gaps close.",
    untested="no factor changes what a program compiles",
)
_COMPILES = re.compile(
    r"convert_frame|compile_fx|_compile_to_module|compile_inner|async_compile|triton.*compile|aot_module|_dynamo|"
    r"eval_frame.*compile|backend_compile"
)
_REGION = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to avoid recompilation, where the compiler runs in a gap of the device."""
    gaps = host_gaps(step)
    if gaps.empty:
        return None
    compiling = []
    for row in gaps.nlargest(min(len(gaps), 20), "end_ns").itertuples():
        code = step.code_in(int(row.begin_ns), int(row.end_ns))
        if code is not None and any(
            map(_COMPILES.search, (*code.path, *(name for name, _ in code.own_ms)))
        ):
            compiling.append(row.Index)
    found = gaps.loc[compiling]
    found_ms = gap_ms(found, step.steps)
    if not step.enough(found_ms):
        return None
    _, code = step.longest_gap(found)
    evidence = [
        fact(
            "gaps in which the compiler runs, per step",
            found_ms,
            "ms",
            "functions, kernels.start_ns",
        )
    ]
    if breaks := _breaks(step.groups):
        evidence.append(fact("compiled regions per step", breaks, "", "kernels.op"))
    return Suggestion(
        cause=CAUSE,
        what="compiles in the step",
        at_most_ms=found_ms,
        evidence=tuple(evidence),
        where="torch.compile",
        stack=stack_of(code),
        remedy="warm up each shape once, and keep shapes the same or mark them dynamic",
        how="TORCH_LOGS=recompiles,graph_breaks names each place; torch._dynamo.mark_dynamic(x, 0); "
        "torch.compile(..., dynamic=True); mode='default' instead of a search of kernels",
    )


def _breaks(groups: pd.DataFrame) -> int:
    """Number of different compiled regions."""
    regions = (
        groups["op"].dropna().astype(str).str.extract(_REGION)[0].dropna()
        if len(groups)
        else pd.Series()
    )
    return int(regions.nunique())
