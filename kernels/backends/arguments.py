"""Kernel arguments as cuLaunchKernel takes them: an array of pointers to the values."""

from __future__ import annotations

from typing import Any

import numpy as np


class PackedArguments:
    """Values at addresses that stay, and the array of those addresses.

    Attributes:
        address: of the array, as an integer; null pointer's 0 where there is no argument.
    """

    def __init__(self, values: tuple[Any, ...], alive: tuple[Any, ...] = ()) -> None:
        """Keep the values.

        Args:
            values: integers are device addresses; the others numpy scalars, a structure being `np.void`.
            alive: buffers that the addresses point at, kept as long as the arguments are.
        """
        self._alive = alive
        self._values = [np.array(np.uint64(v) if isinstance(v, int) else v) for v in values]
        self._pointers = np.array([value.ctypes.data for value in self._values], np.uint64)
        self.address = int(self._pointers.ctypes.data) if self._values else 0
