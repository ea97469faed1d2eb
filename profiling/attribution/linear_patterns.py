r"""Regular expressions of somebody else: matched by RE2, whose time is linear in the text.

Python's own matcher tries alternatives again and again: `(a+)+$` takes hours on a short name. RE2
knows no look-around and no references to groups; a pattern with one of them is refused. Its `\b`
and `\s`, and `\W` in brackets, know ASCII only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ...base.errors import CurvescopeError

_LONGEST = 1000  # characters of a pattern
_LONGEST_TEXT = 4096  # characters that are searched
_MOST_S = 3.0  # of CPU time for all texts together: a long pattern takes long at each character
# A character class, an escape, the begin of a group without a name, or any character.
_PARTS = re.compile(
    r"\\.|(?P<listed>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])|(?P<unnamed>\((?!\?))|.", re.DOTALL
)
# Classes of Python, which know all scripts, for RE2, whose own know ASCII.
_CLASSES = {r"\d": r"\p{Nd}", r"\D": r"\P{Nd}", r"\w": r"\p{L}\p{N}_", r"\Z": r"\z"}
_WORDS = {r"\w": r"\p{L}\p{N}_", r"\W": r"^\p{L}\p{N}_"}


class LinearPattern:
    """A pattern with named groups."""

    def __init__(self, pattern: str) -> None:
        """CurvescopeError: it is too long, or needs what RE2 does not know."""
        self._pattern = pattern
        self._spent_s = 0.0
        if len(pattern) > _LONGEST:
            raise CurvescopeError(f"it has {len(pattern):,} characters; at most {_LONGEST:,} run")
        self._translated = "".join(_translate(pattern))
        try:
            self.search("")
        except (pa.ArrowException, re.error) as error:
            raise CurvescopeError(f"it is not run for a file of others ({error})") from error

    def search(self, text: str) -> Mapping[str, str] | None:
        """The groups of the first match; None without one.

        CurvescopeError: the texts so far took too long.
        """
        began_s = time.process_time()
        texts = pa.array([text[:_LONGEST_TEXT]])
        groups: Mapping[str, str] | None = pc.extract_regex(texts, self._translated)[0].as_py()
        self._spent_s += time.process_time() - began_s
        if self._spent_s > _MOST_S:
            raise CurvescopeError(f"The pattern {self._pattern[:80]} takes too long.")
        return groups


def _translate(pattern: str) -> Iterator[str]:
    """Its parts in the words of RE2, all groups without a name uncounted."""
    for match in _PARTS.finditer(pattern):
        part = match[0]
        if match.lastgroup == "unnamed":
            yield "(?:"
        elif match.lastgroup == "listed":
            yield re.sub(r"\\.", lambda escape: _CLASSES.get(escape[0], escape[0]), part)
        elif part in _WORDS:
            yield f"[{_WORDS[part]}]"
        else:
            yield _CLASSES.get(part, part)
