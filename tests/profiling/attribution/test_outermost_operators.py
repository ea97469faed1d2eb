"""The outermost operators of a step, on events built by hand: what is a row, and what is in it."""

from curvescope.profiling.attribution.events import DeviceEvent, HostEvent, kernel_rows
from curvescope.profiling.attribution.operation import Operation
from curvescope.profiling.attribution.outermost_operators import (
    arguments_of,
    join_types,
    read_scalar,
)
from curvescope.profiling.attribution.source_lines import SourceLine, Watched, WatchedCall
from curvescope.profiling.measure.loop import VisitWriter
from curvescope.profiling.measure.visits import Visit
from curvescope.profiling.recording.operators import (
    TensorArgument,
    TensorList,
    Value,
    decode_arguments,
    encode_arguments,
)
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...tables import ask_each
from .test_events import STEP, mark

FLOAT = TensorArgument((2, 3), "float", (3, 1))


def op(name, start, duration, dtypes=("float",), correlation=0, sequence=-1):
    shapes, strides = [[2, 3]] * len(dtypes), [[3, 1]] * len(dtypes)
    concrete = [None] * len(dtypes)
    return HostEvent(
        name, start, duration, 1, False, sequence, 0, correlation, shapes, concrete, dtypes, strides
    )


def rows_of(*events, device=()):
    rows = kernel_rows([STEP, *events], device, host_rows=not device).operators
    return [
        (r["op"], r["calls"], r["duration_ns"], r["layer"], r["phase"], r["position"]) for r in rows
    ]


def test_only_the_outermost_operator_of_the_step_is_a_row_and_ranges_and_nodes_are_none():
    node = HostEvent("autograd::engine::evaluate_function: AddmmBackward0", 10, 500, 1)
    inner = HostEvent("AddmmBackward0", 20, 400, 1, shapes=[[2, 3]], dtypes=["float"])
    operators = [op("aten::linear", 30, 100), op("aten::addmm", 40, 50), op("aten::mul", 200, 10)]
    marks = [mark("phase:backward", 0, 900), mark("layer:fc", 5, 800)]
    assert rows_of(*marks, node, inner, *operators, op("aten::relu", 1100, 10)) == [
        ("aten::linear", 1, 100, "fc", "backward", 0),
        ("aten::mul", 1, 10, "fc", "backward", 1),
    ]


def seen(*calls):
    return Watched([WatchedCall(time_ns, faults, line) for time_ns, faults, line in calls])


def test_page_faults_belong_to_the_outermost_operator_in_which_they_were_counted():
    events = [
        op("aten::linear", 30, 100),
        op("aten::addmm", 40, 50),
        op("aten::mul", 200, 10),
        op("aten::mul", 300, 9),
    ]
    counts = [(30, 1), (60, 20), (130, 300), (205, 4_000), (305, 50_000), (2_000, 600_000)]
    counted = kernel_rows(
        [STEP, *events], watched=seen(*((*count, None) for count in counts))
    ).operator_calls
    assert [name for *_, name in counted.names] == ["aten::linear", "aten::mul", "aten::mul"]
    assert counted.faults == [21, 4_000, 50_000]
    assert counted.row_of == [0, 1, 1]
    assert counted.lines == []
    assert kernel_rows([STEP, *events], watched=Watched()).operator_calls.faults == [0, 0, 0]
    assert kernel_rows([STEP, *events]).operator_calls.faults is None


def test_a_line_has_the_time_of_its_operators_and_of_samples_outside_them():
    a, b = SourceLine("model.py", 3), SourceLine("train.py", 8)
    events = [
        mark("layer:a", 5, 300),
        op("aten::linear", 30, 100),
        op("aten::addmm", 40, 50),
        op("aten::mul", 200, 10),
    ]
    watched = seen((60, 0, a), (100, 0, b), (205, 0, a))
    watched.samples = [
        (50, a, 45),
        (150, a, 100),
        (250, a, 100),
        (280, b, 30),
        (400, b, 120),
        (2_000, b, 1_600),
    ]
    rows = kernel_rows(
        [STEP, *events, op("aten::mul", 500, 30)], watched=watched
    ).operator_calls.lines
    assert [
        (r["layer"], r["phase"], r["op"], r["file"], r["line"], r["calls"], r["duration_ns"])
        for r in rows
    ] == [
        ("a", "forward", None, "model.py", 3, None, 200),
        (None, "forward", None, "train.py", 8, None, 120),
        ("a", None, "aten::linear", "model.py", 3, 1, 100),
        ("a", "forward", None, "train.py", 8, None, 30),
        ("a", None, "aten::mul", "model.py", 3, 1, 10),
    ]


