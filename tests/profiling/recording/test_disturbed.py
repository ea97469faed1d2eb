"""Which visits are set aside: by what their steps count, never by their time."""

import itertools

import pandas as pd
import pytest

from curvescope.profiling.recording import disturbed
from curvescope.profiling.recording.disturbed import (
    SET_ASIDE,
    disturbances,
    is_disturbed,
    most_disturbed,
    select_used_steps,
    with_set_aside,
)

from ...tables import ask_each

ROUNDS, BATCHES, STEP_NS = 6, (1, 2), 10_000_000
QUIET = {
    "run_queue_wait_ns": 50_000,
    "major_faults": 0,
    "sm_clock_hz": 1_980_000_000,
    "throttle_reasons": "idle",
}


def steps_of(changed=(), rounds=ROUNDS, batches=BATCHES, **columns):
    """Two unprofiled steps and a profiled one per visit; `changed` has counters by
    (batch, round).
    """
    rows = []
    for (round_, batch), profiled in itertools.product(
        itertools.product(range(rounds), batches), (False, False, True)
    ):
        counted = (
            {**QUIET, **dict(changed).get((batch, round_), {})}
            if not profiled
            else dict.fromkeys(QUIET)
        )
        rows.append(
            {
                "batch": batch,
                "round": round_,
                "profiled": profiled,
                "duration_ns": STEP_NS,
                **counted,
            }
        )
    return pd.DataFrame(rows).assign(**columns)


def aside(steps):
    flagged = with_set_aside(steps)
    return set(
        flagged.loc[flagged[SET_ASIDE], ["batch", "round"]].itertuples(index=False, name=None)
    )


@ask_each(
    ("counted", "reason"),
    [
        ({"run_queue_wait_ns": 600_000}, "threads waited for a core for more than 5 % of the time"),
        ({"throttle_reasons": "sw_power_cap|hw_thermal"}, "the GPU lowered its clock"),
        ({"sm_clock_hz": 1_755_000_000}, "the GPU lowered its clock"),
        (
            {"major_faults": 6},
            "pages came from a disk, e.g. swapped ones, for more than 5 % of the time",
        ),
    ],
)
def test_each_counter_sets_its_visit_aside_with_its_profiled_steps(counted, reason):
    steps = steps_of({(2, 3): counted})
    assert aside(steps) == {(2, 3)}
    assert len(select_used_steps(steps)) == len(steps) - 3
    found = disturbances(steps)
    assert (found.visits, found.disturbed, found.set_aside, found.prevail) == (12, 1, True, False)
    assert found.sentence == f"1 of 12 visits set aside: {reason}, in round 4."


def test_what_a_quiet_machine_counts_and_time_alone_set_nothing_aside():
    quiet = [
        {"run_queue_wait_ns": 490_000},
        {"sm_clock_hz": 1_900_000_000},
        {"major_faults": 4},
        dict.fromkeys(QUIET),
    ]
    quiet += [{"throttle_reasons": "sw_power_cap|application_clocks"}]  # normal under load
    slow = steps_of()
    slow.loc[(slow["batch"] == 2) & (slow["round"] < 3), "duration_ns"] *= 1000
    uncounted = steps_of().drop(columns=[*QUIET])
    tables = [*(steps_of({(2, 3): counted}) for counted in quiet), slow, uncounted]
    for steps in (*tables, uncounted.assign(run_queue_wait_ns=pd.NA)):
        assert aside(steps) == set()
        assert disturbances(steps) is None
    assert most_disturbed([]) == 0


def test_the_usual_clock_is_that_of_the_same_batch_size():
    """A larger batch runs at a lower clock throughout, which is an answer and no disturbance."""
    slower = {(2, round_): {"sm_clock_hz": 1_500_000_000} for round_ in range(ROUNDS)}
    assert aside(steps_of(slower)) == set()


def test_where_a_batch_size_would_keep_fewer_rounds_all_are_used_and_the_answer_says_so():
    waits = {"run_queue_wait_ns": 20_000_000}
    disturbed_rounds = {(2, round_): waits for round_ in range(4)}
    steps = steps_of(disturbed_rounds)
    assert aside(steps) == set()
    found = disturbances(steps)
    assert (found.disturbed, found.set_aside, found.prevail) == (4, False, True)
    assert found.sentence.startswith("4 of 12 visits disturbed: threads waited for a core")
    assert (
        "in rounds 1 to 4. All are used: fewer than 3 undisturbed rounds are left. Times and ver"
        in found.sentence
    )
    # A minority of which too few rounds are left does not prevail.
    minority = disturbances(steps_of({(2, 0): waits}, rounds=3))
    assert (minority.set_aside, minority.prevail) == (False, False)
    assert minority.sentence.endswith("All are used: fewer than 3 undisturbed rounds are left.")
    enough = steps_of({key: waits for key in disturbed_rounds if key != (2, 3)})
    assert aside(enough) == {(2, 0), (2, 1), (2, 2)}


