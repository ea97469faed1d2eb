"""Kernels of CUDA graphs have the layer and operator of their capture, which lies in
another trace.
"""

import json

import msgspec
import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers.pytorch_events import Events

from .made_profiles import PROFILES, imported
from .test_pytorch_json import event

DECODE, CAPTURE = (PROFILES / f"tl_sglang_{name}.json.gz" for name in ("decode", "capture_bs32"))


def kernels_of(execution, capture, folder, **options):
    recording = imported(execution, folder, capture=capture, **options)
    return recording.frame("kernels"), recording.meta


def test_a_decode_step_has_the_layers_of_its_capture(tmp_path):
    kernels, meta = kernels_of(DECODE, CAPTURE, tmp_path)
    assert meta["graph_capture"] == {"replays": 1, "joined_by": "names of the kernels"}
    assert (len(kernels), int(kernels["graph_node_id"].notna().sum())) == (555, 544)
    time = kernels["duration_ns"]
    assert time[kernels["layer"].notna()].sum() > 0.99 * time.sum()
    assert time[kernels["op"].notna()].sum() > 0.95 * time.sum()
    # Every layer of the model has its own products: 36 of each kind.
    assert kernels["layer"].str.fullmatch(r"(.*/)?QKVParallelLinear_\d+").sum() == 36
    assert set(kernels["step"]) == {0}
    alone = imported(DECODE, tmp_path).frame("kernels")
    assert alone["layer"].notna().sum() < 10


def test_only_a_capture_decodes_the_kernels_that_calls_name():
    for is_capture in (False, True):
        found = msgspec.json.decode(
            b'{"args": {"kernel": "gemm"}}', type=Events(is_capture).columns.event_type
        )
        assert hasattr(found.args, "of_kernel") == is_capture


def write(path, events):
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def captured(path, graphs, named=True, start=5000):
    """Captures of graphs; each is a module's name and the names of its kernels."""
    events, now, correlation = [], start, 900
    for module, kernels in graphs:
        events.append(
            event("cuda_runtime", "cudaStreamBeginCapture", now, 1, correlation=correlation)
        )
        events.append(event("python_function", f"nn.Module: {module}", now + 2, 10 * len(kernels)))
        for index, kernel in enumerate(kernels):
            correlation += 1
            args = {"correlation": correlation} | ({"kernel": kernel} if named else {})
            events.append(event("cpu_op", f"aten::{kernel}", now + 2.5 + 10 * index, 2))
            events.append(
                event("cuda_runtime", "cudaLaunchKernelExC", now + 3 + 10 * index, 1, **args)
            )
        now += 10 * len(kernels) + 10
        events.append(
            event("cuda_runtime", "cudaStreamEndCapture", now - 5, 1, correlation=correlation + 1)
        )
    return write(path, events)


def replayed(path, graphs):
    """Launches of graphs; each is the names of its kernels. One kernel before them has no graph."""
    events = [event("cuda_runtime", "cudaLaunchKernel", 1000, 1, correlation=1)]
    events.append(event("kernel", "alone", 1002, 5, correlation=1, device=0, stream=7))
    for number, kernels in enumerate(graphs, 2):
        now = 1000 * number
        events.append(event("cuda_runtime", "cudaGraphLaunch", now, 1, correlation=number))
        for index, kernel in enumerate(kernels):
            events.append(
                event(
                    "kernel",
                    kernel,
                    now + 10 + 10 * index,
                    5,
                    correlation=number,
                    device=0,
                    stream=7,
                )
            )
    return write(path, events)


def test_equal_graphs_take_their_captures_in_turn(tmp_path):
    capture = captured(
        tmp_path / "c.json", [("block_0", "ab"), ("block_1", "ab"), ("head_0", "abc")]
    )
    execution = replayed(tmp_path / "e.json", ["ab", "ab", "abc", "ab", "ab", "abc"])
    kernels, _ = kernels_of(execution, capture, tmp_path)
    layers = kernels.sort_values("start_ns")["layer"].tolist()
    step = ["block_0"] * 2 + ["block_1"] * 2 + ["head_0"] * 3
    assert layers[1:] == step * 2
    assert kernels.loc[kernels["name"] == "alone", "layer"].isna().all()


def test_launches_without_a_kernel_name_are_joined_in_order_and_the_recording_says_so(tmp_path):
    capture = captured(tmp_path / "c.json", [("block_0", "abc")], named=False)
    kernels, meta = kernels_of(replayed(tmp_path / "e.json", ["abc"]), capture, tmp_path)
    assert kernels.sort_values("start_ns")["layer"].tolist()[1:] == ["block_0"] * 3
    assert (
        meta["graph_capture"]["joined_by"] == "order of the kernels; the capture does not name them"
    )


