"""Where the nodes of CUDA graphs were captured: a launch replays clones of them.

Instantiation clones the whole graph, and a child graph is cloned into its parent before; profilers
record every creation and the original of every clone. An update of an executable graph keeps the
nodes of the first capture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .nesting import NONE, Ints

Node = tuple[int, int]  # process and number


class GraphNodes:
    """The captured nodes of all processes of a profile."""

    def __init__(
        self, process: Ints, node: Ints, original: Ints, time_ns: Ints, thread_key: Ints
    ) -> None:
        """Follow each clone to the capture; `original` is 0 for a captured node.

        Columns of shape (creations,).
        """
        columns = (process, node, original, time_ns, thread_key)
        originals: dict[Node, Node] = {}
        created: dict[Node, list[int]] = {}
        for owner, number, first, *place in zip(*(c.tolist() for c in columns), strict=True):
            if first:
                originals[owner, number] = (owner, first)
            else:
                created[owner, number] = place
        captured = {}
        for clone in (*originals, *created):
            first = _first_of(clone, originals)
            if first in created:
                captured[clone] = created[first]
        self._row_of = {clone: row for row, clone in enumerate(captured)}
        self._places = np.array(list(captured.values()), np.int64).reshape(-1, 2)

    def columns(self, process: Ints, node: Ints) -> dict[str, Any]:
        """Columns graph_node_id, capture_ns and capture_thread_key of device work.

        They are null where there is none; `node` is 0 or less for work outside graphs.
        """
        launches = np.full(len(node), NONE, np.int64)
        of_graph = node > 0
        if self._row_of and of_graph.any():
            clones = np.stack([process[of_graph], node[of_graph]])
            pairs, pair = np.unique(clones, axis=1, return_inverse=True)
            rows = [self._row_of.get(clone, NONE) for clone in zip(*pairs.tolist(), strict=True)]
            launches[of_graph] = np.array(rows, np.int64)[pair.ravel()]
        places = np.zeros((len(node), 2), np.int64)
        if len(self._places):
            places = self._places[launches]
        unknown = launches == NONE
        return {
            "graph_node_id": pa.array(node, mask=~of_graph),
            "capture_ns": pa.array(places[:, 0].copy(), mask=unknown),
            "capture_thread_key": pa.array(places[:, 1].copy(), mask=unknown),
        }


def _first_of(node: Node, originals: dict[Node, Node]) -> Node:
    """The node that a node was cloned from, directly or through other clones; the node itself if it
    is no clone.
    """
    visited = {node}
    while node in originals and originals[node] not in visited:  # a damaged file may have a cycle
        node = originals[node]
        visited.add(node)
    return node
