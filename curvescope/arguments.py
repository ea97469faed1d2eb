"""Forms of arguments that several commands take."""

from __future__ import annotations


def parse_share(option: str, text: str, form: str = "a share, as in 5% or 0.05") -> float:
    """A share as `5%` or `0.05`, more than 0 and less than 1.

    Args:
        option: that takes it.
        text: its value.
        form: what a refusal says it should be.

    Raises:
        CurvescopeError: it is neither.
    """
    from .profiling.errors import CurvescopeError

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise CurvescopeError(f"{option} {text}: {form}.")
    return share