@pytest.mark.parametrize(
    ("graphs", "replays", "message"),
    [
        (
            [("block_0", "ab")],
            ["abc"],
            "a replay of 3 kernels fits no captured graph (1 graph of 2 launches)",
        ),
        ([("block_0", "ab")], ["ba"], "a replay of 2 kernels fits no captured graph"),
        ([], ["ab"], "no stream capture with kernel launches"),
        ([("block_0", "ab")], [], "replays no graph"),
    ],
)
def test_a_capture_that_does_not_fit_is_refused(graphs, replays, message, tmp_path, refusal_of):
    events = [event("cpu_op", "aten::add", 1, 1)]
    capture = (
        captured(tmp_path / "c.json", graphs) if graphs else write(tmp_path / "c.json", events)
    )
    execution = replayed(tmp_path / "e.json", replays)
    words = ["import", str(execution), "--capture", str(capture), "-o", str(tmp_path / "run")]
    assert message in refusal_of(*words)
    assert not (tmp_path / "run").exists()


def test_a_capture_of_another_kind_is_refused(tmp_path):
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(CurvescopeError, match="no JSON of the PyTorch profiler"):
        kernels_of(replayed(tmp_path / "e.json", ["ab"]), tmp_path / "c.json", tmp_path)


def numbered(path, graphs):
    """Launches of graphs; each is a graph's number and, in the order in which they run, the numbers
    of its nodes.
    """
    events = []
    for launch, (graph, nodes) in enumerate(graphs, 1):
        events.append(event("cuda_runtime", "hipGraphLaunch", 1000 * launch, 1, correlation=launch))
        for index, node in enumerate(nodes):
            args = {
                "correlation": launch,
                "device": 0,
                "stream": 7,
                "graph id": graph,
                "graph node id": node,
            }
            events.append(event("kernel", f"k{index}", 1000 * launch + 10 + 10 * index, 5, **args))
    return write(path, events)


def places_of(kernels, column="layer"):
    return [
        "".join(of_replay[column])
        for _, of_replay in kernels.sort_values("start_ns").groupby("correlation_id")
    ]


def test_nodes_are_numbered_from_0_and_a_graph_keeps_its_capture(tmp_path):
    """By order, the launch of graph 8 after graph 9 would take the second capture, as the next that
    fits.
    """
    capture = captured(tmp_path / "c.json", [("x", "ab"), ("y", "ab")], named=False)
    execution = numbered(tmp_path / "e.json", [(8, [1, 0]), (9, [0, 1]), (9, [0, 1]), (8, [0, 1])])
    kernels, _ = kernels_of(execution, capture, tmp_path)
    assert kernels.sort_values("start_ns")["graph_node_id"].tolist() == [1, 0, 0, 1, 0, 1, 0, 1]
    assert places_of(kernels) == ["xx", "yy", "yy", "xx"]


def both(tmp_path, graphs, replays):
    """One trace of captures and of replays, whose kernels have numbers of nodes; nodes run in the
    opposite order.
    """
    events = json.loads(captured(tmp_path / "c.json", graphs, named=False, start=100).read_text())[
        "traceEvents"
    ]
    for one in json.loads(replayed(tmp_path / "e.json", replays).read_text())["traceEvents"]:
        if one["cat"] == "kernel" and one["name"] != "alone":
            one["args"] |= {"graph id": 5, "graph node id": 100 - one["ts"] % 1000}
        events.append(one)
    return write(tmp_path / "both.json", events)


def test_kernels_of_a_graph_have_the_layers_of_its_capture_in_the_same_trace_by_the_order_of_nodes(
    tmp_path,
):
    trace = both(tmp_path, [("block_0", "ab"), ("head_0", "abc")], ["cba", "ba", "cba"])
    kernels, meta = kernels_of(trace, None, tmp_path)
    rows = kernels[kernels["graph_id"] == 5].sort_values("start_ns")
    assert rows["layer"].tolist() == ["head_0"] * 3 + ["block_0"] * 2 + ["head_0"] * 3
    assert rows["graph_node_id"].tolist() == [90, 80, 70, 90, 80, 90, 80, 70]
    assert "graph_capture" not in meta


def test_a_replay_that_several_captures_of_its_trace_fit_has_no_layer(tmp_path):
    trace = both(tmp_path, [("block_0", "ab"), ("block_1", "ab")], ["ba"])
    kernels, _ = kernels_of(trace, None, tmp_path)
    assert kernels["layer"].isna().all()
