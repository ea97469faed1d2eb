"""Fixed words of documents."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """One of a few fixed words: equal to its text, printed and written to JSON as it."""

    __str__ = str.__str__


# For what a profile does not tell, where a table or a document needs a word.
UNKNOWN = "unknown"
