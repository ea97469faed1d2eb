"""Kernels of CUDA graphs get the layer and operator under which they were captured, on the double
of libcupti.
"""

import pytest

# A graph of two nodes, captured under two layers before the steps.
CAPTURED = """
import threading
import nvtx
gpu, thread = FakeGpu(), threading.get_native_id()
gpu.start()

def capture(**nodes):
    for layer, node in nodes.items():
        with nvtx.annotate(f"layer:{layer}"):
            gpu.graph_node(node)

def replay(correlation_id, *nodes, graph=5):
    with nvtx.annotate(f"step {correlation_id}"), nvtx.annotate("forward"):
        now = gpu.now()
        gpu.call(gpu.GRAPH_LAUNCH, now, now + 2000, thread, correlation_id)
        for place, node in enumerate(nodes):
            start = now + 3000 + 1000 * place
            gpu.kernel(f"k{node}", start, start + 500, correlation_id, graph=graph, graph_node=node)
"""


def layers(recording):
    rows = recording.arrow("kernels").to_pylist()
    return [
        (row["name"], row["step"], row["layer"])
        for row in sorted(rows, key=lambda row: row["start_ns"])
    ]


def lost(recording):
    return recording.meta["lost"].get("graph_work_without_capture", {"count": 0})["count"]


def test_every_replay_has_the_layers_of_the_capture(record_fake):
    """Instantiation clones the captured nodes; the kernels name the clones."""
    _, recording = record_fake(
        f"""{CAPTURED}
capture(fc1=11, fc2=12)
gpu.graph_node(21, 11)
gpu.graph_node(22, 12)
replay(1, 21, 22)
replay(2, 21, 22)
"""
    )
    expected = [
        (f"k{node}", step, layer) for step in (0, 1) for node, layer in ((21, "fc1"), (22, "fc2"))
    ]
    assert layers(recording) == expected
    assert lost(recording) == 0
    kernels = recording.frame("kernels")
    assert sorted(kernels["graph_node_id"]) == [21, 21, 22, 22]
    assert set(kernels["graph_id"]) == {5}
    assert recording.complete


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "node"),
    [
        (
            "gpu.graph_node(21, 11)\ngpu.graph_node(31, 21)",
            31,
        ),  # a child graph, cloned into its parent, instantiated
        (
            "gpu.graph_node(31, 11)\ngpu.graph_node(21, 11)",
            31,
        ),  # two executable graphs of one capture
        ("", 11),  # a CUPTI that names the captured node itself
    ],
)
def test_clones_of_clones_lead_to_the_capture(record_fake, before, node):
    _, recording = record_fake(f"{CAPTURED}\ncapture(fc1=11)\n{before}\nreplay(1, {node})\n")
    assert layers(recording) == [(f"k{node}", 0, "fc1")]


@pytest.mark.slow
def test_an_updated_graph_keeps_its_nodes_and_so_their_layers(record_fake):
    """cudaGraphExecUpdate takes parameters from a new capture; the nodes of the executable graph
    stay.
    """
    _, recording = record_fake(
        f"""{CAPTURED}
capture(fc1=11)
gpu.graph_node(21, 11)
replay(1, 21)
capture(fc1=12)
replay(2, 21)
"""
    )
    assert layers(recording) == [("k21", 0, "fc1"), ("k21", 1, "fc1")]


@pytest.mark.slow
def test_a_node_is_of_the_thread_that_captured_it(record_fake):
    """Another thread captures a node while this one is in another layer, as the
    backward pass does.
    """
    _, recording = record_fake(
        f"""{CAPTURED}
with nvtx.annotate("layer:other"):
    worker = threading.Thread(target=lambda: capture(fc1=11))
    worker.start()
    worker.join()
gpu.graph_node(21, 11)
replay(1, 21)
"""
    )
    assert layers(recording) == [("k21", 0, "fc1")]


@pytest.mark.slow
def test_a_capture_before_the_recording_is_said(record_fake):
    """Node 11 was captured before: only its clone is seen, and kernel 99 not even as a clone."""
    _, recording = record_fake(f"{CAPTURED}\ngpu.graph_node(21, 11)\nreplay(1, 21, 99)\n")
    assert layers(recording) == [("k21", 0, None), ("k99", 0, None)]
    assert lost(recording) == 2
    assert (
        "whose capture was not recorded"
        in recording.meta["lost"]["graph_work_without_capture"]["sentence"]
    )
    assert set(recording.frame("kernels")["phase"]) == {"forward"}  # of the range around the launch


@pytest.mark.slow
@pytest.mark.parametrize("call", ["cuptiEnableCallback", "cuptiGetGraphNodeId"])
def test_without_callbacks_everything_else_is_recorded(record_fake, call):
    _, recording = record_fake(
        f"{CAPTURED}\ncapture(fc1=11)\ngpu.graph_node(21, 11)\nreplay(1, 21)\n",
        FAKE_CUPTI_FAIL=f"{call}=15",
    )
    assert layers(recording) == [("k21", 0, None)]
    assert lost(recording) == 1
    (collector,) = recording.meta["collectors"]
    assert collector["cupti_status"] == "recording"
    refused = ["nodes of CUDA graphs: CUPTI_ERROR_NOT_INITIALIZED (15)"]
    assert collector.get("cupti_refused", []) == (refused if call == "cuptiEnableCallback" else [])


@pytest.mark.slow
def test_work_outside_graphs_has_no_node(record_fake):
    _, recording = record_fake(
        f"{CAPTURED}\nwith nvtx.annotate('layer:fc1'):\n    launch(gpu, 'k', 1, thread)\n"
    )
    (kernel,) = recording.arrow("kernels").to_pylist()
    assert (kernel["layer"], kernel["graph_id"], kernel["graph_node_id"]) == ("fc1", None, None)
    assert "graph_work_without_capture" not in recording.meta["lost"]
