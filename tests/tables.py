"""Tests that ask the same of many inputs: one test with a table, as each test costs milliseconds
to collect, to set up and to report; and tables of which each run asks a part.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest


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


def grade(rows: Sequence[Any], quick: Collection[Any], in_ci: Collection[Any]) -> list[Any]:
    """Parameters of one question of many inputs: `make test` asks it of the quick rows, `make
    test-ci` also of those `in_ci`, and `make test-all` of all. A tuple has several values.
    """
    assert set(quick) <= set(rows), "a quick row that is none of the table"
    assert set(in_ci) <= set(rows), "a row of CI that is none of the table"
    graded = []
    for row in rows:
        marks = [] if row in quick else [pytest.mark.slow]
        if row not in {*quick, *in_ci}:
            marks.append(pytest.mark.exhaustive)
        values = row if isinstance(row, tuple) else (row,)
        graded.append(pytest.param(*values, marks=marks))
    return graded
