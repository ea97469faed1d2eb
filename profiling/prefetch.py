"""Prefetching: a thread reads the next item while the current one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def read_ahead(first: _T | None, read: Callable[[], _T | None]) -> Iterator[_T]:
    """Yield the first item and those that `read` returns until it returns None, reading one item ahead.

    On early exit it waits for the pending read, so that the source can be closed afterwards.
    """
    with ThreadPoolExecutor(1) as reader:
        item = first
        while item is not None:
            following = reader.submit(read)
            yield item
            item = following.result()
