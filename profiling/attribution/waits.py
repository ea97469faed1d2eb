"""Joins CUPTI's synchronisation records to the API calls that waited."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .nesting import NONE, Ints

EVENT = 1
CONTEXT = 4
# CUpti_ActivitySynchronizationType.
_WORDS = {EVENT: "event", 2: "stream_event", 3: "stream", CONTEXT: "context"}
NO_NUMBER = 0xFFFF_FFFF  # CUPTI's stream or event of a record without one


class Waits:
    """What each call waited for, by a number of the call, e.g. its correlation id; its first record
    counts.
    """

    def __init__(self, call: Ints, type_: Ints, stream: Ints) -> None:
        # `stream` is `NO_NUMBER` or `NONE` for none.
        self._call, first = np.unique(call, return_index=True)
        self._type = type_[first]
        self._stream = stream[first]

    def columns(self, call: Ints) -> dict[str, pa.Array]:
        """Columns waits_for and stream of calls; no column if no call of the profile waited."""
        if not len(self._call):
            return {}
        index = np.minimum(np.searchsorted(self._call, call), len(self._call) - 1)
        kinds = list(_WORDS)
        kind = self._type[index]
        waits = (self._call[index] == call) & np.isin(kind, kinds)
        word = np.where(waits, np.searchsorted(kinds, kind), 0)
        words = pa.array(list(_WORDS.values()))
        stream = self._stream[index]
        has_stream = waits & (stream != NO_NUMBER) & (stream != NONE)
        return {
            "waits_for": words.take(pa.array(word, mask=~waits)),
            "stream": pa.array(stream, mask=~has_stream),
        }
