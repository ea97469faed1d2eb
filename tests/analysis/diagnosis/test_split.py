"""A curve split into its terms: the parts of every functional add up to it, and the layer that
bends it leads.
"""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import curvature, excess
from curvescope.analysis.decompose.terms import IDLE, OVERHEAD, estimate_terms
from curvescope.analysis.diagnosis.estimate import Estimates
from curvescope.analysis.diagnosis.explain import diagnose, explain_one
from curvescope.analysis.diagnosis.split import explain_functional
from curvescope.base.errors import CurvescopeError

from ...tables import ask_each
from ..synthetic import BATCHES, profiled_step, sweep, timed_steps, times_of


def jump(batch):
    """A slow path in conv3's backward pass from batch 16 on."""
    slow = 4.0 * batch if batch >= 16 else 0.0
    return [
        ("conv1", "forward", "gemm", 2.0 * batch),
        ("conv3", "backward", "slow_path" if slow else "fast_path", 3.0 * batch + slow),
        (None, "optimizer", "aten::add_", 5.0),
    ]


def test_a_jump_is_found_at_its_place_with_its_layer_phase_and_kernels():
    def cost(batch):
        return sum(time for *_, time in jump(batch)) + 1.0

    steps, kernels = sweep(cost, jump, np.random.default_rng(3))
    diagnosis = diagnose(Recorded(steps, kernel_times=times_of(steps, kernels)))
    first = diagnosis.explanations[0]
    assert (first.functional.kind, first.functional.at, first.functional.to) == ("excess", 8, 16)
    top = first.shares[0]
    assert (top.key.layer, top.key.phase) == ("conv3", "backward")
    assert (top.kernel_before, top.kernel_after) == ("fast_path", "slow_path")
    assert top.real
    # 4 ms per sample at 16 samples, nothing at 8
    assert top.value.value == pytest.approx(64.0)
    # The same jump bends the curve before and after it: one event, not three.
    assert len(diagnosis.explanations) == 1
    assert set(first.also) == {"bend at 8", "bend at 16"}


