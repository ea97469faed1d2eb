"""The two exceptions for users; both messages contain the remedy, and both end a command with exit code 2."""

from __future__ import annotations


class CurvescopeError(Exception):
    """Bad input or an unusable machine. The message says what to do about it."""


class BackendMissingError(CurvescopeError):
    """An optional package, tool or device is missing. The message says how to get it."""
