"""The timelines of ranks cut into their parts, and the loss of scaling split by them, on steps
built by hand.
"""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from curvescope.analysis.ranks.parts import RankTables, rank_parts
from curvescope.analysis.render.documents import json_text
from curvescope.analysis.render.scaling import render_series, scaling_sentence
from curvescope.analysis.render.show_scaling import _tables
from curvescope.analysis.scaling import PointTables, scale
from curvescope.profiling.measure.scaling_plan import ScalingPoint
from curvescope.profiling.recording.rank_info import META_KEY
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..tables import ask_each

MS = 10**6
ALL_REDUCE = ("gloo:all_reduce", None, None, "gloo:all_reduce")


def kernel(layer, phase="forward", name="aten::mm"):
    return name, layer, phase, "aten::linear"


class Rank:
    """Steps of one rank: timed ones, and profiled ones whose rows are given as (what, start, end)
    in ms.
    """

    def __init__(self, rank, node=0, clock_ns=0):
        self.rank, self.node, self.clock_ns = rank, node, clock_ns
        self.steps, self.kernels, self.ranges = [], [], []

    def step(self, batch, round_, index, duration_ms, rows=None, inputs=(), start_ms=0.0):
        number, start = len(self.steps), 10**9 * len(self.steps)
        window = {
            "start_ns": round(start + start_ms * MS) - self.clock_ns,
            "duration_ns": round(duration_ms * MS),
        }
        key = {
            "step": number,
            "batch": batch,
            "round": round_,
            "index": index,
            "profiled": rows is not None,
        }
        self.steps.append({**key, **window})
        for (name, layer, phase, op), begin, end in rows or ():
            place = {
                "start_ns": round(start + begin * MS) - self.clock_ns,
                "duration_ns": round((end - begin) * MS),
            }
            what = {"name": name, "layer": layer, "phase": phase, "op": op}
            self.kernels.append({**what, **place, "step": number})
        for begin, end in inputs:
            place = {
                "start_ns": round(start + begin * MS) - self.clock_ns,
                "duration_ns": round((end - begin) * MS),
            }
            self.ranges.append({"name": "curvescope.phase:input", **place, "step": number})
        return self

    def tables(self):
        columns = ["name", "start_ns", "duration_ns", "step", "phase", "layer", "op"]
        return RankTables(
            self.rank,
            self.node,
            pd.DataFrame(self.steps),
            pd.DataFrame(self.kernels, columns=columns),
            pd.DataFrame(self.ranges, columns=["name", "start_ns", "duration_ns", "step"]),
        )


def by_kind(ranks):
    parts, _ = rank_parts([rank.tables() for rank in ranks])
    table = parts.groupby(["rank", "kind"])["exclusive_ms"].sum()
    return {key: round(value, 9) for key, value in table.items() if value}


def worked_example(**clock):
    """The example of docs/internals/other-measures.md."""

    def step(rank, forward_ends, reduce_begins):
        copy = ("aten::copy_", "conv", "backward", "torch::distributed::reducer::mul_out")
        rows = [
            (kernel("conv"), 5, forward_ends),
            (kernel("conv", "backward"), forward_ends, forward_ends + 20),
            (copy, forward_ends + 20, forward_ends + 22),
            (ALL_REDUCE, reduce_begins, 95),
        ]
        return rank.step(8, 0, 0, 100, rows, inputs=[(0, 5)])

    return step(Rank(0), 40, 50), step(Rank(1, **clock), 60, 70)


EXPECTED = {
    (0, "input"): 5,
    (0, "kernels"): 55,
    (
        0,
        "waiting",
    ): 8,  # from 62, what runs before is hidden, to 70, where rank 1 begins the collective
    (0, "communication"): 2 + 25,
    (0, "idle"): 5,
    (1, "input"): 5,
    (1, "kernels"): 75,
    (1, "communication"): 2 + 13,
    (1, "idle"): 5,
}


