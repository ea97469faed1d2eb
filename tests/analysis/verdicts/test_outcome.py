"""Outcomes of experiments, from rows with known times: what is measured, the family of tests, and
the early end.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.verdicts.outcome import is_settled
from curvescope.analysis.verdicts.rule import LEVELLED, TOO_SLOW
from curvescope.analysis.verdicts.shape import shape
from curvescope.analysis.verdicts.words import Verdict
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.experiments import Scope, Stage

from ...experiments.planted_experiments import FACTS, FC6_MS, experiment, outcomes_of, rows_of
from ...tables import ask_each

OF_SHARE = {
    share: {**FC6_MS[None], 4: FC6_MS[None][4] - share * 3.5 / 3} for share in (0.0, 0.2, 0.5, 0.9)
}  # of -3.5 ms


def outcomes(one, times_ms=None, earlier=(), **options):
    return outcomes_of(one, rows_of(one, times_ms or FC6_MS, **options), FACTS, earlier)


def test_fc6_bends_through_mkl_and_not_through_onednn():
    # 15.1 - 3 * 9.6 + 2 * 5.1 = -3.5; through oneDNN 8.6 - 3 * 7.4 + 2 * 6.9 = +0.2
    as_is, onednn = outcomes(experiment())
    assert as_is.value.value == pytest.approx(-3.5, abs=0.3)
    assert onednn.changed.value == pytest.approx(0.2, abs=0.3)
    assert onednn.removed.value == pytest.approx(-3.7, abs=0.3)
    assert onednn.taken.value == pytest.approx(3.7 / 3.5, abs=0.1)
    assert (as_is.verdict, onednn.verdict) == (Verdict.UNTESTED, Verdict.CONFIRMED)
    # at 4, which is the slow one of the three
    assert onednn.gain.value == pytest.approx(1 - 7.4 / 9.6, abs=0.02)
    assert onednn.gain.low < 1 - 7.4 / 9.6 < onednn.gain.high


@ask_each(
    ("padded_ms", "saved_ms"),
    [({16: 24.0, 20: 24.0, 24: 24.0}, 12.0), ({16: 28.0, 20: 30.0, 24: 32.0}, 0.0)],
)
def test_a_levelling_factor_saves_what_it_makes_faster(padded_ms, saved_ms):
    """The bend is 16 - 2·30 + 24 = -20 ms: 12 of it go as batch 20 takes 24 ms, 20 as the others
    take longer.
    """
    padding = experiment(
        factors=("padded_batch",),
        functional=((16, 1.0), (20, -2.0), (24, 1.0)),
        batches=(16, 20, 24),
    )
    times = {None: {16: 16.0, 20: 30.0, 24: 24.0}, "padded_batch": padded_ms}
    _, padded = outcomes(padding, times, noise=0.002)
    assert padded.saved_ms == pytest.approx(saved_ms, abs=0.2)
    assert padded.taken.value == pytest.approx(1.0, abs=0.05)
    assert (padded.verdict, padded.reason) == (
        (Verdict.CONFIRMED, None) if saved_ms else (Verdict.UNDECIDED, LEVELLED)
    )


@ask_each(
    ("others", "verdict", "reason"),
    [
        ({2: 8.7, 4: 11.2}, Verdict.CONFIRMED, None),
        ({2: 7.0, 4: 9.0}, Verdict.REFUTED, None),
        ({2: 14.0, 4: 18.0}, Verdict.UNDECIDED, TOO_SLOW),
    ],
)
def test_a_factor_that_brings_its_cause_about_slows_the_others_by_what_the_anomaly_is(
    others, verdict, reason
):
    """The bend is 17 - 3·9 + 2·7 = 4; with 8.7 and 11.2 ms it is 17 - 33.6 + 17.4 = 0.8, whatever
    batch 8 takes.
    """
    one = experiment(factors=("smaller_memory",))
    times = {None: {2: 7.0, 4: 9.0, 8: 17.0}, "smaller_memory": {**others, 8: 60.0}}
    found = outcomes(one, times, noise=0.002)[1]
    assert (found.verdict, found.reason) == (verdict, reason)
    assert found.changed.value == pytest.approx(17 - 3 * others[4] + 2 * others[2], abs=0.2)


@pytest.mark.slow
def test_a_machine_that_is_slow_in_a_third_of_the_visits_hides_no_cause():
    """In 31 of 40 experiments of 20 rounds it is confirmed; by means of the central half of the
    rounds it was in 8.
    """
    one = experiment(factors=("onednn", "other_layout"))
    times = {None: FC6_MS[None], "onednn": OF_SHARE[0.9], "other_layout": OF_SHARE[0.0]}
    found = [
        outcomes(one, times, rounds=20, noise=0.01, slow=0.3, seed=seed)[1:] for seed in range(20)
    ]
    assert [onednn.verdict for onednn, _ in found].count(Verdict.CONFIRMED) >= 14
    assert not any(other.verdict == Verdict.CONFIRMED for _, other in found)
    held = sum(onednn.taken.low <= 0.9 <= onednn.taken.high for onednn, _ in found)
    assert held == 20


def with_waits(rows, waited):
    """The rows with counters: visits in `waited`, by (factor, batch, round), take 100 times as long
    and count it.
    """
    visits = zip(rows["factor"], rows["batch"], rows["round"], strict=True)
    slow = np.array(
        [(None if pd.isna(factor) else factor, *visit) in waited for factor, *visit in visits]
    )
    duration_ns = rows["duration_ns"].where(~slow, 100 * rows["duration_ns"])
    return rows.assign(duration_ns=duration_ns, run_queue_wait_ns=duration_ns.where(slow, 0))


def test_disturbed_visits_are_left_out_and_their_rounds_count_for_the_others():
    """Batch 8 was disturbed in rounds 0 to 4 unmodified, batch 4 in rounds 5 and 6 with
    the factor.
    """
    one, undisturbed = experiment(), outcomes(experiment())[1]
    rows = rows_of(one, FC6_MS)
    waited = {
        *((None, 8, round_) for round_ in range(5)),
        *(("onednn", 4, round_) for round_ in (5, 6)),
    }
    known, onednn = outcomes_of(one, with_waits(rows, waited), FACTS)
    assert (onednn.verdict, onednn.rounds) == (Verdict.CONFIRMED, undisturbed.rounds)
    assert known.value.value == pytest.approx(-3.5, abs=0.3)
    assert onednn.taken.value == pytest.approx(undisturbed.taken.value, abs=0.1)
    assert onednn.taken.high - onednn.taken.low > undisturbed.taken.high - undisturbed.taken.low
    unknown = outcomes_of(one, with_waits(rows, waited).drop(columns="run_queue_wait_ns"), FACTS)[1]
    assert unknown.taken.high - unknown.taken.low > 10 * (onednn.taken.high - onednn.taken.low)


def test_a_factor_that_makes_threads_wait_costs_the_others_no_visit():
    """All runs of one factor wait, and are used; of the other factor one visit is set aside."""
    one = experiment(factors=("onednn", "one_thread"))
    times = {**FC6_MS, "one_thread": FC6_MS[None]}
    slow = {("one_thread", batch, round_) for batch in FC6_MS[None] for round_ in range(10)}
    _, onednn, threads = outcomes_of(
        one, with_waits(rows_of(one, times), slow | {("onednn", 8, 3)}), FACTS
    )
    assert threads.changed_ms[0].value > 50 * threads.times_ms[0].value
    assert onednn.gain.value == pytest.approx(1 - 7.4 / 9.6, abs=0.02)
    assert onednn.verdict == Verdict.CONFIRMED


@pytest.mark.slow
@ask_each(
    ("stage", "verdict"), [(Stage.CONFIRM, Verdict.UNDECIDED), (Stage.SCREEN, Verdict.CONFIRMED)]
)
def test_what_was_tried_before_on_fresh_rounds_counts_in_the_correction(stage, verdict):
    """A screen confirms nothing, and the rounds after it know nothing of it."""
    names = [f"factor{i}" for i in range(30)]
    times = dict.fromkeys(names, FC6_MS[None]) | FC6_MS
    tried = outcomes(experiment(0, stage, tuple(names)), times)
    confirm = experiment(1)
    noisy = {"rounds": 6, "noise": 0.04}
    _, alone = outcomes(confirm, times, **noisy)
    _, among_many = outcomes(confirm, times, tried, **noisy)
    assert alone.taken == among_many.taken
    assert (alone.verdict, among_many.verdict) == (Verdict.CONFIRMED, verdict)


def test_an_interrupted_experiment_uses_its_complete_rounds():
    one = experiment(done=False)
    rows = rows_of(one, FC6_MS)
    rows = rows[~((rows["round"] == 9) & (rows["factor"] == "onednn") & (rows["batch"] == 8))]
    _, onednn = outcomes_of(one, rows, {})
    assert onednn.rounds == 9
    _, nothing = outcomes_of(one, rows[:0], {})
    assert (nothing.verdict, nothing.reason) == (
        Verdict.UNTESTED,
        "the experiment did not reach it",
    )


@pytest.mark.slow
def test_nothing_is_confirmed_where_nothing_is():
    line = {
        name: {2: 7.0, 4: 11.0, 8: 19.0} for name in (None, "onednn", "one_thread", "other_layout")
    }
    verdicts = [
        outcome.verdict
        for seed in range(40)
        for outcome in outcomes(
            experiment(factors=("onednn", "one_thread", "other_layout")), line, seed=seed
        )[1:]
    ]
    assert verdicts.count(Verdict.CONFIRMED) == 0


@ask_each(
    ("shares", "noise", "decided"),
    [
        ((0.9, 0.0), 0.005, True),
        ((0.9, 0.5), 0.005, False),  # the second may be either
        ((0.9,), 0.1, False),
    ],
)
def test_an_experiment_is_settled_where_no_round_would_change_a_verdict(shares, noise, decided):
    names = ("onednn", "other_layout")[: len(shares)]
    one = experiment(factors=names)
    times = {
        None: FC6_MS[None],
        **{name: OF_SHARE[share] for name, share in zip(names, shares, strict=True)},
    }
    assert is_settled(one, rows_of(one, times, rounds=10, noise=noise)) == decided


def test_a_factor_that_could_not_be_changed_keeps_no_experiment_open():
    one = experiment(
        factors=("onednn", "other_layout"), untested={"other_layout": "it is no product"}
    )
    assert is_settled(
        one, rows_of(one, {None: FC6_MS[None], "onednn": OF_SHARE[0.9]}, rounds=10, noise=0.005)
    )
    rows = rows_of(one, {None: FC6_MS[None], "onednn": OF_SHARE[0.9]}, rounds=10, noise=0.005)
    assert not is_settled(replace(one, factors=("other_layout",)), rows)


@pytest.mark.slow
def test_looks_at_an_experiment_that_runs_confirm_no_more_half_shares_by_chance():
    """A share of a half is on the threshold: 1 in 40 is confirmed by chance, at looks and without
    them.
    """
    one, looks = experiment(), (10, 15, 23, 35)
    early = 0
    for seed in range(8):
        rows = rows_of(
            one, {None: FC6_MS[None], "onednn": OF_SHARE[0.5]}, 35, 0.05, per_visit=1, seed=seed
        )
        early += any(is_settled(one, rows[rows["round"] < rounds]) for rounds in looks)
    assert early == 0


@ask_each(("claimed_ms", "decided"), [(None, False), (-1.5, True), (-2.4, False), (-20.0, True)])
def test_a_factor_whose_cause_claims_a_part_is_settled_by_what_it_claims(claimed_ms, decided):
    """It takes away 0.35 of -3.5 ms, -1.2 ms: most of 1.5, about half of 2.4, and less than a fifth
    of 20.
    """
    one = experiment(factors=("onednn",), scope=Scope.STEP, layer=None, phase=None)
    changed = {**FC6_MS[None], 4: FC6_MS[None][4] - 0.35 * 3.5 / 3}
    rows = rows_of(one, {None: FC6_MS[None], "onednn": changed}, rounds=24, noise=0.002)
    claims = {} if claimed_ms is None else {(one.functional, "onednn"): claimed_ms}
    assert is_settled(one, rows, claims) == decided


@ask_each("name", ["replayed_operators", "cold_caches"])
def test_a_factor_that_removes_no_whole_cause_is_settled_by_its_share_whatever_is_claimed(name):
    one = experiment(factors=(name,), scope=Scope.STEP, layer=None, phase=None)
    rows = rows_of(one, {None: FC6_MS[None], name: OF_SHARE[0.5]}, rounds=24, noise=0.002)
    claims = {(one.functional, name): -0.1}
    assert is_settled(one, rows, claims)
    assert not is_settled(one, rows, claims, FACTS)


@ask_each(
    ("cost_ms", "kind", "at", "period"),
    [
        (lambda b: 5.0 + b, "straight", None, None),
        (lambda b: 5.0 + b + 4.0 * (b >= 6), "jump", 6, None),
        (lambda b: 5.0 + b - 4.0 * (b >= 6), "jump", 6, None),
        (lambda b: 8.0 * -(-b // 4), "staircase", None, 4),
        (lambda b: 5.0 + 0.5 * b**1.5, "curve", None, None),
    ],
)
def test_the_shape_on_a_finer_grid(cost_ms, kind, at, period):
    one = experiment(0, Stage.GRID, (), batches=tuple(range(2, 18)))
    rows = rows_of(one, {None: cost_ms}, noise=0.01)
    (alone,) = outcomes_of(one, rows, {})
    found = shape(alone, rows, Axis("tokens"))
    assert (found.kind, found.at, found.period) == (kind, at, period)
    assert period is None or found.sentence.endswith(f"every {period} tokens.")


@ask_each("factors", [["onednn"], [None], ["onednn", None]])
def test_times_below_the_clocks_resolution_make_no_warning(factors):
    one = experiment()
    rows = rows_of(one, {None: {2: 2.0, 4: 4.0, 8: 8.0}, "onednn": {2: 1.0, 4: 2.0, 8: 4.0}})
    of_sides = rows["factor"].isin(factors) | (rows["factor"].isna() & (None in factors))
    rows.loc[of_sides & (rows["batch"] == 2), "duration_ns"] = 0
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        changed = outcomes_of(one, rows, FACTS)[-1]
    assert changed.gains[1].value == pytest.approx(0.5, abs=0.02)