def test_rounds_that_visited_only_some_batch_sizes_do_not_make_up_for_the_others():
    """T(b) is of the complete rounds, so each batch size needs enough of them."""
    disturbed_rounds = {(2, round_): {"run_queue_wait_ns": 10**9} for round_ in range(4)}
    steps = steps_of(disturbed_rounds, rounds=16)
    focused = steps[(steps["batch"] == 2) | (steps["round"] < ROUNDS)]
    assert aside(steps) == set(disturbed_rounds)
    assert aside(focused) == set()


def test_the_only_profiles_of_a_size_are_kept_where_its_times_are_set_aside():
    """They split its time; without them it could not be explained at all."""
    waits = {"run_queue_wait_ns": 10**9}
    steps = steps_of({(2, 0): waits, (2, 1): waits})
    few = steps[~steps["profiled"] | (steps["round"] < 2)]
    kept = select_used_steps(few)
    assert set(kept.loc[~kept["profiled"] & (kept["batch"] == 2), "round"]) == {2, 3, 4, 5}
    assert set(kept.loc[kept["profiled"] & (kept["batch"] == 2), "round"]) == {0, 1}
    one_left = steps[~steps["profiled"] | (steps["round"] < 3)]
    kept = select_used_steps(one_left)
    assert set(kept.loc[kept["profiled"] & (kept["batch"] == 2), "round"]) == {2}


def test_one_visit_is_judged_by_its_rows():
    row = {"profiled": False, "duration_ns": STEP_NS}
    assert is_disturbed([{**row, "run_queue_wait_ns": STEP_NS}])
    assert not is_disturbed([{**row, "run_queue_wait_ns": 0}])
    assert not is_disturbed([row])


def test_a_part_of_a_flagged_table_keeps_what_was_decided_on_the_whole():
    steps = with_set_aside(steps_of({(2, 3): {"run_queue_wait_ns": 10**9}}))
    part = steps[steps["round"].isin([2, 3])]
    assert aside(part) == {(2, 3)}


def test_several_reasons_are_counted_each_the_commonest_first_and_many_rounds_instead_of_listed():
    waits, faults = {"run_queue_wait_ns": 10**9}, {"major_faults": 100}
    changed = {
        (1, 1): faults,
        **dict.fromkeys(((2, 0), (2, 1), (2, 4)), waits),
        (1, 4): {**waits, **faults},
    }
    found = disturbances(steps_of(changed, rounds=12))
    assert (found.disturbed, [(one.visits, one.rounds) for one in found.reasons]) == (
        5,
        [(4, (1, 2, 5)), (2, (2, 5))],
    )
    assert found.sentence == (
        "5 of 24 visits set aside: threads waited for a core for more than 5 % of the time, in "
        "rounds 1, 2 and 5 (4); pages came from a disk, e.g. swapped ones, for more than 5 % of "
        "the time, in rounds 2 and 5 (2)."
    )
    odd = dict.fromkeys(((2, round_) for round_ in range(0, 20, 2)), waits)
    assert disturbances(steps_of(odd, rounds=20)).sentence.endswith(", in 10 rounds from 1 to 19.")


def test_the_most_disturbed_condition_says_how_many_rounds_replace_its_visits():
    waits = {"run_queue_wait_ns": 10**9}
    rows = steps_of({(1, 0): waits, (2, 0): waits, (2, 5): waits}).to_dict("records")
    assert most_disturbed(rows) == 2
    of_factors = [{**row, "factor": "onednn" if row["round"] < 3 else None} for row in rows]
    assert most_disturbed(of_factors) == 1


def test_the_limit_leaves_the_waits_of_a_quiet_machine_and_finds_those_beside_other_work(
    recording_of,
):
    """Of the recording in examples/ no visit waited for 2.3 % of the time."""
    assert disturbances(recording_of("examples/recordings/alexnet-cpu")) is None
    beside = disturbances(recording_of("tests/data/networks/googlenet"))
    assert (beside.visits, beside.disturbed, beside.prevail) == (12, 12, True)
    assert disturbed.MOST_WAITING == 0.05


@pytest.fixture
def recording_of(pytestconfig):
    from curvescope.profiling.recording.store import open_recording

    return lambda path: open_recording(pytestconfig.rootpath / path).frame("steps")
