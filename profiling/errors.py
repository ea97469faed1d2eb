"""The two exceptions a user meets; both carry the remedy in their text and end the command with exit code 2."""

from __future__ import annotations


class CurvescopeError(Exception):
    """Bad input or a bad state of the machine. The message says what to do about it."""


class BackendMissingError(CurvescopeError):
    """An optional package, tool or device is not here. The message says how to get it."""
