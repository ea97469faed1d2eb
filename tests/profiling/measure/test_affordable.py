"""A time limit is a limit, whatever a step takes, on a clock that only steps advance."""

from dataclasses import replace

import numpy as np
import pytest

from curvescope.profiling.measure import visit
from curvescope.profiling.measure.affordable import by_need, sizes_by_speed
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites import here
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import LEFT_OUT, run_sweep
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.any_workload import FirstProfiled

from ...tables import ask_each
from .fake_clock import FakeWorkload, clock

__all__ = ["clock"]  # a fixture

BATCHES = (1, 2, 4, 8, 16, 32)
LIMIT_S = 60.0
WARM_UP_NS = 100_000_000
SHAPES = {
    "proportional": lambda batch: batch / 32,
    "flat": lambda _: 1.0,
    "fixed and proportional": lambda batch: 0.2 + 0.8 * batch / 32,
}


@pytest.fixture
def sweep(tmp_path, clock, monkeypatch):
    """Runs a sweep of steps that take so many seconds at the largest size; a profile begins with
    three more steps.
    """

    conversion_s = [0.0]

    def warm_up_profiler(workload):
        clock.now_ns += round(1e9 * conversion_s[0])
        if workload.loaded not in workload.first_profiled:
            for _ in range(3):
                workload.time_step()
            workload.first_profiled[workload.loaded] = FirstProfiled([], [])

    monkeypatch.setattr(visit, "warm_up_profiler", warm_up_profiler)

    def run(
        largest_s,
        shape="proportional",
        limit_s=LIMIT_S,
        batches=BATCHES,
        protocol="default",
        report=lambda _: None,
        slower=lambda: 1.0,
        conversion=0.0,
        slower_at=lambda _: 1.0,
        probe_s=0.0,
    ):
        conversion_s[0] = conversion
        workload = FakeWorkload(
            clock,
            lambda batch: round(
                1e9 * largest_s * SHAPES[shape](batch) * slower() * slower_at(batch)
            ),
        )
        began_s = clock.seconds()
        how = replace(PROTOCOLS[protocol], time_limit_s=limit_s)
        path = tmp_path / f"{limit_s}"
        run_sweep(
            Here(workload), batches, how, path, report, clock_s=clock.seconds, probe_s=probe_s
        )
        return open_recording(path), clock.seconds() - began_s

    return run


def rounds_of(recording):
    """Number of rounds with an unprofiled step, by size."""
    steps = recording.frame("steps")
    return steps[~steps["profiled"]].groupby("batch")["round"].nunique().to_dict()


@pytest.mark.first_rows(6, in_ci=15)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("largest_s", [19.9, 12.0, 8.0, 5.0, 3.5, 2.0, 1.3, 0.7])
def test_a_sweep_ends_within_its_limit_whatever_a_step_takes(sweep, largest_s, shape):
    recording, took_s = sweep(largest_s, shape)
    rounds = rounds_of(recording)
    assert took_s <= 1.1 * LIMIT_S
    assert 32 in rounds
    needed = by_need(BATCHES)[:3]
    if (
        3 * 2 * largest_s * sum(map(SHAPES[shape], needed)) < 0.9 * LIMIT_S
    ):  # one discarded step in each visit
        assert min(rounds.get(size, 0) for size in needed) >= 3
    left_out = {one["batch"] for one in recording.meta["unmeasured"]}
    assert left_out == set(BATCHES) - rounds.keys()
    assert {one["why"] for one in recording.meta["unmeasured"]} <= {LEFT_OUT}


@pytest.mark.first_rows(1, in_ci=3)
@pytest.mark.parametrize("largest_s", [5.0, 1.5, 0.3, 0.02, 0.001])
def test_a_limit_holds_beside_a_compiler(sweep, largest_s):
    """A step takes up to three times as long as the one before, at any time."""
    random = np.random.default_rng(0)
    _, took_s = sweep(largest_s, slower=lambda: random.choice([1.0, 1.0, 1.0, 1.5, 2.0, 3.0]))
    assert took_s <= 1.1 * LIMIT_S


@pytest.mark.first_rows(1, in_ci=4)
@pytest.mark.parametrize(
    ("largest_s", "limit_s"),
    [(1.3, 5.0), (1.3, 27.0), (0.01, 4.0), (0.001, 3.0), (0.1, 10.0), (9.0, 300.0)],
)
def test_a_limit_of_any_length_holds(sweep, largest_s, limit_s):
    _, took_s = sweep(largest_s, limit_s=limit_s, protocol="quick")
    assert took_s <= 1.1 * limit_s


