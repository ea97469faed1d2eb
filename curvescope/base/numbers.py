"""Numbers as text, with units that fit their size; `base.js` of the report repeats some."""

from __future__ import annotations

import math
import re

from .counted import counted

_NEGATIVE = re.compile(r"(?<![\w.+…-])-(?=\d)")
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float, digits: int = 4) -> str:
    """A number with that many significant digits, never in scientific notation, digits before the
    point kept.
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = min(max(0, digits - 1 - magnitude), 6)
    shown = f"{value:.{decimals}f}"
    return shown if float(shown) else "0"


def smaller_terms(count: int) -> str:
    """How a line names the terms that it adds up."""
    return counted(count, "smaller term")


def with_minus_signs(text: str) -> str:
    """A sentence for a page, with true minus signs before its negative numbers."""
    return _NEGATIVE.sub("−", text)


def with_sign(value: float, digits: int = 3) -> str:
    """A number with its sign."""
    sign = "+" if value > 0 else ""
    return sign + number(value, digits)


def percent(share: float) -> str:
    """A share in whole percent, e.g. 35 %."""
    return f"{100 * share:.0f} %"


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """A quantity with a decimal prefix that fits its size, e.g. 8.87 TFLOP/s or 4.96 GB (GB is 10⁹
    bytes).

    Args:
        value: the quantity in `unit`, at least 0.
        unit: B, B/s, FLOP/s or Hz; clocks have the prefix M, as in NVIDIA's tools.
        digits: significant digits.
    """
    if unit == "Hz":
        return f"{number(value / 1e6)} MHz"
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{number(value / size, digits)} {prefix}{unit}"
    return f"{number(value, digits)} {unit}"


def duration(duration_ns: float) -> str:
    """A time with the unit in which it has one to three digits before the point."""
    for unit, size_ns in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if duration_ns >= size_ns:
            return f"{duration_ns / size_ns:.4g} {unit}"
    return f"{duration_ns:.4g} ns"
