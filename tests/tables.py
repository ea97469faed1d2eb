"""Tests that ask the same of many inputs: one test with a table, as each test costs milliseconds
to collect, to set up and to report.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any


def ask_each(
    names: str | Sequence[str], rows: Collection[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that calls a test with every row of a table, and names the row that fails.

    It reads as `pytest.mark.parametrize`; rows share the test's fixtures, so that none of these may
    keep what a row did.

    Args:
        names: names of the test's arguments that the table gives.
        rows: values in the order of the names; a single name has bare values.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    assert rows, "a table without rows asks nothing"
    assert not any(hasattr(row, "marks") for row in rows), "a row of a table has no marks"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def ask(**fixtures: object) -> None:
            for row in rows:
                values = [row] if len(arguments) == 1 else row
                chosen = dict(zip(arguments, values, strict=True))
                try:
                    test(**chosen, **fixtures)
                except Exception as error:
                    raise AssertionError(f"it fails for {chosen!r}: {error}") from error

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in arguments]
        ask.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return ask

    return decorate
