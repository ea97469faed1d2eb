"""Counts the page faults inside the operators of a step.

An operator that takes fresh memory from the operating system faults at its first write to each page. No profiler of
torch shows that, but the dispatcher calls a mode around every operator below autograd.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..hardware.host_usage import read_page_faults


@contextmanager
def counting_faults() -> Iterator[list[tuple[int, int]]]:
    """Count the page faults of the process inside every operator that this thread runs until the block ends.

    Yields:
        (time, page faults) of each call that had some; the time is in the middle of the call, nanoseconds of the system
        clock. The list grows as the operators run.
    """
    mode = _Counter()
    with mode:
        yield mode.counted


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counted: list[tuple[int, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator."""
        del types
        began_ns, before = time.time_ns(), read_page_faults()
        returned = func(*args, **(kwargs or {}))
        if faults := read_page_faults() - before:
            self.counted.append(((began_ns + time.time_ns()) // 2, faults))
        return returned
