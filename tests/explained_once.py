"""A process keeps what it made of a recording, as many tests show the same one: the same files and
the same `recording.json` give the same diagnosis and the same advice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from curvescope.analysis.diagnosis import explain, suggested
from curvescope.analysis.render import documents, show_advice

_KEPT: dict[Any, Any] = {}
_MOST = 12  # results, the latest; one of a sweep has some 20 MB


def install() -> None:
    """Keep results from now on, in this process."""
    explain.read = _kept(explain.read)
    explain.diagnose = _kept(explain.diagnose)
    suggested.advise = show_advice.advise = _kept(suggested.advise)
    _forget_where_patched()


def forget() -> None:
    """Let all be made anew, where something else than a recording has changed."""
    _KEPT.clear()


def _forget_where_patched() -> None:
    """Keep nothing from before a test changes an attribute, nor from then until it is put back."""
    change, undo = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo
    changing = set()

    def forget_and_change(patch: pytest.MonkeyPatch, target: Any, *arguments: Any, **options: Any):
        if target is not documents:  # which conftest.py changes for every test
            forget()
            changing.add(id(patch))
        change(patch, target, *arguments, **options)

    def undo_and_forget(patch: pytest.MonkeyPatch) -> None:
        undo(patch)
        if id(patch) in changing:
            forget()
            changing.remove(id(patch))

    pytest.MonkeyPatch.setattr = forget_and_change  # type: ignore[method-assign]
    pytest.MonkeyPatch.undo = undo_and_forget  # type: ignore[method-assign]


def _kept(make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def take(*arguments: Any, **options: Any) -> Any:
        try:
            key = (
                make.__name__,
                *map(_content, arguments),
                *options,
                *map(_content, options.values()),
            )
            hash(key)
        except (TypeError, OSError):  # a table of a test's own, a store on a server
            return make(*arguments, **options)
        made = _KEPT.pop(key, None)
        if made is None:
            # With the arguments, whose identity is part of the key.
            made = make(*arguments, **options), arguments
        _KEPT[key] = made
        if len(_KEPT) > _MOST:
            del _KEPT[next(iter(_KEPT))]
        return made[0]

    return take


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
