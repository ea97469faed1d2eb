"""Rates of collectives, their overlap with other kernels, and how much they slow these down."""

import pandas as pd
import pyarrow as pa
import pytest

from curvescope.analysis.decompose.communication import bus_factor, communication, slow_downs
from curvescope.profiling.recording.schema import KERNELS, conform

from ...tables import ask_each

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"
STEPS = pd.DataFrame(
    {"step": [0], "batch": [8], "profiled": [True], "start_ns": [0], "duration_ns": [10_000_000]}
)


def work_of(rows):
    """Kernels of one step: name, start and duration in µs, and further columns."""
    table = pa.Table.from_pylist(
        [
            {
                "name": name,
                "start_ns": 1000 * start,
                "duration_ns": 1000 * duration,
                "step": 0,
                "source": "torch",
            }
            | {"device": 0, **more}
            for name, start, duration, more in rows
        ]
    )
    return lambda columns: [conform(KERNELS, table).select(columns)]


def all_reduce(start, duration, **more):
    return (
        ALL_REDUCE,
        start,
        duration,
        {"group_size": 4, "message_bytes": 3_000_000, "stream": 20, **more},
    )


@ask_each(
    ("name", "ranks", "factor"),
    # Table in doc/PERFORMANCE.md of nccl-tests.
    [
        ("AllReduce", 4, 1.5),
        ("AllGather", 4, 0.75),
        ("ReduceScatter", 8, 0.875),
        ("Broadcast", 8, 1),
        ("Gather", 8, None),
    ],
)
def test_factors_are_those_of_nccl_tests(name, ranks, factor):
    assert bus_factor(name, ranks) == factor


def test_rates_of_the_mean_and_of_the_fastest_call():
    found = communication(work_of([all_reduce(0, 100), all_reduce(1000, 300)]), STEPS, 8)
    (one,) = found.collectives
    assert (one.name, one.ranks, one.algorithm, one.calls, one.time_ms) == (
        "AllReduce",
        4,
        "tree",
        2,
        0.4,
    )
    # 3 MB in 200 µs on average, in 100 µs at best; 1.5 times as much on the bus.
    assert one.algorithm_gb_per_s == pytest.approx(15)
    assert (one.bus_gb_per_s, one.fastest_bus_gb_per_s) == pytest.approx((22.5, 45))
    assert (found.time_ms, found.exposed_ms, found.excess_ms) == (0.4, 0.4, None)


def test_overlap_is_counted_per_device():
    beside = [("gemm", 50, 100, {}), ("gemm", 0, 100, {"device": 1})]
    found = communication(work_of([all_reduce(0, 100), *beside]), STEPS, 8)
    assert (found.time_ms, found.exposed_ms, found.beside_ms) == pytest.approx((0.1, 0.05, 0.1))
    assert found.collectives[0].overlapped == pytest.approx(0.5)


def slowed():
    """Four products alone, 100 µs each, and three beside an all-reduce, 130 µs each; one other
    kernel only beside.
    """
    alone = [("gemm", 200 * i, 99 + 2 * (i % 2), {"layer": "a"}) for i in range(4)]
    beside = [("gemm", 2000 + 200 * i, 129 + i, {"layer": "b"}) for i in range(3)]
    return [*alone, *beside, ("norm", 2700, 50, {"layer": "b"}), all_reduce(1990, 1000)]


def test_kernels_beside_communication_are_compared_with_themselves_alone():
    found = communication(work_of(slowed()), STEPS, 8)
    assert found.excess_ms == pytest.approx(3 * 0.03)
    low, high = found.interval_ms
    assert 0.08 < low < 0.09 < high < 0.1
    (gemm,) = found.slowed
    assert (gemm.name, gemm.calls) == ("gemm", 3)
    assert (gemm.alone_ms, gemm.beside_ms) == pytest.approx((0.1, 0.13))
    assert (found.beside_ms, found.compared_ms) == pytest.approx((0.44, 0.39))


def test_the_slow_down_of_a_layer_is_shared_with_the_communication_beside_it():
    (row,) = slow_downs(work_of(slowed()), STEPS).to_dict("records")
    assert (row["batch"], row["layer"]) == (8, "b")
    assert (row["expected_ms"], row["excess_ms"]) == pytest.approx((0.3, 0.09))
    # The products run beside the all-reduce all the time, so half of their time counts as its own.
    assert (row["own_ms"], row["shared_ms"]) == pytest.approx((0.045, 0.045))


def test_a_recording_without_communication_is_not_read_twice():
    read = []

    def work(columns):
        read.append(columns)
        return work_of([("gemm", 0, 100, {})])(columns)

    assert communication(work, STEPS, 8) is None
    assert read == [["name"]]