@pytest.mark.first_rows(1, in_ci=3)
@pytest.mark.parametrize(
    ("largest_s", "conversion_s"), [(1.3, 6.0), (2.0, 5.0), (0.3, 4.0), (0.04, 8.0), (0.04, 3.0)]
)
def test_a_limit_holds_where_a_profile_takes_long_to_convert(sweep, largest_s, conversion_s):
    """A step of 25 ms with 20,000 operators took 8 s for each profile, and a sweep of 60 s 89."""
    recording, took_s = sweep(largest_s, conversion=conversion_s)
    assert took_s <= 1.1 * LIMIT_S
    steps = recording.frame("steps")
    profiled = set(steps.loc[steps["profiled"], "batch"])
    assert 32 in profiled
    if 3 * conversion_s < LIMIT_S / 2:
        assert profiled >= {32, 1, 8}
    assert set(rounds_of(recording)) >= {32, 1, 8}
    assert min(rounds_of(recording).values()) >= 3


@pytest.mark.slow
def test_making_a_step_is_no_conversion_of_its_profile(sweep):
    """Each size is compiled for 7 s when it first runs; four of them are half of the time."""
    ran = set()

    def slower(batch):
        ran_before = batch in ran
        ran.add(batch)
        return 1.0 if ran_before else 7.0 / (0.04 * batch / 32)

    recording, took_s = sweep(0.04, slower_at=slower)
    steps = recording.frame("steps")
    assert set(steps.loc[steps["profiled"], "batch"]) == set(BATCHES)
    assert took_s <= 1.1 * LIMIT_S


def on_gpu(monkeypatch):
    """Has visits of a fake workload discard steps for 100 ms, and mark none, as on a GPU."""
    monkeypatch.setattr(visit, "time_marked_steps", lambda *_: ([], []))
    monkeypatch.setattr(here, "warm_up_ns", lambda _: WARM_UP_NS)
    monkeypatch.setattr(visit, "warm_up_ns", lambda _: WARM_UP_NS)


@pytest.mark.first_rows(0, in_ci=2)
@pytest.mark.parametrize("limit_s", [10.0, 12.0, 14.0, 16.0])
def test_the_last_rounds_on_a_gpu_visit_every_size(sweep, monkeypatch, limit_s):
    """Short visits take the time in which the GPU reaches its clocks: unless that is planned, the
    time ends amid rounds.
    """
    on_gpu(monkeypatch)
    recording, took_s = sweep(0.002, limit_s=limit_s, conversion=0.1)
    steps = recording.frame("steps")
    sizes = steps[~steps["profiled"]].groupby("round")["batch"].nunique()
    assert took_s <= 1.1 * limit_s
    assert set(sizes) == {len(BATCHES)}


@pytest.mark.slow
def test_a_gpu_profiles_every_second_round_after_two(sweep, monkeypatch):
    on_gpu(monkeypatch)
    steps = sweep(0.02, limit_s=20.0, conversion=0.05)[0].frame("steps")
    for batch in BATCHES:
        profiled = steps.loc[steps["profiled"] & (steps["batch"] == batch), "round"]
        assert sorted(set(profiled))[:4] == [0, 1, 3, 5]
    timed = steps[~steps["profiled"]]
    assert timed.groupby("round")["batch"].nunique().eq(len(BATCHES)).all()


@pytest.mark.slow
def test_second_profiles_leave_time_to_sizes_that_are_found_later(sweep):
    """Three sizes take 9 of 60 s for their first profiles; all second ones would make it 18."""
    recording, _ = sweep(0.04, batches=(1, 8, 32), conversion=3.0)
    steps = recording.frame("steps")
    profiles = steps[steps["profiled"]].groupby(["batch", "round"]).ngroups
    assert 3 <= profiles <= 5


@pytest.mark.slow
def test_a_few_rounds_of_fast_steps_are_made_however_short_the_limit_is(sweep):
    """Less than three seconds is no time for a profiler; four rounds of 4 ms take less than a tenth
    of it.
    """
    recording, took_s = sweep(0.001, limit_s=0.1, protocol="quick")
    assert min(rounds_of(recording).values()) >= 4
    assert took_s <= 3.3