def test_worked_example_of_the_docs():
    assert by_kind(worked_example()) == EXPECTED


@ask_each("known", [True, False])
def test_the_clock_of_another_node_changes_nothing(known):
    first, second = worked_example(node=1, clock_ns=7 * 10**9)
    second.clock_ns *= known
    assert by_kind((first, second)) == EXPECTED


def test_the_waiting_is_that_of_ranks():
    """Durations of 45 and 25 ms: rank 0 waits 20, of which 12 are hidden behind its kernels."""
    first, _ = ranks = worked_example()
    first.kernels = [row for row in first.kernels if row["layer"] is None]
    assert by_kind(ranks)[0, "waiting"] == 20


def test_collectives_that_not_all_ranks_have_are_communication():
    first, second = worked_example()
    second.kernels = [row for row in second.kernels if row["name"] != "gloo:all_reduce"]
    parts, unmatched = rank_parts([first.tables(), second.tables()])
    assert unmatched == 1
    assert "waiting" not in set(parts["kind"])


def test_collective_left_of_the_step_before_is_not_matched():
    first, second = worked_example()
    first.kernels.append({**first.kernels[-1], "start_ns": -3 * MS, "duration_ns": 4 * MS})
    # It is 1 ms long in this step, before the input that else would have that time.
    expected = {**EXPECTED, (0, "communication"): 2 + 25 + 1, (0, "input"): 4}
    assert by_kind((first, second)) == expected


def test_steps_that_a_rank_did_not_finish_are_left_out():
    first, second = worked_example()
    first.step(8, 1, 0, 100, [(kernel("conv"), 0, 100)])
    parts, _ = rank_parts([first.tables(), second.tables()])
    assert set(parts["step"]) == {0}


