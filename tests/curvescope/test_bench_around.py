"""The map of a library's choices, `bench gemm --around` and `conv`, from planted times.

`compare` of two maps is asked here, too.
"""

import random

import pytest

from curvescope.experiments.around import list_neighbours
from curvescope.experiments.replay.convolutions import read_convolutions
from curvescope.kernels import backends
from curvescope.profiling.attribution.products import read_product
from curvescope.profiling.recording.operators import TensorArgument, Value
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..experiments.planted_experiments import operator
from ..kernels.fakes import FakeBackend, FakeTimer, exact
from ..tables import ask_each

FLOAT, BF16 = "float", "c10::BFloat16"
AROUND = ("--around", "step", "-o", "map")


def tensor(*shape, strides=None, dtype=FLOAT):
    return TensorArgument(shape, dtype, strides)


def pair(*numbers):
    return Value(numbers)


GEOMETRY = (pair(1, 1), pair(1, 1), pair(1, 1))


def linear(batch, outputs=4):
    return operator(
        batch, "aten::linear", (tensor(batch, 3), tensor(outputs, 3), None), position=outputs
    )


def gradient_of_weights(batch, outputs=4):
    of_result = tensor(outputs, batch, strides=(1, outputs))
    arguments = (of_result, tensor(batch, 3))
    return operator(
        batch, "aten::mm", arguments, phase="backward", calls=2, duration_ns=9000, position=9
    )


def convolution(batch):
    image, weights = tensor(batch, 2, 5, 5), tensor(3, 2, 3, 3)
    return operator(batch, "aten::conv2d", (image, weights, None, *GEOMETRY, Value(1)), layer="c1")


def gradients_of_convolution(batch):
    tensors = (tensor(batch, 3, 5, 5), tensor(batch, 2, 5, 5), tensor(3, 2, 3, 3))
    rest = (None, *GEOMETRY, Value(False), pair(0, 0), Value(1), pair(True, True, False))
    return operator(
        batch, "aten::convolution_backward", (*tensors, *rest), layer="c1", phase="backward"
    )


class Planted(FakeBackend):
    """Problems take planted times, ns, give or take one percent."""

    def __init__(self, time_ns, seed=1):
        super().__init__(exact)
        self._time_ns, self._random = time_ns, random.Random(seed)

    def prepare(self, problem, operands):
        time_ns = self._time_ns(problem)
        durations = [round(time_ns * self._random.uniform(0.99, 1.01)) for _ in range(97)]
        prepared = super().prepare(problem, operands)
        kernel = "odd" if problem.n % 2 else "even"
        return prepared._replace(timer=FakeTimer(durations), kernel=kernel)


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """Records a step with some calls, and plants the times of problems."""
    monkeypatch.chdir(tmp_path)

    def plant(time_ns, *rows, seed=1):
        monkeypatch.setattr(backends, "open_backend", lambda *_: Planted(time_ns, seed))
        if rows:
            with RecordingWriter(tmp_path / "step", {"precision": "fp32"}) as writer:
                writer.write("operators", columns_of(rows))

    return plant


def odd_takes_twice(problem):
    return 2e6 if problem.n % 2 else 1e6


def in_proportion(problem):
    return 1e4 * problem.n


def linears(*batches):
    return [linear(batch) for batch in batches]


@ask_each(
    ("size", "expected"),
    [
        (1, [1, 2, 8, 16, 64, 128]),
        (63, [62, 63, 64, 128]),
        (64, [63, 64, 65, 128]),
        (2047, [2046, 2047, 2048]),
        (2048, [2047, 2048, 2049]),
        (1530, [1529, 1530, 1531, 1536]),
    ],
)
def test_the_neighbours_of_a_size(size, expected):
    assert list_neighbours(size) == expected


