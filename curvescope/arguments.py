"""Parsers for option values that several commands use."""

from __future__ import annotations


def parse_share(option: str, text: str, form: str = "a share, e.g. 5% or 0.05") -> float:
    """Parse a share written as `5%` or `0.05`, more than 0 and less than 1.

    Args:
        option: name of the option, for the message.
        text: value of the option.
        form: description of a valid value, for the message.

    Raises:
        CurvescopeError: the value is not such a share.
    """
    from .profiling.errors import CurvescopeError

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise CurvescopeError(f"{option} {text}: {form}.")
    return share
