"""Kernel arguments in the form of cuLaunchKernel: an array of pointers to the values."""

from __future__ import annotations

from typing import Any

import numpy as np


class PackedArguments:
    """Values at stable addresses, and the array of those addresses.

    Attributes:
        address: address of the array as an integer; 0 (null pointer) without arguments.
    """

    def __init__(self, values: tuple[Any, ...], alive: tuple[Any, ...] = ()) -> None:
        """Store the values.

        Args:
            values: integers are device addresses; other values are numpy scalars, or `np.void` for a structure.
            alive: buffers behind the addresses, kept alive as long as the arguments.
        """
        self._alive = alive
        self._values = [np.array(np.uint64(v) if isinstance(v, int) else v) for v in values]
        self._pointers = np.array([value.ctypes.data for value in self._values], np.uint64)
        self.address = int(self._pointers.ctypes.data) if self._values else 0
