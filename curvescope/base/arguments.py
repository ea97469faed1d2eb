"""Parsers for option values that several commands use."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from .errors import CurvescopeError

# Of `diagnose`: measuring and experiments together, where measuring has a minute; experiments get
# what it leaves, more than half.
TOTAL_S, FAST_TOTAL_S, LEAST_EXPERIMENTS_S = 140.0, 80.0, 45.0
_MEASURING_S = 60.0
PROGRAM_FACTOR = 3.0  # of the time to measure, for a program, which starts anew for every visit
FAST_STEP_NS = 20_000_000  # a step under it is fast
DEFAULT_EXPERIMENTS_S = 90.0  # of `confirm`
# of both: there every process starts, and every visit warms up, for longer
CUDA_EXPERIMENTS_S = 180.0
QUICK_EXPERIMENTS_S = 15.0  # with --quick
PROBE_SHARE = 0.15  # of the time of a sweep, for sizes between its own


def device_kind(meta: Mapping[str, Any]) -> str:
    """`cpu` or `cuda`: the kind of a recording's device, by its `recording.json`; cpu if it does
    not say.
    """
    return str((meta.get("device") or {}).get("kind") or "cpu")


def default_experiments_s(device: str) -> float:
    """Seconds for experiments on `cpu` or `cuda:N`."""
    return CUDA_EXPERIMENTS_S if device.startswith("cuda") else DEFAULT_EXPERIMENTS_S


def total_s(device: str, limit_s: float) -> float:
    """Seconds of `diagnose` on `cpu` or `cuda:N`: of measuring within a limit, and of
    experiments.
    """
    if device.startswith("cuda"):
        return limit_s + CUDA_EXPERIMENTS_S
    return max(TOTAL_S / _MEASURING_S * limit_s, limit_s + LEAST_EXPERIMENTS_S)


def parse_share(option: str, text: str, form: str = "a share, e.g. 5% or 0.05") -> float:
    """Parse a share written as `5%` or `0.05`, between 0 and 1; the option and `form` are for the
    message.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise CurvescopeError(f"{option} {text}: {form}.")
    return share


def parse_duration(option: str, text: str) -> float:
    """Seconds of a duration written as `60s`, `2m`, `30ms`, or a number of seconds; 0 for none."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(ms|s|m|min|h)?", text.strip())
    units = {None: 1, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600}
    if match is None or not math.isfinite(seconds := float(match[1]) * units[match[2]]):
        raise CurvescopeError(f"{option} {text}: a duration, e.g. 60s or 2m; 0 for none.")
    return seconds


def duration_text(seconds: float) -> str:
    """A duration in words, e.g. `60 s` or `2.5 minutes`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"
