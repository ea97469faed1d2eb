"""The tables of ranks add up: in any order, any grouping, and piece by piece."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.analysis.ranks.reduction import RankId, reduce_rank
from curvescope.analysis.ranks.tables import TABLES, combine, shortest_of, unreadable
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.collectives import collective

from ...tables import ask_each
from ..synthetic import times_of, work_of
from .planted_ranks import ALL_REDUCE, kernels, rank_tables, reduce_planted, row

NAMES = ("k1", "k2", ALL_REDUCE, "ncclDevKernel_SendRecv(ncclDevComm*)", "gloo:broadcast")


ONE_STEP = pd.DataFrame({"step": [0], "start_ns": [0], "duration_ns": [100], "profiled": [True]})


@st.composite
def recordings(draw):
    """Steps and kernels of one rank; kernels overlap, hang over their step, and may be
    of no step.
    """
    lengths = draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))
    starts = np.cumsum([0, *lengths[:-1]])
    steps = pd.DataFrame(
        {
            "step": range(len(lengths)),
            "start_ns": starts,
            "duration_ns": lengths,
            "profiled": [True] * len(lengths),
        }
    )
    one = st.builds(
        row,
        st.sampled_from(NAMES),
        st.integers(-10, 150),
        st.integers(0, 40),
        st.one_of(st.none(), st.integers(0, len(lengths))),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, 7, 20, 21]),
        st.sampled_from([None, "0 [0, 1]"]),
        st.sampled_from([None, "forward"]),
    )
    return steps, draw(st.lists(one, max_size=25))


def same(one, other):
    return (
        one.unreadable == other.unreadable
        and one.names.equals(other.names)
        and all(one[name].equals(other[name]) for name in TABLES)
    )


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(recordings(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_ranks_add_up_in_any_order_and_grouping(found, random):
    reductions = [
        reduce_rank(RankId(i, i // 2), steps, work_of(kernels(rows)))
        for i, (steps, rows) in enumerate(found)
    ]
    reductions.append(unreadable("rank9", "it is gone"))
    whole = combine(reductions)
    assert same(whole, combine([combine([]), whole]))
    shuffled = random.sample(reductions, len(reductions))
    cut = random.randint(0, len(shuffled))
    assert same(whole, combine([combine(shuffled[:cut]), combine(shuffled[cut:])]))


@pytest.mark.slow
@settings(max_examples=30)
@given(recordings(), st.integers(0, 4))
def test_pieces_of_one_rank_add_up_to_it(found, cut):
    steps, rows = found
    whole = reduce_rank(RankId(3), steps, work_of(kernels(rows)))
    halves = []
    for inside in (steps["step"] < cut, steps["step"] >= cut):
        if inside.any():
            wanted = set(steps["step"][inside])
            halves.append(
                reduce_rank(
                    RankId(3),
                    steps[inside],
                    work_of(kernels([r for r in rows if r["step"] in wanted])),
                )
            )
    assert same(whole, combine(halves))


@settings(max_examples=10)
@given(recordings(), st.integers(0, 25))
def test_every_step_adds_up_to_its_wall_time_and_the_cut_into_tables_does_not_matter(found, cut):
    steps, rows = found
    reduction = reduce_rank(RankId(0), steps, work_of(kernels(rows[:cut]), kernels(rows[cut:])))
    assert same(reduction, reduce_rank(RankId(0), steps, work_of(kernels(rows))))
    parts = reduction["kernel_times"].to_pandas()
    assert parts.groupby("step")["exclusive_ns"].sum().tolist() == steps["duration_ns"].tolist()
    assert (parts["exclusive_ns"] >= 0).all()
    assert (
        reduction.column("steps", "wall_ns").sum()
        == reduction.column("terms", "exclusive_ns").sum()
    )
    # the same exclusive times as the rest of the analysis has, to the nanosecond
    exact = (
        times_of(steps.assign(batch=1), kernels(rows).to_pandas())
        .groupby("step")["exclusive_ms"]
        .sum()
        * 1e6
    )
    assert np.allclose(exact, steps["duration_ns"])


def test_a_generic_kernel_is_the_collective_that_the_profiler_names():
    """RCCL runs all collectives in kernels of this name; one without a collective, e.g. a send, is
    left out.
    """
    generic = "ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>)"
    told = [("AllReduce", 0), ("SendRecv", 20), (None, 40)]
    rows = [{**row(generic, start, 10, 0, stream=20), "collective": name} for name, start in told]
    reduction = reduce_rank(RankId(0), ONE_STEP, work_of(pd.DataFrame(rows)))
    assert reduction.column("collectives", "duration_ns").tolist() == [10]
    assert "AllReduce" in reduction.names.column("name").to_pylist()


def test_a_collective_keeps_its_shortest_duration_and_whose_it_was():
    ranks = {
        5: [row(ALL_REDUCE, 10, 40, 0, stream=20), row(ALL_REDUCE, 60, 30, 0, stream=20)],
        6: [row(ALL_REDUCE, 30, 20, 0, stream=22), row(ALL_REDUCE, 50, 40, 0, stream=22)],
    }
    table = combine(
        [reduce_rank(RankId(r), ONE_STEP, work_of(kernels(rows))) for r, rows in ranks.items()]
    )
    least, last = shortest_of(table.column("collectives", "shortest"))
    # of the first, rank 6 comes last and waits for nobody; of the second, rank 5. Stream numbers
    # are each rank's own.
    assert least.tolist() == [20, 30]
    assert last.tolist() == [6, 5]
    assert table.column("collectives", "ranks").tolist() == [2, 2]
    assert table.column("collectives", "duration_ns").tolist() == [60, 70]


def test_the_rest_of_the_last_steps_collective_has_no_place_in_the_order():
    # Gloo's all-reduce of the step before ends inside this one on rank 0 alone: the second is the
    # first of both ranks.
    steps = ONE_STEP.assign(start_ns=100)
    own = row("gloo:all_reduce", 150, 20, 0, stream=4)
    first = reduce_rank(
        RankId(0), steps, work_of(kernels([row("gloo:all_reduce", 10, 95, 0, stream=4), own]))
    )
    found = combine([first, reduce_rank(RankId(1), steps, work_of(kernels([own])))])
    assert found.column("collectives", "ranks").tolist() == [2]
    assert found.column("calls", "calls").tolist() == [1, 1]
    assert found.column("steps", "communication_ns").tolist() == [5 + 20, 20]


def test_starting_a_collective_is_communication_but_no_send():
    names = ["allreduce_", "c10d::broadcast_", "gloo:send", "ncclDevKernel_SendRecv(ncclDevComm*)"]
    rows = [row(name, 10 * place, 10, 0) for place, name in enumerate(names)]
    found = reduce_rank(RankId(0), ONE_STEP, work_of(kernels(rows)))
    assert found.column("ranks", "sends").tolist() == [2]
    assert found.column("steps", "communication_ns").tolist() == [40]


def test_communicators_keep_collectives_of_one_place_apart():
    rows = [row(ALL_REDUCE, 0, 10 + r, 0, stream=20, communicator=f"g{r // 2}") for r in range(4)]
    reductions = [reduce_rank(RankId(r), ONE_STEP, work_of(kernels([rows[r]]))) for r in range(4)]
    assert combine(reductions).column("collectives", "ranks").tolist() == [2, 2]


def test_a_recording_without_a_profiled_step_is_refused():
    steps = ONE_STEP.assign(profiled=False)
    with pytest.raises(CurvescopeError, match="no step of it was profiled"):
        reduce_rank(RankId(0), steps, work_of())


@pytest.mark.slow
def test_tables_over_all_ranks_do_not_grow_with_ranks():
    sizes = {}
    for ranks in (4, 16):
        reduction = combine(list(reduce_planted(rank_tables(ranks)).values()))
        sizes[ranks] = {name: reduction[name].num_rows for name in TABLES}
    for name in ("kernel_times", "collectives"):
        assert sizes[4][name] == sizes[16][name] > 0
    for name in ("ranks", "steps", "terms", "calls"):
        assert 4 * sizes[4][name] == sizes[16][name] > 0


@ask_each(
    ("name", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "AllReduce"),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
            "AllReduce",
        ),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "AllReduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)", "ReduceScatter"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "AllGather"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)", "Reduce"),
        ("ncclDevKernel_SendRecv(ncclDevComm*)", None),
        ("gloo:all_reduce", "AllReduce"),
        ("gloo:barrier", "barrier"),
        ("gloo:send", None),
        ("volta_sgemm_128x64_nn", None),
        ("void at::native::reduce_kernel<512, 1>", None),
    ],
)
def test_collectives_by_name(name, operation):
    assert collective(name) == operation
