"""The two exceptions for users; both messages contain the remedy, and both end a command with exit
code 2.
"""

from __future__ import annotations

from collections.abc import Iterable


class CurvescopeError(Exception):
    """Bad input or an unusable machine. The message says what to do about it."""


class BackendMissingError(CurvescopeError):
    """An optional package, tool or device is missing. The message says how to get it."""


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Raise an error that lists the choices unless the value is one of them."""
    if value not in choices:
        listed = ", ".join(choices)
        raise CurvescopeError(f"Unknown {what} {value!r}: choose from {listed}.")
