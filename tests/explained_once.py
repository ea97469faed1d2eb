"""A process keeps what it made of a recording, as many tests show the same one: the same files,
`recording.json` and variables give the same diagnosis and the same advice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from curvescope.analysis.diagnosis import explain, suggested
from curvescope.analysis.render import documents, show_advice

_KEPT: dict[Any, Any] = {}
_WHILE_CHANGED: dict[Any, Any] = {}  # what is made while a test has changed an attribute
_CHANGING: set[int] = set()
_MOST = 24  # results, the latest; one of a sweep has some 20 MB
# Variables that change how a result is shown alone, and the one that pytest sets for every test.
_OF_PAGES = {"COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "PYTEST_CURRENT_TEST", "TERM"}


def install() -> None:
    """Keep results from now on, in this process."""
    explain.read = _kept(explain.read)
    explain.diagnose = _kept(explain.diagnose)
    suggested.advise = show_advice.advise = _kept(suggested.advise)
    _set_aside_where_patched()


def forget() -> None:
    """Let all be made anew, where something else than a recording has changed."""
    _KEPT.clear()
    _WHILE_CHANGED.clear()


def _set_aside_where_patched() -> None:
    """Take nothing from before a test changes an attribute, until it is put back: then that is
    true again, and what was made meanwhile is not.
    """

    def set_aside(change: Callable[..., None]) -> Callable[..., None]:
        @wraps(change)
        def set_aside_and_change(
            patch: pytest.MonkeyPatch, target: Any, *arguments: Any, **options: Any
        ) -> None:
            # What changes before a test runs, changes for all; conftest.py changes documents for
            # every test; variables are part of each key.
            runs = "PYTEST_CURRENT_TEST" in os.environ
            if runs and target is not documents and target is not os.environ:
                _WHILE_CHANGED.clear()
                _CHANGING.add(id(patch))
            change(patch, target, *arguments, **options)

        return set_aside_and_change

    undo = pytest.MonkeyPatch.undo

    def undo_and_take_again(patch: pytest.MonkeyPatch) -> None:
        undo(patch)
        _WHILE_CHANGED.clear()
        _CHANGING.discard(id(patch))

    for name in ("setattr", "delattr", "setitem", "delitem"):
        setattr(pytest.MonkeyPatch, name, set_aside(getattr(pytest.MonkeyPatch, name)))
    pytest.MonkeyPatch.undo = undo_and_take_again  # type: ignore[method-assign]


def _kept(make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def take(*arguments: Any, **options: Any) -> Any:
        try:
            key = (
                make.__name__,
                _variables(),
                *map(_content, arguments),
                *options,
                *map(_content, options.values()),
            )
            hash(key)
        except (TypeError, OSError):  # a table of a test's own, a store on a server
            return make(*arguments, **options)
        kept = _WHILE_CHANGED if _CHANGING else _KEPT
        made = kept.pop(key, None)
        if made is None:
            # With the arguments, whose identity is part of the key.
            made = make(*arguments, **options), arguments
        kept[key] = made
        if len(kept) > _MOST:
            del kept[next(iter(kept))]
        return made[0]

    return take


def _variables() -> frozenset[tuple[str, str]]:
    """The variables of the environment that may change a result."""
    return frozenset(one for one in os.environ.items() if one[0] not in _OF_PAGES)


def _content(value: Any) -> Any:
    """What two values have in common that give the same result."""
    if hasattr(value, "meta"):  # a recording
        files = (
            (str(file), file.stat().st_size, file.stat().st_mtime_ns)
            for file in sorted(Path(value.path).rglob("*"))
        )
        return str(value.named), json.dumps(value.meta, sort_keys=True), *files
    if isinstance(value, dict):
        return tuple(value.items())
    if value is None or isinstance(value, str | bool):
        return value
    return id(value)
