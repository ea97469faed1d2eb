"""The same events through every front end: each must place the kernels alike."""

import json

import pyarrow as pa
import pytest

from curvescope.profiling.attribution.assemble import assemble
from curvescope.profiling.attribution.events import DeviceEvent, HostEvent, kernel_rows
from curvescope.profiling.attribution.profile import Options, Profile
from curvescope.profiling.collect.merge import merge_chunks
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import RecordingWriter, open_recording

NODE = "autograd::engine::evaluate_function: "
GRADIENT = "torch::autograd::AccumulateGrad"
USER_SCOPE = 7
OPERATOR, RANGE = False, True
# what torch's profiler gives as the number of a node without one; emit_nvtx gives none
UNNUMBERED = 2**63 - 1

# What ran on the host: name, start, duration, thread, whether it is a range, sequence number,
# forward thread.
EVENTS = {
    "forward and backward": [
        ("curvescope.layer:conv", 10, 90, 1, RANGE, -1, 0),
        ("aten::conv2d", 20, 60, 1, OPERATOR, 4, 0),
        ("curvescope.layer:fc", 110, 50, 1, RANGE, -1, 0),
        ("aten::linear", 120, 30, 1, OPERATOR, 5, 0),
        (f"{NODE}AddmmBackward0", 300, 40, 2, OPERATOR, 5, 1),
        ("aten::mm", 310, 20, 2, OPERATOR, -1, 0),
        (f"{NODE}{GRADIENT}", 350, 30, 2, OPERATOR, UNNUMBERED, 1),
        (f"{NODE}ConvolutionBackward0", 400, 90, 2, OPERATOR, 4, 1),
        ("aten::convolution_backward", 420, 50, 2, OPERATOR, -1, 0),
    ],
    "a backward node whose forward operator was not recorded": [
        ("curvescope.layer:conv", 10, 90, 1, RANGE, -1, 0),
        ("aten::conv2d", 20, 60, 1, OPERATOR, 4, 0),
        (f"{NODE}MulBackward0", 300, 40, 2, OPERATOR, 9, 1),
        (f"{NODE}ConvolutionBackward0", 400, 90, 2, OPERATOR, 4, 1),
    ],
    "communication inside the hook of a gradient": [
        (f"{NODE}{GRADIENT}", 100, 300, 1, OPERATOR, -1, 0),
        ("torch::distributed::reducer::mul_out", 150, 100, 1, OPERATOR, -1, 0),
        ("aten::mul", 160, 80, 1, OPERATOR, -1, 0),
        ("c10d::allreduce_", 300, 50, 1, OPERATOR, -1, 0),
        ("nccl:all_reduce", 310, 20, 1, RANGE, -1, 0),
    ],
}
# Where kernels are launched (thread and moment), and where each belongs: layer, phase, operator.
KERNELS = {
    "forward and backward": {
        (1, 30): ("conv", "forward", "aten::conv2d"),
        (1, 130): ("fc", "forward", "aten::linear"),
        (2, 315): ("fc", "backward", "AddmmBackward0"),
        (2, 360): ("fc", "backward", GRADIENT),
        (2, 430): ("conv", "backward", "ConvolutionBackward0"),
    },
    "a backward node whose forward operator was not recorded": {
        (1, 30): ("conv", "forward", "aten::conv2d"),
        (2, 310): (None, "backward", "MulBackward0"),
        (2, 430): ("conv", "backward", "ConvolutionBackward0"),
    },
    "communication inside the hook of a gradient": {
        (1, 110): (None, "backward", GRADIENT),
        (1, 170): (None, "backward", "torch::distributed::reducer::mul_out"),
        (1, 305): (None, "backward", "c10d::allreduce_"),
        (1, 315): (None, "backward", "nccl:all_reduce"),
    },
}


def around(events, thread, moment):
    """The innermost operator around a moment."""
    inside = [e for e in events if e[3] == thread and e[1] <= moment < e[1] + e[2]]
    return events.index(inside[-1])


def in_process(events, launches, folder):
    host = [
        HostEvent(
            name,
            start,
            length,
            thread,
            is_range and not name.startswith("nccl:"),
            sequence,
            forward,
            place + 1,
        )
        for place, (name, start, length, thread, is_range, sequence, forward) in enumerate(events)
    ]
    device = [
        DeviceEvent("kernel", 1000 + 10 * i, 5, 0, 7, 90 + i, around(events, *launch) + 1)
        for i, launch in enumerate(launches)
    ]
    return kernel_rows(host, device, host_rows=False).kernels


