"""Joins device work to its launch by correlation id."""

from __future__ import annotations

import numpy as np

from .nesting import NONE, Codes, Ints

_STRETCH_ROWS = 1 << 16  # intermediate results for so many rows stay in the processor's caches


class Joiner:
    """Finds the launch of device work by process and correlation id; the first of several with one
    id counts.
    """

    def __init__(self, process: Codes, keys: Ints) -> None:
        self._several = len(process) > 0 and bool((process != process[0]).any())
        self._low = int(keys.min()) if len(keys) else 0
        self._high = int(keys.max()) if len(keys) else -1
        count = self._high - self._low + 1
        # Profilers count ids up: a lookup beats a search.
        self._dense = not self._several and count <= 4 * len(keys) + 1024
        if self._several:
            self._processes, which = np.unique(process, return_inverse=True)
        else:
            self._processes = process[:1]
            which = np.zeros(len(keys), np.int8)
        if self._dense:
            self._table = np.full(max(count, 0), NONE, np.int32)
            # Backwards, so that the first of several stays.
            for first in reversed(range(0, len(keys), _STRETCH_ROWS)):
                stretch = keys[first : first + _STRETCH_ROWS] - self._low
                rows = np.arange(first, first + len(stretch), dtype=np.int32)
                self._table[stretch[::-1]] = rows[::-1]
        else:
            self._order = np.lexsort((keys, which))
            self._keys = keys[self._order]
            processes = range(len(self._processes) + 1)
            self._edges = np.searchsorted(which[self._order], processes)

    def find(self, process: Codes, correlation: Ints) -> Codes:
        """Index of the launch of each row, or `NONE`."""
        launches = np.full(len(correlation), NONE, np.int32)
        for index, of_launches in enumerate(self._processes.tolist()):
            # With launches of one process, or work without processes, ids alone decide.
            mine = correlation != NONE
            if self._several or (of_launches != NONE and (process != NONE).any()):
                mine &= process == of_launches
            every = bool(mine.all())
            at = self._at(correlation if every else correlation[mine], index)
            if every:
                return at
            launches[mine] = at
        return launches

    def _at(self, wanted: Ints, index: int) -> Codes:
        if self._dense:
            inside = (wanted >= self._low) & (wanted <= self._high)
            at = wanted - self._low
            if inside.all():
                return self._table[at]
            rows = self._table[np.where(inside, at, 0)]
            return np.where(inside, rows, np.int32(NONE))
        first = self._edges[index]
        last = self._edges[index + 1]
        place = first + np.searchsorted(self._keys[first:last], wanted)
        at = np.minimum(place, last - 1)
        matches = self._keys[at] == wanted
        return np.where(matches, self._order[at], NONE).astype(np.int32)