@pytest.mark.slow
def test_a_product_that_padding_makes_faster(planted, document_of, text_of):
    planted(odd_takes_twice, *linears(2, 63))
    document = document_of("bench", "gemm", *AROUND)
    (problem,) = document["problems"]
    assert (problem["axis"], problem["size"], problem["calls"]) == ("n", 63, 1)
    assert [time["size"] for time in problem["sizes"]] == [62, 63, 64, 128]
    assert problem["better"] == 64
    time = next(one for one in problem["sizes"] if one["size"] == 64)
    assert time["change"]["speedup"] == pytest.approx(2, rel=0.02)
    assert time["change"]["low"] < time["change"]["speedup"] < time["change"]["high"]
    assert time["n"] > 6
    assert problem["saves_ms"] == pytest.approx(1, rel=0.05)
    assert document["time_ms"] == pytest.approx(2, rel=0.05)
    regions = [(one["first"], one["last"], one["kernel"]) for one in problem["kernels"]]
    assert regions == [(62, 62, "even"), (63, 63, "odd"), (64, 128, "even")]
    text = text_of("bench", "gemm", "--around", "step", "-o", "again")
    assert "fc gemm 4x*x3 TN fp32 around 63: pad n 63 to 64, -50% (-5" in text
    assert "1 of 1 problem should have another size" in text
    assert "n 62 even, 63 odd, 64 to 128 even" in text


@pytest.mark.slow
def test_no_neighbour_is_better_where_time_is_in_proportion(planted, document_of, text_of):
    planted(in_proportion, *linears(2, 64))
    (problem,) = document_of("bench", "gemm", *AROUND)["problems"]
    assert (problem["better"], problem["saves_ms"]) == (None, 0)
    text = text_of("bench", "gemm", "--around", "step", "-o", "again")
    assert "No neighbour of 1 problem takes 5 % less." in text