def pytorch_json(events, launches, folder):
    trace = []
    for name, start, length, thread, is_range, sequence, forward in events:
        numbers = {} if sequence < 0 else {"Sequence number": sequence, "Fwd thread id": forward}
        about = {
            "ph": "X",
            "cat": "user_annotation" if is_range else "cpu_op",
            "pid": 1,
            "tid": thread,
        }
        trace.append({**about, "name": name, "ts": start, "dur": length, "args": numbers})
    for i, (thread, moment) in enumerate(launches):
        about = {"ph": "X", "name": "kernel", "pid": 1, "tid": thread, "ts": moment, "dur": 1}
        trace.append({**about, "cat": "cuda_runtime", "args": {"correlation": 90 + i}})
        place = {"correlation": 90 + i, "device": 0, "stream": 7}
        trace.append({**about, "cat": "kernel", "ts": 1000 + 10 * i, "dur": 5, "args": place})
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": trace}))
    return (
        open_recording(import_profile(folder / "trace.json", folder / "r").path)
        .arrow("kernels")
        .to_pylist()
    )


def emitted_ranges(events, launches, folder):
    """Push/pop ranges of emit_nvtx as a CUDA profiler hands them over, launches joined by thread
    and time.
    """
    place, call = {"process": 1, "kind": "push_pop"}, {"name": "cudaLaunchKernel", "process": 1}
    ranges = [
        {
            **place,
            "name": name + (f", seq = {sequence}" if 0 <= sequence < UNNUMBERED else ""),
            "start_ns": start,
        }
        | {"end_ns": start + length, "thread": thread, "thread_key": thread}
        for name, start, length, thread, _, sequence, _ in events
    ]
    calls = [
        {
            **call,
            "start_ns": moment,
            "end_ns": moment + 1,
            "thread_key": thread,
            "correlation_id": 90 + i,
        }
        for i, (thread, moment) in enumerate(launches)
    ]
    kernels = [
        {
            "name": "kernel",
            "start_ns": 1000 + 10 * i,
            "end_ns": 1005 + 10 * i,
            "process": 1,
            "correlation_id": 90 + i,
        }
        | {"device": 0, "context": 1, "stream": 7}
        for i, _ in enumerate(launches)
    ]
    ranges, calls, kernels = (pa.Table.from_pylist(rows) for rows in (ranges, calls, kernels))
    of_none = kernels.slice(0, 0)
    with RecordingWriter(folder / "r", {}) as writer:
        batches = (lambda: iter([calls])), (lambda _: iter([kernels])), (lambda _: iter([of_none]))
        assemble(Profile("nsys", ranges, *batches, len(launches)), writer, Options())
    return open_recording(folder / "r").arrow("kernels").to_pylist()


def torch_windows(events, launches, folder):
    """A recorded command's window: what operators ran themselves, at the moments of the
    launches.
    """
    scopes = [(name, USER_SCOPE if is_range else 0) for name, *_, is_range, _, _ in events]
    window = {
        "version": 2,
        "process": 1,
        "thread": 1,
        "window_ns": (0, 2000),
        "cpu_threads": 1,
        "clock_offset_ns": 0,
    }
    window |= {
        "boundaries": [(0, "training", 6)],
        "layer_classes": {},
        "events": [
            (name, start + 1, length, thread, scope, forward, sequence, [], [], [], [])
            for (name, scope), (_, start, length, thread, _, sequence, forward) in zip(
                scopes, events, strict=True
            )
        ],
    }
    (folder / "1-000000.window.json").write_text(json.dumps(window))
    with RecordingWriter(folder / "r", {"device": None}) as writer:
        merge_chunks(folder, writer)
    rows = open_recording(folder / "r").arrow("kernels").to_pylist()
    found = []
    for thread, moment in launches:
        of_thread = [row for row in rows if row["stream"] == thread]
        found.append(
            next(r for r in of_thread if 0 <= moment + 1 - r["start_ns"] < r["duration_ns"])
        )
    return found


@pytest.mark.parametrize("front_end", [in_process, pytorch_json, emitted_ranges, torch_windows])
@pytest.mark.parametrize("what", EVENTS)
def test_every_front_end_places_the_same_events_alike(what, front_end, tmp_path):
    rows = front_end(EVENTS[what], list(KERNELS[what]), tmp_path)
    found = {
        launch: (row["layer"], row["phase"], row["op"])
        for launch, row in zip(KERNELS[what], rows, strict=True)
    }
    assert found == KERNELS[what]
