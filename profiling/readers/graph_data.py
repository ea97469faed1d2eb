"""Reads what `torch.cuda.CUDAGraph.get_graph_data()` returns, as JSON: one graph, or a list of them.

The numbers of its nodes are those that CUPTI gives to the kernels of a replay, and nodes are numbered as they were
captured. So the n-th kernel node is the n-th launch of the capture, whatever order and streams a replay uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from ...base.errors import CurvescopeError
from ..attribution.nesting import Ints

NODE_MASK = (1 << 32) - 1  # of a node's number, if the number of its graph stands above it


class _Node(msgspec.Struct):
    node_id: int
    node_type: str


class _Graph(msgspec.Struct):
    exec_graph_id: int
    nodes: list[_Node]


def read_graph_data(path: Path) -> Mapping[int, Ints]:
    """Numbers of the kernel nodes of each graph, by its number, in the order of their capture.

    Raises:
        CurvescopeError: the file cannot be read, or is of another form.
    """
    try:
        graphs = msgspec.json.decode(path.read_bytes(), type=_Graph | list[_Graph])
    except (OSError, msgspec.DecodeError) as error:
        raise CurvescopeError(
            f"--graph-data {path}: no JSON of CUDAGraph.get_graph_data() ({error}); write it with `json.dump(graph."
            "get_graph_data(), file)`, or a list of those of several graphs."
        ) from error
    return {
        graph.exec_graph_id: np.sort([node.node_id & NODE_MASK for node in graph.nodes if node.node_type == "kernel"])
        for graph in (graphs if isinstance(graphs, list) else [graphs])
    }