RELU = [
    op("aten::relu", 10, 10),
    op("aten::relu", 30, 20),
    op("aten::relu", 60, 5, dtypes=("double",)),
]
LINEAR = [
    op("aten::linear", 10, 100),
    op("aten::to", 20, 10),
    op("aten::linear", 40, 60, ("c10::BFloat16",)),
]
EINSUM = [
    op("aten::einsum", 10, 100),
    op("aten::bmm", 20, 60),
    op("aten::bmm_inner", 30, 9),
    op("aten::sum", 85, 5),
]


@ask_each(
    ("events", "expected"),
    [
        (
            [*RELU, mark("layer:a", 100, 50), op("aten::relu", 110, 7)],
            [("relu", 2, 30, None, 0), ("relu", 1, 5, None, 2), ("relu", 1, 7, "a", 3)],
        ),
        (LINEAR, [("to", 1, 10, None, 0), ("linear", 1, 60, None, 1)]),
        (EINSUM, [("bmm", 1, 60, None, 0), ("sum", 1, 5, None, 1)]),
        (EINSUM[:1], [("einsum", 1, 100, None, 0)]),
        (
            [op("aten::abs", 10, 100), op("aten::abs", 20, 50, ("float", "float"))],
            [("abs", 1, 100, None, 0)],
        ),
    ],
)
def test_what_is_a_row_of_its_own(events, expected):
    rows = [
        (f"aten::{name}", calls, time_ns, layer, None, at)
        for name, calls, time_ns, layer, at in expected
    ]
    assert rows_of(*events) == rows


def test_on_a_device_the_time_is_that_of_the_kernels_and_the_longest_comes_first():
    rows = kernel_rows(
        [
            STEP,
            op("aten::linear", 10, 100),
            op("aten::addmm", 20, 50, correlation=7),
            op("aten::view", 200, 9),
        ],
        [DeviceEvent("bias", 300, 40, 0, 7, 1, 7), DeviceEvent("gemm", 400, 500, 0, 7, 2, 7)],
        host_rows=False,
    ).operators
    found = [(r["op"], r["duration_ns"], r["kernels"]) for r in rows]
    assert found == [("aten::linear", 540, "gemm | bias"), ("aten::view", 0, None)]


def test_arguments_by_their_types():
    shapes = [[2, 3], [[4], [5]], [], [], [], []]
    strides = [[3, 1], [[1], [2]], [], [], [], []]
    types = ["float", join_types(["float", "long int"]), "Scalar", "ScalarList", "", "double"]
    operation = Operation("aten::any", shapes, types, [None, None, 2, [1, 1], None, None], strides)
    arguments = tuple(arguments_of(operation))
    assert arguments == (
        FLOAT,
        TensorList((TensorArgument((4,), "float", (1,)), TensorArgument((5,), "long int", (2,)))),
        Value(2),
        Value([1, 1]),
        None,
        TensorArgument((), "double", ()),
    )
    assert decode_arguments(encode_arguments(arguments))[3] == Value((1, 1))


def test_arguments_of_a_trace_without_strides_and_of_a_number_that_json_lacks():
    operation = Operation("aten::cat", [[[4], [5]], []], ["TensorList", "Scalar"], ["", "0"])
    (tensors, _) = arguments_of(operation)
    assert tensors == TensorList((TensorArgument((4,), ""), TensorArgument((5,), "")))
    assert decode_arguments(encode_arguments([Value(float("-inf"))])) == (Value(float("-inf")),)


@ask_each(
    ("text", "value"),
    [
        ("", None),
        ("[4, 4]", [4, 4]),
        ("1e-05", 1e-5),
        ("False", False),
        ("[True, False]", [True, False]),
        *(("-inf", float("-inf")), ("none", "none"), (3, 3)),
    ],
)
def test_scalars_as_traces_write_them(text, value):
    assert read_scalar(text) == value


def test_one_step_of_each_batch_size_is_recorded(tmp_path):
    def profile():
        return kernel_rows([STEP, op("aten::relu", 10, 10)])

    with RecordingWriter(tmp_path / "r", {"unmeasured": []}) as writer:
        visits = VisitWriter(writer, "forward")
        visits.write(1, 0, Visit([{"start_ns": 0, "duration_ns": 5}]))
        for batch, round_ in ((2, 0), (1, 1), (2, 1)):
            visits.write(batch, round_, Visit([], [profile(), profile()]))
    recording = open_recording(tmp_path / "r")
    rows = recording.arrow("operators").to_pylist()
    assert sorted((row["batch"], row["calls"]) for row in rows) == [(1, 1), (2, 1)]
    resumed = VisitWriter(RecordingWriter.resume(tmp_path / "r", "steps"), "forward")
    resumed.write(1, 2, Visit([], [profile()]))
    assert open_recording(tmp_path / "r").count_rows("operators") == 2