@pytest.mark.slow
def test_one_row_less_counts_for_as_much_work(planted, text_of):
    """65 rows run two tiles of 64."""
    planted(lambda problem: 1e6 * -(-problem.n // 64), *linears(2, 65))
    text = text_of("bench", "gemm", *AROUND)
    assert "around 65: take n 64 for 65, -49% (-" in text


@pytest.mark.slow
def test_only_what_follows_the_batch_size_is_varied_unless_an_extent_is_named(planted, document_of):
    rows = [row for batch in (2, 6) for row in (linear(batch), gradient_of_weights(batch))]
    planted(in_proportion, *rows)
    problems = document_of("bench", "gemm", *AROUND)["problems"]
    axes = {problem["label"]: (problem["axis"], problem["calls"]) for problem in problems}
    assert axes == {
        "fc gemm 3x4x* NT fp32 around 6": ("k", 2),
        "fc gemm 4x*x3 TN fp32 around 6": ("n", 1),
    }
    again = ("--around", "step", "--extent", "m", "--batch", "2", "-o", "again", "--share", "90%")
    (problem,) = document_of("bench", "gemm", *again)["problems"]
    assert (problem["label"], problem["size"]) == ("fc gemm *x4x2 NT fp32 around 3", 3)


@pytest.mark.slow
def test_a_convolution_and_its_two_gradients(planted, document_of):
    planted(in_proportion, *(make(7) for make in (convolution, gradients_of_convolution)))
    document = document_of("bench", "conv", *AROUND)
    assert {(one["label"], one["phase"]) for one in document["problems"]} == {
        ("c1 conv fwd n* c2 5x5 k3 3x3 p1 fp32 around 7", "forward"),
        ("c1 conv bwd_data n* c2 5x5 k3 3x3 p1 fp32 around 7", "backward"),
        ("c1 conv bwd_weights n* c2 5x5 k3 3x3 p1 fp32 around 7", "backward"),
    }


@pytest.mark.slow
def test_what_no_benchmark_has_is_left_out_with_its_reason(planted, document_of):
    batched = operator(4, "aten::bmm", (tensor(4, 2, 3), tensor(4, 3, 2)))
    planted(in_proportion, linear(4), batched)
    document = document_of("bench", "gemm", *AROUND)
    assert len(document["problems"]) == 1
    assert document["left_out"] == [
        "1 call left out: aten::bmm of this form is no problem of `bench gemm`."
    ]


@pytest.mark.slow
def test_two_maps_are_compared_by_problem_and_size(planted, document_of, text_of):
    planted(odd_takes_twice, *linears(2, 63))
    document_of("bench", "gemm", *AROUND)
    planted(lambda problem: 1e6, seed=2)
    document_of("bench", "gemm", "--around", "step", "-o", "other")
    sizes = document_of("compare", "map", "other")["sizes"]
    real = {one["size"]: one["changes"][0]["speedup"] for one in sizes if one["differs"]}
    assert real == {63: pytest.approx(2, rel=0.02)}
    assert sizes[0]["size"] == 63
    assert sizes[0]["kernels"] == ["odd", "odd"]
    text = text_of("compare", "map", "other")
    assert "A change of 5 % or more at 1 of 4 sizes." in text
    assert "-50% (-5" in text


@pytest.mark.slow
def test_maps_of_other_problems_have_nothing_in_common(planted, document_of, refusal_of):
    planted(in_proportion, *linears(2, 63))
    document_of("bench", "gemm", *AROUND)
    document_of("bench", "gemm", "--around", "step", "--batch", "2", "-o", "other")
    assert "no problem in common" in refusal_of("compare", "map", "other")


def test_a_recording_of_a_map_says_what_it_lies_around(planted, document_of):
    planted(in_proportion, *linears(2, 63))
    document_of("bench", "gemm", *AROUND)
    assert open_recording("map").meta["around"] == {"size": 63, "calls": 1}


REFUSED = {
    ("--batch", "3"): "--batch 3 was not recorded: choose from 2, 4.",
    ("--batch", "2,4"): "--around takes one batch size",
    ("--extent", "q"): "the extents of a gemm are m, n, k",
    ("--precision", "bf16"): "omit --precision",
}


def test_what_cannot_be_mapped_is_refused(planted, refusal_of):
    planted(in_proportion, *linears(2, 4))
    for words, message in REFUSED.items():
        assert message in refusal_of("bench", "gemm", *AROUND, *words)


def test_options_of_a_map_need_a_recording(planted, refusal_of):
    planted(in_proportion)
    assert "omit --share" in refusal_of("bench", "gemm", "--share", "50%")


@ask_each(
    ("op", "arguments", "expected"),
    [
        ("aten::linear", (tensor(2, 5, 3), tensor(4, 3)), (4, 10, 3, "TN", "fp32")),
        ("aten::mm", (tensor(5, 3), tensor(3, 4)), (4, 5, 3, "NN", "fp32")),
        (
            "aten::mm",
            (tensor(5, 3, strides=(1, 5)), tensor(3, 4, strides=(1, 3))),
            (4, 5, 3, "TT", "fp32"),
        ),
        (
            "aten::addmm",
            (tensor(4, dtype=BF16), tensor(5, 3, dtype=BF16), tensor(3, 4, dtype=BF16)),
            (4, 5, 3, "NN", "bf16"),
        ),
        ("aten::mm", (tensor(5, 3, dtype="long int"), tensor(3, 4, dtype="long int")), None),
        ("aten::bmm", (tensor(2, 5, 3), tensor(2, 3, 4)), None),
    ],
)
def test_a_recorded_product(op, arguments, expected):
    assert read_product(op, arguments) == expected


def test_recorded_convolutions_have_their_layout_and_their_geometry():
    last = tensor(8, 2, 5, 5, strides=(50, 1, 10, 2))
    geometry = (pair(2, 2), pair(1), pair(1, 1))
    (made,) = read_convolutions(
        "aten::convolution",
        (last, tensor(4, 1, 3, 3), None, *geometry, Value(False), pair(0, 0), Value(2)),
    )
    assert (made.layout, made.stride, made.padding, made.groups) == ("nhwc", (2, 2), (1, 1), 2)
    assert (made.n, made.c, made.k, made.r, made.direction) == (8, 2, 4, 3, "fwd")


@ask_each(
    ("op", "arguments"),
    [
        ("aten::conv2d", (tensor(1, 2, 5), tensor(3, 2, 3), None, *GEOMETRY, Value(1))),
        (
            "aten::conv2d",
            (
                tensor(1, 2, 5, 5),
                tensor(3, 2, 3, 3),
                None,
                pair(1, 1),
                Value("same"),
                pair(1, 1),
                Value(1),
            ),
        ),
        (
            "aten::convolution",
            (
                tensor(1, 2, 5, 5),
                tensor(2, 3, 3, 3),
                None,
                *GEOMETRY,
                Value(True),
                pair(0, 0),
                Value(1),
            ),
        ),
        ("aten::conv2d", (tensor(1, 2, 5, 5),)),
    ],
)
def test_other_convolutions_are_none(op, arguments):
    assert read_convolutions(op, arguments) == []
