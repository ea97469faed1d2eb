from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find
from curvescope.analysis.decompose.functionals import curvature, excess
from curvescope.analysis.decompose.terms import IDLE, OVERHEAD, estimate_terms
from curvescope.analysis.diagnosis.split import diagnose, explain
from curvescope.base.errors import CurvescopeError

from ..synthetic import BATCHES, profiled_step, sweep, timed_steps, times_of


@pytest.mark.parametrize("fixed_ms", [0.0, 60.0], ids=["proportional", "with fixed cost"])
def test_at_most_5_percent_of_100_linear_sweeps_report_an_anomaly(fixed_ms):
    random = np.random.default_rng(7)
    alarms = 0
    for _ in range(100):
        curve = cost_curve(timed_steps(lambda batch: fixed_ms + 15.0 * batch, random))
        alarms += any(finding.verdict == FindingVerdict.ANOMALY for finding in find(curve))
    assert alarms <= 5


def test_a_fixed_cost_is_real_and_no_anomaly():
    curve = cost_curve(timed_steps(lambda batch: 100.0 + 10.0 * batch, np.random.default_rng(1)))
    pairs = [finding for finding in find(curve) if finding.shown.kind == "excess"]
    assert [finding.verdict for finding in pairs] == [FindingVerdict.FIXED_COST] * 5
    assert pairs[0].value.value == pytest.approx(-100, rel=0.15)


@pytest.mark.parametrize(("extra", "verdict"), [(0.019, FindingVerdict.SMALL), (0.021, FindingVerdict.ANOMALY)])
def test_an_excess_under_2_percent_of_the_step_is_no_anomaly_however_sure(extra, verdict):
    times_ms = {1: 100.0, 2: 200.0 / (1 - extra)}  # the excess is `extra` of the larger step
    steps = timed_steps(times_ms.get, np.random.default_rng(0), batches=(1, 2), noise=0, drift=0, spikes=0)
    (finding,) = find(cost_curve(steps))
    assert finding.p_adjusted < 1e-6
    assert finding.verdict == verdict


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
    diagnosis = diagnose(steps, times_of(steps, kernels))
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


def test_the_sign_of_a_curvature_is_named():
    # time per sample 10, 10, 7, 7: down at 2, up at 4
    curve = cost_curve(
        timed_steps({1: 10.0, 2: 20.0, 4: 28.0, 8: 56.0}.get, np.random.default_rng(5), batches=(1, 2, 4, 8))
    )
    shapes = {finding.shown.at: finding.shape for finding in find(curve) if finding.shown.kind == "curvature"}
    assert shapes == {2: "concave-down", 4: "concave-up"}


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


@settings(max_examples=15)
@given(st.lists(traces, min_size=9, max_size=9), st.integers(0, 2**32 - 1))
def test_terms_add_up_to_every_functional(step_traces, seed):
    """Random traces with overlapping streams: the parts of excess and curvature sum to them within 1e-9."""
    random = np.random.default_rng(seed)
    steps = timed_steps(lambda batch: 1.0 + batch, random, batches=(1, 2, 4), rounds=3)
    rows, kernels = [], []
    for place, trace in enumerate(step_traces):
        step = len(steps) + place
        row, _ = profiled_step(step, (1, 2, 4)[place % 3], place // 3, [], idle_ms=1.0)
        rows.append(row)
        kernels += [
            {"name": "k", "start_ns": row["start_ns"] + start, "duration_ns": duration, "stream": stream, "step": step}
            | {"layer": layer, "phase": phase, "op": None, "source": "cupti", "flops": None, "bytes_compulsory": None}
            for layer, phase, stream, start, duration in trace
        ]
    steps = pd.concat([steps, pd.DataFrame(rows)], ignore_index=True)
    columns = ["name", "start_ns", "duration_ns", "stream", "step", "layer", "phase", "op", "source", "flops"]
    parts = times_of(steps, pd.DataFrame(kernels, columns=[*columns, "bytes_compulsory"]))
    curve, terms = cost_curve(steps), estimate_terms(parts, steps)
    for functional in (excess(1, 2), excess(2, 4), curvature(1, 2, 4), curvature(1, 2, 4, "linear")):
        explanation = explain(functional, curve, terms, parts, Recorded(steps))
        total = math.fsum(part.value.value for part in explanation.shares)
        caused = math.fsum(cause.amount for cause in explanation.attribution.causes)
        assert caused == pytest.approx(total, rel=1e-12, abs=1e-12)
        size = sum(abs(weight) * 5 for _, weight in functional.coefficients)
        assert total == pytest.approx(explanation.value.value, rel=1e-9, abs=1e-9 * size)
        assert [p.key.kind for p in explanation.shares[-2:]] == [IDLE, OVERHEAD]


def test_profiling_overhead_is_a_term_of_its_own():
    def layers(batch):
        return [("conv1", "forward", "gemm", 10.0 * batch)]

    # Profiled steps take 1 ms idle and 10 ms per sample; without the profiler each is 2 ms shorter.
    steps, kernels = sweep(lambda b: 10.0 * b - 1.0, layers, np.random.default_rng(2), noise=0, drift=0, spikes=0)
    diagnosis = diagnose(steps, times_of(steps, kernels))
    parts = times_of(steps, kernels)
    explanation = explain(excess(4, 8), diagnosis.curve, diagnosis.terms, parts, Recorded(steps))
    shares = {part.label: part.value.value for part in explanation.shares}
    assert shares["conv1 forward"] == pytest.approx(0, abs=1e-9)
    assert shares[IDLE] == pytest.approx(1.0 - 2 * 1.0)
    assert shares[OVERHEAD] == pytest.approx(-2.0 - 2 * -2.0)


def test_a_batch_without_profiled_step_cannot_be_split():
    steps, kernels = sweep(lambda b: 10.0 * b, jump, np.random.default_rng(2), batches=(1, 2, 4))
    parts = times_of(steps[~((steps["batch"] == 2) & steps["profiled"])], kernels)
    with pytest.raises(CurvescopeError, match="batch 2 has no profiled step"):
        explain(excess(1, 2), cost_curve(steps), estimate_terms(parts, steps), parts, Recorded(steps))


def test_a_recording_without_timed_steps_has_no_curve():
    steps = timed_steps(lambda b: b, np.random.default_rng(0), batches=BATCHES)
    with pytest.raises(CurvescopeError, match="no timed step"):
        cost_curve(steps.assign(profiled=True))


def test_two_batch_sizes_have_an_excess_and_no_curvature():
    curve = cost_curve(timed_steps(lambda b: 3.0 * b, np.random.default_rng(0), batches=(2, 4)))
    assert [finding.shown.label for finding in find(curve)] == ["excess 2→4"]