traces = st.lists(
    st.tuples(
        st.sampled_from([None, "conv1", "fc6"]),
        st.sampled_from(["forward", "backward", "optimizer", None]),
        st.integers(0, 3),  # stream
        st.integers(0, 900_000),  # start in the step
        st.integers(0, 400_000),  # duration
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(traces, min_size=9, max_size=9), st.integers(0, 2**32 - 1))
def test_terms_add_up_to_every_functional(step_traces, seed):
    """Random traces with overlapping streams: the parts of excess and curvature sum to them within
    1e-9.
    """
    random = np.random.default_rng(seed)
    steps = timed_steps(lambda batch: 1.0 + batch, random, batches=(1, 2, 4), rounds=3)
    rows, kernels = [], []
    for place, trace in enumerate(step_traces):
        step = len(steps) + place
        row, _ = profiled_step(step, (1, 2, 4)[place % 3], place // 3, [], idle_ms=1.0)
        rows.append(row)
        kernels += [
            {
                "name": "k",
                "start_ns": row["start_ns"] + start,
                "duration_ns": duration,
                "stream": stream,
                "step": step,
            }
            | {
                "layer": layer,
                "phase": phase,
                "op": None,
                "source": "cupti",
                "flops": None,
                "bytes_compulsory": None,
            }
            for layer, phase, stream, start, duration in trace
        ]
    steps = pd.concat([steps, pd.DataFrame(rows)], ignore_index=True)
    columns = [
        "name",
        "start_ns",
        "duration_ns",
        "stream",
        "step",
        "layer",
        "phase",
        "op",
        "source",
        "flops",
    ]
    parts = times_of(steps, pd.DataFrame(kernels, columns=[*columns, "bytes_compulsory"]))
    recorded = Recorded(steps, kernel_times=parts)
    estimates = Estimates(cost_curve(steps), estimate_terms(parts, steps))
    for functional in (
        excess(1, 2),
        excess(2, 4),
        curvature(1, 2, 4),
        curvature(1, 2, 4, "linear"),
    ):
        explanation = explain_functional(functional, estimates, recorded)
        total = math.fsum(part.value.value for part in explanation.shares)
        caused = math.fsum(cause.amount for cause in explanation.causes)
        assert caused == pytest.approx(total, rel=1e-12, abs=1e-12)
        size = sum(abs(weight) * 5 for _, weight in functional.coefficients)
        assert total == pytest.approx(explanation.value.value, rel=1e-9, abs=1e-9 * size)
        assert [p.key.kind for p in explanation.shares[-2:]] == [IDLE, OVERHEAD]


def test_profiling_overhead_is_a_term_of_its_own():
    def layers(batch):
        return [("conv1", "forward", "gemm", 10.0 * batch)]

    # Profiled steps take 1 ms idle and 10 ms per sample; without the profiler each is 2 ms shorter.
    steps, kernels = sweep(
        lambda b: 10.0 * b - 1.0, layers, np.random.default_rng(2), noise=0, drift=0, spikes=0
    )
    diagnosis = diagnose(Recorded(steps, kernel_times=times_of(steps, kernels)))
    explanation = explain_one(diagnosis, excess(4, 8))
    shares = {part.label: part.value.value for part in explanation.shares}
    assert shares["conv1 forward"] == pytest.approx(0, abs=1e-9)
    assert shares[IDLE] == pytest.approx(1.0 - 2 * 1.0)
    assert shares[OVERHEAD] == pytest.approx(-2.0 - 2 * -2.0)


def test_terms_of_equal_time_are_in_the_order_of_their_labels():
    def layers(batch):
        rows = (("z", "forward"), (None, "optimizer"), ("a", "forward"))
        return [(layer, phase, "gemm", 10.0 + batch) for layer, phase in rows]

    steps, kernels = sweep(
        lambda b: 31.0 + 3 * b, layers, np.random.default_rng(2), noise=0, drift=0, spikes=0
    )
    diagnosis = diagnose(Recorded(steps, kernel_times=times_of(steps, kernels)))
    split = explain_one(diagnosis, excess(4, 8))
    assert [share.label for share in split.shares[:3]] == ["a forward", "optimizer", "z forward"]


def test_a_batch_without_profiled_step_cannot_be_split():
    steps, kernels = sweep(lambda b: 10.0 * b, jump, np.random.default_rng(2), batches=(1, 2, 4))
    parts = times_of(steps[~((steps["batch"] == 2) & steps["profiled"])], kernels)
    diagnosis = diagnose(Recorded(steps, kernel_times=parts))
    with pytest.raises(CurvescopeError, match="no step of batch 2 is profiled"):
        explain_one(diagnosis, excess(1, 2))


@ask_each("late", [(8, 16), (*BATCHES, 33)])
def test_sizes_that_were_profiled_before_a_further_one_came_are_split(late):
    """A size that is probed at the end takes the time for profiles; found on a virtual card."""
    steps, kernels = sweep(
        lambda batch: sum(time for *_, time in jump(batch)) + 1.0,
        jump,
        np.random.default_rng(3),
        batches=(*BATCHES, 33),
    )
    came = (steps["batch"] != 33) | ((steps["round"] >= 4) & ~steps["profiled"])
    no_time = steps["profiled"] & (steps["round"] >= 4) & steps["batch"].isin(late)
    steps = steps[came & ~no_time]
    kernels = kernels[kernels["step"].isin(steps["step"])]
    first = diagnose(Recorded(steps, kernel_times=times_of(steps, kernels))).explanations[0]
    assert first.functional.label == "excess 8→16"
    assert (first.shares[0].key.layer, first.shares[0].key.phase) == ("conv3", "backward")
    assert first.shares[0].value.value == pytest.approx(64.0)


def test_a_recording_without_timed_steps_has_no_curve():
    steps = timed_steps(lambda b: b, np.random.default_rng(0), batches=BATCHES)
    with pytest.raises(CurvescopeError, match="no timed step"):
        cost_curve(steps.assign(profiled=True))
