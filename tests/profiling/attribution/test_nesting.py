"""Nesting and joins over columns against the plain loop they replace, and steps against sequences
made to repeat.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.profiling.attribution.launch_joins import Joiner
from curvescope.profiling.attribution.nesting import NONE
from curvescope.profiling.attribution.operation import BatchSource
from curvescope.profiling.attribution.placement import HostSpans, join_forward, place
from curvescope.profiling.attribution.range_names import RangeName, RangeNames, scrub
from curvescope.profiling.attribution.steps import find_period, find_repeated_windows

from ...tables import ask_each

ranges_of = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12), st.sampled_from("abc")),
    max_size=25,
)


def columns(ranges):
    thread, start, length, name = (
        (np.array(c, dtype=np.int64) for c in zip(*ranges, strict=True))
        if ranges
        else [np.zeros(0, np.int64)] * 4
    )
    return HostSpans(
        start, start + length, thread, thread * 0, name, [RangeName(layer=c) for c in "abc"]
    )


def by_loop(ranges):
    """Layer paths of (thread, moment), one range after the other."""
    paths, spans = {}, []
    for thread, start, length, name in sorted(ranges, key=lambda r: (r[0], r[1], -r[2])):
        if not length:
            continue
        around = [s for s in spans if s[0] == thread and s[1] <= start < s[2]]
        end = min([start + length, *([around[-1][2]] if around else [])])
        spans.append((thread, start, end, f"{around[-1][3]}/{name}" if around else name))
    for thread in range(3):
        for moment in range(-1, 45):
            inside = [s for s in spans if s[0] == thread and s[1] <= moment < s[2]]
            paths[thread, moment] = inside[-1][3] if inside else None
    return paths


@settings(max_examples=300)
@given(ranges_of)
def test_layers_are_those_of_the_plain_loop_nested_or_crossing(ranges):
    encoded = [(thread, start, length, "abc".index(name)) for thread, start, length, name in ranges]
    placement = place(columns(encoded))
    expected = by_loop(ranges)
    threads, moments = (np.array(column) for column in zip(*expected, strict=True))
    found = placement.take(placement.nest.innermost(threads, moments))["layer"].to_pylist()
    assert dict(zip(expected, found, strict=True)) == expected


def test_a_range_that_outlasts_its_parent_is_cut_and_counted():
    placement = place(columns([(0, 0, 10, 0), (0, 5, 20, 1)]))
    assert placement.nest.cut == 1
    at = placement.nest.innermost(np.zeros(3, np.int64), np.array([4, 9, 12]))
    assert placement.take(at)["layer"].to_pylist() == ["a", "a/b", None]


@ask_each("spread", [1, 10**12])
def test_work_joins_the_launch_of_its_id(spread):
    random = np.random.default_rng(5)
    ids = random.permutation(1000) * spread
    wanted = np.append(random.permutation(ids)[:600], [NONE, 1000 * spread + 1])
    found = Joiner(np.zeros(1000, np.int32), ids).find(np.zeros(len(wanted), np.int32), wanted)
    assert (ids[found[:-2]] == wanted[:-2]).all()
    assert found[-2:].tolist() == [NONE, NONE]


def test_ids_of_two_processes_are_kept_apart_and_may_be_missing():
    process, ids = np.array([7, 8, 7], np.int32), np.array([1, 1, 2])
    joiner = Joiner(process, ids)
    assert joiner.find(np.array([8, 7, 7, 8, 9], np.int32), np.array([1, 1, 2, 2, 1])).tolist() == [
        1,
        0,
        2,
        NONE,
        NONE,
    ]
    alone = Joiner(np.full(3, 7, np.int32), np.array([5, 6, 9]))
    assert alone.find(np.full(3, NONE, np.int32), np.array([9, 5, NONE])).tolist() == [2, 0, NONE]


LAYER = [1, 2, 2, 3]
STEP = [7, *(LAYER * 12), 8, *(LAYER * 12), 9]


@ask_each(
    ("sequence", "expected"),
    [
        ([1, 2, 3] * 5, (0, 15, 3)),
        ([9, 9, 8] + [1, 2, 3] * 5 + [4], (3, 15, 3)),
        (STEP * 4, (0, 4 * len(STEP), len(STEP))),  # twelve equal layers are no twelve steps
        ([5] * 10, (0, 10, 1)),
        ([1, 2, 3, 4, 1, 2, 3, 4], None),  # twice is no repetition
        (list(range(50)), None),
        ([], None),
        (list(range(100, 150)) + [1, 2] * 4, None),  # a small loop at the end of something else
    ],
)
def test_the_period_is_that_of_the_step(sequence, expected):
    assert find_period(np.array(sequence, dtype=np.int64)) == expected


def test_random_sequences_have_no_period():
    random = np.random.default_rng(11)
    assert not [seed for seed in range(100) if find_period(random.integers(0, 6, 400)) is not None]


def test_repeated_steps_begin_after_the_longest_idle_time():
    # conv, relu, (100 ns of nothing), loss; seen from its middle on, as a profiler that was started
    # late sees it
    starts, names, now = [], [], 1000
    for _ in range(5):
        for name, gap in ((2, 100), (0, 1), (1, 1)):
            now += gap
            starts.append(now)
            names.append(name)
            now += 10
    starts, names = np.array(starts)[1:], np.array(names)[1:]
    windows = find_repeated_windows(names, starts, starts + 10, np.zeros(len(starts), np.int64))
    assert [names[starts == start].item() for start, _ in windows] == [2, 2, 2, 2]
    assert {b - a for a, b in windows[:-1]} == {132}
    assert windows[-1][1] == starts[-1] + 10


SAID = {
    "curvescope.layer:conv3_1": RangeName("conv3_1", True),
    "curvescope.phase:backward": RangeName(None, True, "backward"),
    "curvescope.step": RangeName(None, True, None, True),
    "layer:conv1": RangeName("conv1"),
    **dict.fromkeys(
        ("ProfilerStep#12", "step 3", "Iteration_17", "train_step"), RangeName(step=True)
    ),
    "batch 4, batch_size=64": RangeName(step=True, batch=64),
    "stepper": RangeName("stepper"),
    "Backward pass": RangeName(phase="backward"),
    "loss.backward()": RangeName(phase="backward"),
    "Optimizer.step#SGD.step": RangeName(phase="optimizer"),
    "forward_features": RangeName("forward_features"),
    "aten::linear": RangeName(op="aten::linear"),
    "mm, seq = 72": RangeName(op="mm", sequence=72),
    "MmBackward, seq = 72": RangeName(
        op="MmBackward", sequence=72, backward=True, phase="backward"
    ),
    "autograd::engine::evaluate_function: MulBackward0, seq = 3": RangeName(
        op="MulBackward0", sequence=3, backward=True, phase="backward"
    ),
    "aten::addmm, seq = 1, op_id = 2, sizes = [[10], [32, 784], [784, 10], [], []]": RangeName(
        op="aten::addmm", sequence=1, batch=32, batch_source=BatchSource.MATRIX
    ),
    "{'mod': 'torch', 'op': 'matmul', 'args': []}": RangeName(op="torch.matmul"),
    "{'traceMarker': ['net.py:3', '/usr/lib/python3/site-packages/torch/nn.py:5']}": RangeName(
        "net.py:3", True
    ),
    "{'traceMarker': [": RangeName(),
    "encoder.layer.3": RangeName("encoder.layer.3"),
}


@ask_each("name", SAID)
def test_known_habits_of_names(name):
    assert RangeNames().read(name) == SAID[name]
    assert RangeNames().read("features.0", "curvescope") == RangeName("features.0", True, "forward")
    assert RangeNames().read("features.0 backward", "curvescope") == RangeName(
        "features.0", True, "backward"
    )
    assert RangeNames().read("ncclAllReduce", "NCCL") == RangeName(op="ncclAllReduce")


def test_folders_of_people_are_cut_from_names():
    same = ["encoder/layer/attention", "void f<int>(int, char/* c */)"]
    names = [
        "/home/me/deep/net.py:3",
        r"C:\Users\me\net.py",
        "['/Users/me/a.py:1', 'b.py:2']",
        *same,
    ]
    assert list(map(scrub, names)) == ["net.py:3", "net.py", "['a.py:1', 'b.py:2']", *same]


def test_a_backward_node_joins_the_last_forward_operator_before_it_with_its_number():
    start_ns = np.array([10, 20, 30, 40, 50])
    number = np.array([7, 7, 7, 7, 8])
    forward = np.array([True, True, False, True, False])
    # not the first with its number, none that follows it, and none with another number
    assert join_forward(start_ns, number, forward, ~forward).tolist() == [NONE, NONE, 1, NONE, NONE]