rows_of_a_rank = st.lists(
    st.tuples(
        st.sampled_from(
            [kernel("a"), kernel("b", "backward"), ALL_REDUCE, ("x", None, "backward", "c10d::x")]
        ),
        st.floats(-10, 110),
        st.floats(0, 60),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(rows_of_a_rank, min_size=2, max_size=4),
    st.floats(0, 30),
    st.integers(-(10**12), 10**12),
)
def test_terms_of_every_rank_add_up_to_its_step(drawn, input_ms, clock_ns):
    ranks = [Rank(place, clock_ns=place * clock_ns) for place in range(len(drawn))]
    for rank, rows in zip(ranks, drawn, strict=True):
        rows = [(what, start, start + length) for what, start, length in rows]
        rank.step(8, 0, 0, 100 + rank.rank, rows, inputs=[(0, input_ms)])
    parts, _ = rank_parts([rank.tables() for rank in ranks])
    walls = parts.groupby("rank")["exclusive_ms"].sum()
    assert walls.to_numpy() == pytest.approx([100 + rank.rank for rank in ranks], rel=1e-12)
    assert (parts["exclusive_ms"] >= 0).all()


def run_of(devices, batch, random, *, slow_rank=None, slow_input=0.0, contention=1.0, rounds=6):
    """A point: conv forward costs 2 ms a sample, backward 2, an all-reduce of 6 ms begins after it;
    noise of 1 %.
    """
    ranks = [Rank(rank, node=rank // 2) for rank in range(devices)]
    for round_ in range(rounds):
        for index, profiled in ((0, False), (1, False), (2, True)):
            forward, fetch = [], []
            for rank in range(devices):
                factor = contention * float(np.exp(0.01 * random.standard_normal()))
                forward.append(2.0 * batch * factor + (20.0 if rank == slow_rank else 0.0))
                fetch.append(slow_input)
            backward = 2.0 * batch
            arrive = [i + f + backward for i, f in zip(fetch, forward, strict=True)]
            end = max(arrive) + (6.0 if devices > 1 else 0.0) + 1.0
            for rank, one in enumerate(ranks):
                rows = [
                    (kernel("conv"), fetch[rank], fetch[rank] + forward[rank]),
                    (kernel("conv", "backward"), fetch[rank] + forward[rank], arrive[rank]),
                    *([(ALL_REDUCE, arrive[rank], end - 1.0)] if devices > 1 else []),
                ]
                watching = 0.5 if profiled else 0.0
                one.step(
                    batch,
                    round_,
                    index,
                    end + watching,
                    rows if profiled else None,
                    inputs=[(0, fetch[rank])],
                )
    return PointTables(ScalingPoint(devices, batch), tuple(rank.tables() for rank in ranks), 7)


def weak_of(*points):
    (series,) = scale(points, [p.point for p in points], (), "median")
    return series


def parts_of(loss):
    return {part.kind: part.ms.value for part in loss.shares}


@pytest.fixture
def random():
    return np.random.default_rng(5)


def test_a_planted_slow_rank_is_named_with_its_layer(random):
    series = weak_of(run_of(1, 8, random), run_of(4, 8, random, slow_rank=2))
    loss = series.points[1].loss
    assert parts_of(loss)["load imbalance"] == pytest.approx(
        15, abs=1
    )  # three of four ranks wait 20 ms
    assert parts_of(loss)["communication"] == pytest.approx(6, abs=0.5)
    assert parts_of(loss)["slower kernels"] == pytest.approx(
        5, abs=1
    )  # one of four takes 20 ms more
    assert (loss.late.rank, loss.late.node, loss.late.latest_in) == (2, 1, 6)
    assert loss.late.waits_less_ms.value == pytest.approx(20, abs=1)
    first = loss.late.shares[0]
    assert (first.layer, first.phase, first.kind, first.real) == (
        "conv",
        "forward",
        "slower kernels",
        True,
    )
    assert first.ms.low < 20 < first.ms.high


def test_planted_input_and_contention_are_told_apart(random):
    series = weak_of(run_of(1, 8, random), run_of(2, 8, random, slow_input=9.0, contention=1.25))
    loss = series.points[1].loss
    assert parts_of(loss)["input"] == pytest.approx(9)
    assert parts_of(loss)["slower kernels"] == pytest.approx(4, abs=0.5)
    assert [(part.layer, part.phase) for part in loss.kernels if part.real] == [("conv", "forward")]


def test_shares_add_up_to_the_loss_and_with_the_efficiency_to_one(random):
    points = [run_of(1, 16, random), run_of(1, 8, random), run_of(1, 4, random)]
    points += [
        run_of(2, 8, random, contention=1.1),
        run_of(4, 4, random, slow_rank=1, slow_input=3.0),
    ]
    strong = [ScalingPoint(1, 16), ScalingPoint(2, 8), ScalingPoint(4, 4)]
    (series,) = scale(points, (), strong, "median")
    for point in series.points[1:]:
        ideal_ms = series.points[0].step_ms.value / point.devices
        assert point.loss.ms.value == pytest.approx(point.step_ms.value - ideal_ms, abs=1e-12)
        total = math.fsum(part.ms.value for part in point.loss.shares)
        assert total == pytest.approx(point.loss.ms.value, abs=1e-12)
        assert 1 - total / point.step_ms.value == pytest.approx(point.efficiency.value, abs=1e-12)
        assert math.fsum(part.ms.value for part in point.loss.kernels) == pytest.approx(
            parts_of(point.loss)["slower kernels"], abs=1e-12
        )
        # One device of that batch has a step of 4 ms a sample and 1 ms that does not shrink with
        # it.
        unshared_ms = 1.0 - 1.0 / point.devices
        assert parts_of(point.loss)["smaller batch"] == pytest.approx(unshared_ms, abs=0.7)
        assert parts_of(point.loss)["profiling overhead"] == pytest.approx(
            0.5 / point.devices - 0.5, abs=0.7
        )


def test_perfect_scaling_loses_nothing(random):
    """Two ranks that do not meet, each as fast as one alone: no part is more than noise."""
    alone, first, second = (run_of(1, 8, random) for _ in range(3))
    both = PointTables(ScalingPoint(2, 8), (first.ranks[0], replace(second.ranks[0], rank=1)), 0)
    twice = weak_of(alone, both).points[1]
    assert twice.efficiency.low < 1 < twice.efficiency.high
    assert twice.speedup.value == pytest.approx(2, rel=0.02)
    assert not any(part.real for part in twice.loss.shares)


def test_slow_rank_shows_in_text_that_fits_a_terminal(random):
    series = weak_of(
        run_of(1, 8, random), run_of(2, 8, random, slow_rank=1), run_of(4, 8, random, slow_rank=2)
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_series(series))
    lines = console.export_text().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    text = " ".join(" ".join(lines).split())
    assert "2 nodes: 4" in text
    assert "The ranks wait for rank 2 on node 1, which waits" in text
    assert "conv forward +20" in text
    verdict = scaling_sentence(series)
    assert verdict.startswith("Weak scaling: 4 devices are ")
    assert "; they lose most to load imbalance, " in verdict


def test_unknown_intervals_are_null_in_the_document(random):
    series = weak_of(run_of(1, 8, random, rounds=1), run_of(2, 8, random, rounds=1))
    point = json.loads(json_text(series))["points"][1]
    assert point["step_ms"]["low"] is None
    assert point["n"] == 2
    assert point["discarded_steps"] == 7
    assert {part["kind"] for part in point["loss"]["shares"]} == {
        "communication",
        "load imbalance",
        "slower kernels",
        "input",
        "idle",
        "profiling overhead",
    }


def test_devices_on_several_nodes_are_counted_whatever_their_clocks():
    first, second = worked_example(node=1, clock_ns=7 * 10**9)
    for rank in (first, second):
        rank.step(8, 0, 1, 100)
    alone = Rank(0).step(8, 0, 1, 50)
    tables = [
        PointTables(ScalingPoint(1, 8), (alone.tables(),), 0),
        PointTables(ScalingPoint(2, 8), (first.tables(), second.tables()), 0),
    ]
    series = weak_of(*tables)
    assert [point.nodes for point in series.points] == [1, 2]
    assert series.points[1].loss is None  # one device was not profiled


def test_copies_of_a_gpu_are_work_of_its_layers(tmp_path):
    """The recording has them in a table of their own: 3 ms of copies and 4 ms of kernels leave 3 ms
    idle.
    """
    at = {"step": 0, "phase": "forward", "layer": "conv", "source": "torch"}
    copy = {"kind": "memcpy", "memcpy_kind": "HtoD", "start_ns": MS, "duration_ns": 3 * MS}
    with RecordingWriter(
        tmp_path / "r", {META_KEY: {"rank": 0, "world_size": 1, "local_rank": 0}}
    ) as writer:
        window = {"step": 0, "batch": 8, "round": 0, "index": 0, "mode": "training", "start_ns": 0}
        writer.write("steps", columns_of([{**window, "duration_ns": 10 * MS, "profiled": True}]))
        writer.write(
            "kernels",
            columns_of(
                [{**at, "name": "k", "op": "mm", "start_ns": 4 * MS, "duration_ns": 4 * MS}]
            ),
        )
        writer.write("memory", columns_of([{**at, **copy}]))
    tables = _tables(ScalingPoint(1, 8), [open_recording(tmp_path / "r")])
    parts, _ = rank_parts(tables.ranks)
    times = parts.groupby(["kind", "layer", "name"], dropna=False)["exclusive_ms"].sum().to_dict()
    assert {key[:1] + key[2:]: time_ms for key, time_ms in times.items()} == {
        ("kernels", "Memcpy HtoD"): 3,
        ("kernels", "k"): 4,
        ("idle", "idle"): 3,
    }
