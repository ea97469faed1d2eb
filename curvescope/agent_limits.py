"""Limits of the MCP server: the folders that an agent may read, and the length of answers.

It may read below a few roots: the folder that the server is started in, and the folders and URLs
named at its start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .base.errors import CurvescopeError
from .base.escaping import escape_controls
from .profiling.recording.store import META_FILE

MOST_ROWS = 100
MOST_CHARACTERS = 60_000  # of an answer, as JSON
_NAME = 120  # characters of a name, of which the last ones often tell names apart
_NAME_END = 20
_SENTENCE = 600  # characters of a sentence, which may hold names
_SENTENCES = frozenset(
    ("headline", "sentence", "what", "how", "lost", "how_sure", "notes", "note", "warnings")
)
_ENTRIES = (MOST_ROWS, 50, 25, 10, 3)  # of a list, tried until the answer is short enough
_URL = re.compile(r"[A-Za-z][\w+.-]*:{1,2}//|[\w+.-]+::")


class Roots:
    """Folders and URLs below which an agent may read."""

    def __init__(self, named: Sequence[str] = ()) -> None:
        """The working folder and named roots; CurvescopeError: a named folder does not exist."""
        self._urls: list[str] = []
        self._folders = [Path.cwd().resolve()]
        missing = []
        for root in named:
            if _URL.search(root):
                self._urls.append(root.rstrip("/"))
            elif Path(root).is_dir():
                self._folders.append(Path(root).resolve())
            else:
                missing.append(str(Path(root)))
        if missing:
            raise CurvescopeError(
                f"{', '.join(missing)} is no folder: name folders, or URLs, that agents may read."
            )

    def check(self, path: str) -> None:
        """Refuse a path, or a URL, that is not below a root, or leads out of it by a link."""
        try:
            inside = self._holds_url(path) if _URL.search(path) else self._holds_path(path)
        except (OSError, RuntimeError, ValueError) as error:  # e.g. links in a circle
            why = getattr(error, "strerror", None) or shorten_text(str(error), _NAME)
            raise CurvescopeError(f"{shorten_text(path, _NAME)} is no path ({why}).") from error
        if not inside:
            raise CurvescopeError(
                f"{shorten_text(path, _NAME)} is outside what agents may read: the folder that the "
                "server was started in, and those named at its start (`curvescope mcp FOLDER …`)."
            )

    def _holds_url(self, url: str) -> bool:
        if ".." in url.split("/") or re.search(r"[?#%*\\]|::", url):
            return False
        return any(f"{url}/".startswith(f"{root}/") for root in self._urls)

    def _holds_path(self, path: str) -> bool:
        resolved = Path(path).resolve()
        return self._holds(resolved) and all(map(self._holds, _links(resolved)))

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._folders)


def _links(folder: Path) -> Iterator[Path]:
    """Targets of the links that a reader of a folder follows: in it, and in recordings below."""
    places = [folder]
    for inside in ("", "*/", "*/*/"):
        places += [meta.parent for meta in folder.glob(f"{inside}{META_FILE}")]
    for place in places:
        yield place.resolve()
        followed = list(place.glob("*.json"))
        if place in places[1:]:
            followed += place.glob("**/*")
        yield from (path.resolve() for path in followed if path.is_symlink())


def shorten_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with numbers of four digits, short names, and lists that are cut off until it is
    short enough.

    `x_left_out` counts the entries that a list `x` lacks.
    """
    for entries in _ENTRIES:
        short: dict[str, Any] = _shorten_value(answer, entries)
        if len(json.dumps(short)) <= MOST_CHARACTERS:
            return short
    raise CurvescopeError("The answer is too long; the command itself prints all of it.")


def _shorten_value(value: Any, entries: int, name: str = "") -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, str):
        return shown(value, _SENTENCE if name in _SENTENCES else _NAME)
    if isinstance(value, (list, tuple)):
        return [_shorten_value(item, entries, name) for item in value[:entries]]
    if not isinstance(value, Mapping):
        return value
    short: dict[str, Any] = {}
    for key, item in [*value.items()][:MOST_ROWS]:
        if key == "schema" or key in short:  # the latter was counted with its list
            continue
        short[shown(str(key), _NAME)] = _shorten_value(item, entries, key)
        if isinstance(item, (list, tuple)) and len(item) > entries:
            counted = f"{key}_left_out"
            short[counted] = len(item) - entries + int(value.get(counted) or 0)
    return short


def shown(text: str, most: int = _SENTENCE) -> str:
    """A text as an agent gets it: of at most so many characters, and without any that hides."""
    return escape_controls(shorten_text(text, most))


def shorten_text(text: str, most: int = _SENTENCE) -> str:
    """A text of at most so many characters, with its beginning and its end."""
    return text if len(text) <= most else f"{text[: most - _NAME_END - 1]}…{text[-_NAME_END:]}"