@pytest.mark.slow
def test_steps_that_fit_are_measured_at_every_size_in_many_rounds(sweep):
    """Two rounds are profiled, as marks time every one."""
    recording, took_s = sweep(0.3)
    assert recording.meta["unmeasured"] == []
    assert min(rounds_of(recording).values()) >= 8
    assert took_s > 0.8 * LIMIT_S
    steps, marks = recording.frame("steps"), recording.frame("marks")
    assert steps[steps["profiled"]].groupby("batch")["round"].nunique().max() == 2
    assert marks.groupby("batch")["round"].nunique().min() >= 8


@pytest.mark.slow
def test_the_largest_size_comes_first_then_the_smallest_and_the_middle(sweep):
    assert by_need(BATCHES) == [32, 1, 8, 16, 4, 2]
    assert by_need((1, 2)) == [2, 1]
    recording, _ = sweep(2.5)
    steps = recording.frame("steps").sort_values("start_ns")
    first = steps[steps["round"] == 0].drop_duplicates("batch")["batch"].tolist()
    assert first[:3] == [32, 1, 8]


def test_sizes_of_which_no_rounds_fit_are_left_out_and_named(sweep):
    """Four rounds of 32, 1 and 8 take the time; those of 16 would not fit any more."""
    recording, _ = sweep(6.0)
    assert [one["batch"] for one in recording.meta["unmeasured"]] == [
        2,
        4,
        16,
    ] or 16 not in rounds_of(recording)
    for one in recording.meta["unmeasured"]:
        assert (one["why"], one["detail"]) == (LEFT_OUT, "4 rounds of it take longer")


@pytest.mark.slow
@pytest.mark.parametrize(("limit_s", "largest_s"), [(10.0, 0.1), (10.0, 0.15), (12.0, 0.18)])
def test_probes_take_what_all_sizes_that_were_asked_for_leave(sweep, limit_s, largest_s):
    """Probes were made, and one to two of these sizes had no data."""
    recording, _ = sweep(largest_s, limit_s=limit_s, probe_s=limit_s / 8)
    assert recording.meta["unmeasured"] == []
    assert min(rounds_of(recording).values()) >= 3


def test_nothing_is_probed_where_a_size_that_was_asked_for_is_left_out(sweep):
    recording, _ = sweep(0.7, limit_s=8.0, probe_s=1.4)
    assert recording.meta["unmeasured"]
    assert "probes" not in recording.meta


@pytest.mark.first_rows(1, in_ci=2)
@pytest.mark.parametrize("largest_s", [5.0, 2.0, 0.7])
def test_the_time_left_falls_and_what_fits_is_said(sweep, largest_s):
    """Progress counts the visits of the first round, which profile and take far longer than later
    ones.
    """
    reports = []
    recording, _ = sweep(largest_s, report=reports.append)
    ends_s = [one.elapsed_s + max(one.expected_s - one.elapsed_s, 0.0) for one in reports]
    assert {one.expected_s for one in reports} == {LIMIT_S}
    assert max(ends_s) <= 1.1 * LIMIT_S
    made = rounds_of(recording)
    if largest_s == 5.0:
        assert reports[0].allows is None  # before the first round has ended
        sizes = ", ".join(map(str, sorted(made)))
        assert reports[-1].allows == f"about {max(made.values())} rounds of {sizes}"


@pytest.mark.slow
def test_a_sweep_without_a_limit_makes_all_its_rounds(sweep):
    recording, took_s = sweep(5.0, limit_s=None, protocol="addfor")
    assert set(rounds_of(recording).values()) == {10}
    assert took_s > LIMIT_S


@ask_each(
    ("step_s", "sizes", "trials"),
    [
        # 32 takes 0.6 s at most: one trial tells it
        (lambda size: 0.02 * size, (1, 2, 4, 8, 16, 32), [1]),
        (lambda size: 0.1 + 0.017 * size, (1, 2, 4, 8, 16, 32), [1, 2, 4, 8, 16]),
        # 32 takes 0.9 s
        (lambda size: 0.1 + 0.025 * size, (1, 2, 4, 8, 16), [1, 2, 4, 8, 16, 32]),
        (lambda size: 3.0 * size, (1, 2, 4), [1]),
        (lambda size: 0.0, (1, 2, 4, 8, 16, 32), [1]),  # it failed
    ],
)
def test_default_sizes_end_where_a_step_is_too_slow_for_the_time(step_s, sizes, trials):
    tried = []

    def trial(size):
        tried.append(size)
        return step_s(size)

    assert sizes_by_speed((1, 2, 4, 8, 16, 32), trial, 60.0) == sizes
    assert tried == trials
