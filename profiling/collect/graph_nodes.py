"""Where the nodes of CUDA graphs were captured.

A launch of a graph replays clones of the captured nodes: instantiation clones the whole graph, and a child graph is
cloned into its parent before. The collector records every creation with its thread and time, and every clone with
its original. An update of an executable graph keeps its nodes, so they stay those of the first capture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .chunks import Integers, ProcessChunks

_NOT_FOUND = -1


class GraphNodes:
    """The captured nodes of one process."""

    def __init__(self, process: ProcessChunks) -> None:
        rows = list(process.rows("graph_nodes"))
        original = {node: of for node, of, _, _ in rows if of}
        created = {node: (time_ns, thread) for node, of, time_ns, thread in rows if not of}
        captured: dict[int, tuple[int, int]] = {}
        for node in (*original, *created):
            first = _first_of(node, original)
            if first in created:
                captured[node] = created[first]
        self._node = np.array(sorted(captured), np.int64)
        place = np.array([captured[node] for node in self._node.tolist()], np.int64).reshape(-1, 2)
        self._time_ns, self._thread_key = place[:, 0], process.thread_key(place[:, 1])

    def columns(self, node: Integers) -> dict[str, Any]:
        """Columns of device work: its node, and when and by which thread that was captured.

        Args:
            node: number of each row's node; 0 for work outside graphs.

        Returns:
            Columns graph_node_id, capture_ns and capture_thread_key, null where there is none.
        """
        index = np.full(len(node), _NOT_FOUND)
        if len(self._node):
            place = np.minimum(np.searchsorted(self._node, node), len(self._node) - 1)
            index = np.where(self._node[place] == node, place, _NOT_FOUND)
        unknown = index == _NOT_FOUND
        time_ns, thread = (
            values[index] if len(values) else np.zeros(len(node), np.int64)
            for values in (self._time_ns, self._thread_key)
        )
        return {
            "graph_node_id": pa.array(node, mask=node == 0),
            "capture_ns": pa.array(time_ns, mask=unknown),
            "capture_thread_key": pa.array(thread, mask=unknown),
        }


def _first_of(node: int, original: dict[int, int]) -> int:
    """The node that a node was cloned from, directly or through other clones; the node itself if it is no clone."""
    seen = {node}
    while node in original and original[node] not in seen:  # a damaged file may have a cycle
        node = original[node]
        seen.add(node)
    return node
