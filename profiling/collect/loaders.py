"""Marks the time in which a step waits for the next batch of a torch DataLoader."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def around_batches(range_: Callable[[], contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter a context while a DataLoader makes a batch, or waits for one, until the block ends."""
    iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
    following = getattr(iterator, "__next__", None)
    if iterator is None or following is None:
        yield
        return

    def marked(self: Any) -> Any:
        with range_():
            return following(self)

    iterator.__next__ = marked
    try:
        yield
    finally:
        iterator.__next__ = following
