"""Prefetching: a thread reads the next item while the current one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


def read_ahead(first: _T | None, read: Callable[[], _T | None]) -> Iterator[_T]:
    """Yield the first item and those that `read` returns until it returns None, reading one item
    ahead.

    On early exit it waits for the pending read, so that the source can be closed afterwards.
    """
    with ThreadPoolExecutor(1) as reader:
        item = first
        while item is not None:
            following = reader.submit(read)
            yield item
            item = following.result()


def map_ahead(
    workers: Executor, work: Callable[..., _T], items: Iterable[tuple[Any, ...]], most: int
) -> Iterator[_T]:
    """Yield `work(*item)` of each item, in order; the workers take the next items meanwhile, `most`
    at once.
    """
    pending: deque[Future[_T]] = deque()
    for item in items:
        pending.append(workers.submit(work, *item))
        if len(pending) == most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
