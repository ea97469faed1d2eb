"""Factors of a step that its user compiles: how often torch may do so, and for which shapes."""

from __future__ import annotations

import functools
from typing import Any

from ...base.torch_runtime import import_torch
from ...profiling.collect.compilations import NONE, SHARED
from ...profiling.collect.inductor import allow_versions
from ..factor import Factor, StepChange, Target

_SETUP_S = 40.0  # compiles every size; a recording tells what that took


def _reason_against(target: Target, code: str, why: str) -> str | None:
    if target.configuration.compiled:
        return "it is compiled for each size already"
    return None if code in target.compiled_code.values() else why


def _against_more(target: Target) -> str | None:
    return _reason_against(target, NONE, "no size reached the limit of versions")


def _against_static(target: Target) -> str | None:
    return _reason_against(target, SHARED, "no size ran code of dynamic shapes")


def _compile_with(dynamic: bool) -> None:
    """Let every `torch.compile` of this process take a value of `dynamic`, whatever it is given."""
    torch = import_torch()
    original = torch.compile

    @functools.wraps(original)
    def compile_so(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, "dynamic": dynamic})

    torch.compile = compile_so
    allow_versions()


MORE_VERSIONS = Factor(
    name="more_versions",
    what="torch.compile may compile a function for more shapes",
    remedy="raise the number of shapes for which torch.compile compiles {where}",
    step=StepChange(
        how="torch._dynamo.config.recompile_limit = 64 before the first call "
        "(cache_size_limit until torch 2.5)",
        setup_s=_SETUP_S,
        compiles_again=True,
        reason_against=_against_more,
        prepare=lambda _: allow_versions(),
    ),
    sets="code",
)
DYNAMIC_SHAPES = Factor(
    name="dynamic_shapes",
    what="torch.compile makes one code for any size",
    remedy="compile {where} once, for any size",
    step=StepChange(
        how="torch._dynamo.mark_dynamic(x, 0) on each input before the first call, or "
        "torch.compile(..., dynamic=True)",
        setup_s=_SETUP_S,
        compiles_again=True,
        reason_against=_against_more,
        prepare=lambda _: _compile_with(dynamic=True),
    ),
    sets="code",
)
STATIC_SHAPES = Factor(
    name="static_shapes",
    what="torch.compile makes a code of its own for each size",
    remedy="compile {where} for each size alone",
    step=StepChange(
        how="torch.compile(..., dynamic=False), with torch._dynamo.config.recompile_limit above "
        "the number of sizes",
        setup_s=_SETUP_S,
        compiles_again=True,
        reason_against=_against_static,
        prepare=lambda _: _compile_with(dynamic=False),
    ),
    sets="code",
)
