"""Of a profile the first step is set aside where no recorded work says why it is slow, and a step
whose counters say that it was disturbed; no other, however long.
"""

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.breakdown import break_down_recording
from curvescope.analysis.decompose.warm_up import is_far, is_named, judge_steps, name_all_set_aside
from curvescope.analysis.diagnosis.read import read
from curvescope.analysis.side import prepare_sides
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...tables import ask_each

STEPS, STEP_MS, KERNEL_MS, SLOW_MS = 10, 10.0, 6.0, 40.0
MS = 1_000_000


def write_profile(path, slow, *, slow_ms=SLOW_MS, more=(), **counters):
    """Ten steps of 10 ms with a kernel of 6 ms each; step `slow` takes longer. `more` are rows of
    other tables in it, as (table, name, ms).
    """
    steps, tables = [], {"kernels": [], "ranges": [], "api_calls": []}
    start_ns = 0
    for step in range(STEPS):
        ns = int((slow_ms if step == slow else STEP_MS + 0.01 * (step % 3)) * MS)
        of_step = {"step": step, "batch": 8, "round": 0, "index": step, "start_ns": start_ns}
        steps.append({**of_step, "duration_ns": ns, "profiled": True, "mode": "training"})
        work = [("kernels", "gemm", KERNEL_MS), ("ranges", f"ProfilerStep#{step}", ns / MS)]
        work += [("ranges", "forward", ns / MS - 1)]
        at_ns = start_ns
        for table, name, ms in [*work, *(more if step == slow else ())]:
            row = {"name": name, "step": step, "start_ns": at_ns, "duration_ns": int(ms * MS)}
            source = {"kind": "push_pop"} if table == "ranges" else {}
            tables[table].append({**row, **source, "source": "torch"})
            at_ns += row["duration_ns"] if table == "kernels" else 0
        start_ns += ns
    counted = pd.DataFrame(steps).assign(**counters)
    with RecordingWriter(path, {"recording_type": "profile", "device": None}) as writer:
        writer.write("steps", counted.to_dict("list"))
        for table, rows in tables.items():
            if rows:
                writer.write(table, pd.DataFrame(rows).to_dict("list"))
    return open_recording(path)


def numbers_used(recording):
    """The steps that each view of a recording uses: all are the same."""
    steps = judge_steps(recording, recording.frame("steps"))
    used = steps.loc[~steps["set_aside"], "step"].tolist()
    assert list(break_down_recording(recording).used) == used
    (side,) = prepare_sides(["r"], [recording])
    curve = side.curve
    assert (curve.at(8).n, curve.at(8).time_ms.value) == (
        len(used),
        pytest.approx(steps.loc[steps["step"].isin(used), "duration_ns"].mean() / MS),
    )
    recorded = read(recording)
    assert sorted(recorded.kernel_times["step"].unique()) == used
    notes = name_all_set_aside(recorded.steps, recorded.axis)
    assert any("set aside" in note for note in notes) == (len(used) < STEPS)
    return used


def test_a_lone_slow_step_stays_though_nothing_says_why(tmp_path):
    """It is one in ten, and the program pays for it."""
    recording = write_profile(tmp_path / "r", slow=4)
    assert numbers_used(recording) == [*range(STEPS)]
    found = break_down_recording(recording)
    assert found.time_ms == pytest.approx((9 * STEP_MS + SLOW_MS) / STEPS, abs=0.02)
    assert (found.n_used, found.set_aside) == (STEPS, None)


@pytest.mark.slow
def test_a_first_slow_step_without_a_reason_is_a_warm_up(tmp_path):
    """Neither the range of the step nor that of a pass is a reason."""
    recording = write_profile(tmp_path / "r", slow=0)
    assert numbers_used(recording) == [*range(1, STEPS)]
    found = break_down_recording(recording)
    assert (found.n_used, found.n_profiled) == (STEPS - 1, STEPS)
    assert found.set_aside == (
        "1 of 10 profiled steps set aside, as a counter says or as a warm-up for which no recorded "
        "work is the reason: 40.00 ms (number 1); the others take 10.00 to 10.02 ms. With them all "
        "steps take 130.1 ms."
    )


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "more",
    [
        [("kernels", "gemm", 16.0)],
        [("kernels", "init", 0.001)] * 3,
        [("ranges", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20.0)],
        [("ranges", "curvescope.phase:input", 20.0)],
        [("ranges", "Optimizer.step#Adam.step", 20.0)],
        [("ranges", "save checkpoint", 10.0), ("ranges", "save checkpoint", 8.0)],
        [("api_calls", "cudaMalloc", 18.0)],
        [("api_calls", "hipMalloc", 18.0)],
    ],
    ids=["work", "kernels", "loader", "input", "optimizer", "range", "allocator", "of HIP"],
)
def test_a_first_slow_step_with_a_reason_is_paid(tmp_path, more):
    recording = write_profile(tmp_path / "r", slow=0, more=more)
    assert judge_steps(recording, recording.frame("steps"))["set_aside"].sum() == 0
    assert break_down_recording(recording).n_used == STEPS


def test_a_reason_for_little_of_it_is_none(tmp_path):
    little = [("api_calls", "cudaMalloc", 4.0), ("api_calls", "cudaLaunchKernel", 20.0)]
    recording = write_profile(tmp_path / "r", slow=0, more=little)
    assert judge_steps(recording, recording.frame("steps"))["set_aside"].tolist() == (
        [True] + [False] * (STEPS - 1)
    )


@pytest.mark.slow
def test_a_call_that_makes_a_context_is_no_reason(tmp_path):
    """No later step makes one; many short calls of that name are work of the program."""
    context = [("api_calls", "cudaFree", 400.0)]
    recording = write_profile(tmp_path / "context", slow=0, slow_ms=500.0, more=context)
    assert numbers_used(recording) == [*range(1, STEPS)]
    frees = [("api_calls", "cudaFree", 40.0)] * 10
    recording = write_profile(tmp_path / "frees", slow=0, slow_ms=500.0, more=frees)
    assert judge_steps(recording, recording.frame("steps"))["set_aside"].sum() == 0


def test_a_step_whose_threads_waited_for_a_core_is_set_aside(tmp_path):
    waits_ns = [0] * STEPS
    waits_ns[4] = 20 * MS
    recording = write_profile(tmp_path / "r", slow=4, run_queue_wait_ns=waits_ns)
    assert numbers_used(recording) == [0, 1, 2, 3, *range(5, STEPS)]


@ask_each(
    ("times", "far"),
    [
        ([30.0, 10.0, 10.1, 9.9], True),
        ([10.4, 10.0, 10.0, 10.0], False),  # 4 % is within what steps do
        ([30.0, 10.0, 10.1, 31.0, 9.9, 10.0], False),  # as slow as a later one: the program
        ([10.0, 30.0, 10.1, 9.9], False),
        ([5.0, 10.0, 10.1, 9.9], False),  # a fast step is no warm-up
        ([30.0, 10.0], False),
    ],
)
def test_a_first_step_is_far_by_the_spread_of_the_others(times, far):
    assert is_far(np.array(times)) == far


def test_half_of_what_is_more_is_a_reason():
    times = np.array([30.0, 10.0, 10.0])
    assert is_named(times, [np.array([12.0, 2.0, 2.0])])
    assert not is_named(times, [np.array([11.9, 2.0, 2.0]), np.array([6.0, 6.0, 6.0])])
