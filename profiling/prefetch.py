"""Reading ahead: what comes next is made in a thread while what came before is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def read_ahead(first: _T | None, read: Callable[[], _T | None]) -> Iterator[_T]:
    """The first item and those that `read` gives until it gives null, each read while the one before it is used.

    Leaving early waits for what is being read, so that its source may be closed then.
    """
    with ThreadPoolExecutor(1) as reader:
        item = first
        while item is not None:
            following = reader.submit(read)
            yield item
            item = following.result()
