"""Outcomes: shares taken away, verdicts, and what a levelling factor proves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from curvescope.analysis.decompose.functionals import FIXED_COST
from curvescope.analysis.decompose.statistics import Estimate, ratio_estimate
from curvescope.analysis.verdicts.outcome import (
    LEVELLED,
    TOO_SLOW,
    Reproduction,
    Verdict,
    outcomes_of,
    reproduction,
    settled,
)
from curvescope.analysis.verdicts.shape import shape
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.experiments import Stage

from ...experiments.planted_experiments import FACTS, FC6_MS, experiment, rows_of

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
    assert onednn.gain.value == pytest.approx(1 - 8.6 / 15.1, abs=0.02)
    assert onednn.gain.low < 1 - 8.6 / 15.1 < onednn.gain.high


def test_threads_do_not_make_the_bend():
    _, one_thread = outcomes(experiment(factors=("one_thread",)))
    # 30.0 - 3 * 19.0 + 2 * 10.1 = -6.8 with one thread: it does not get smaller
    assert one_thread.verdict == Verdict.REFUTED


def test_padding_everything_to_one_size_proves_nothing():
    _, padded = outcomes(experiment(factors=("padded_batch",)))
    assert padded.taken.value == pytest.approx(1, abs=0.1)
    assert (padded.verdict, padded.reason) == (Verdict.UNDECIDED, LEVELLED)


def test_padding_that_makes_the_odd_size_faster_confirms():
    times = {None: {16: 16.0, 20: 30.0, 24: 24.0}, "padded_batch": {16: 16.0, 20: 24.0, 24: 24.0}}
    functional = ((16, 1.0), (20, -2.0), (24, 1.0))
    _, padded = outcomes(experiment(factors=("padded_batch",), functional=functional, batches=(16, 20, 24)), times)
    # 16 - 60 + 24 = -20; padded 16 - 48 + 24 = -8
    assert padded.taken.value == pytest.approx(0.6, abs=0.1)
    assert padded.reason != LEVELLED


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({4: 20.0, 8: 34.0}, Verdict.CONFIRMED), ({4: 25.0, 8: 44.0}, Verdict.UNDECIDED)],
    ids=["larger size faster", "smaller size slower"],
)
def test_an_excess_that_turns_into_a_fixed_cost_is_gone_only_if_the_larger_size_got_faster(changed, verdict):
    """43 - 2 * 20 = 3 ms; without the cause 34 - 40 = -6, the fixed cost that it hid. 44 - 50 is -6 too."""
    functional = ((4, -2.0), (8, 1.0))
    one = replace(experiment(factors=("priority",), functional=functional, batches=(4, 8)), functional_kind="excess")
    _, found = outcomes(one, {None: {4: 20.0, 8: 43.0}, "priority": changed}, noise=0.002)
    assert found.taken.value == pytest.approx(3, abs=0.3)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("others", "verdict", "reason"),
    [
        ({2: 8.7, 4: 11.2}, Verdict.CONFIRMED, None),
        ({2: 7.0, 4: 9.0}, Verdict.REFUTED, None),
        ({2: 14.0, 4: 18.0}, Verdict.UNDECIDED, TOO_SLOW),
    ],
    ids=["as slow as the anomaly says", "unchanged", "far slower"],
)
def test_a_factor_that_brings_its_cause_about_slows_the_others_by_what_the_anomaly_is(others, verdict, reason):
    """The bend is 17 - 3·9 + 2·7 = 4; with 8.7 and 11.2 ms it is 17 - 33.6 + 17.4 = 0.8, whatever batch 8 takes."""
    one = experiment(factors=("smaller_memory",))
    times = {None: {2: 7.0, 4: 9.0, 8: 17.0}, "smaller_memory": {**others, 8: 60.0}}
    found = outcomes(one, times, noise=0.002)[1]
    assert (found.verdict, found.reason) == (verdict, reason)
    assert found.changed.value == pytest.approx(17 - 3 * others[4] + 2 * others[2], abs=0.2)


def test_a_screen_suggests_and_never_confirms():
    _, onednn = outcomes(experiment(stage=Stage.SCREEN))
    assert onednn.taken.low > 0.5
    assert onednn.verdict == Verdict.UNDECIDED
    assert onednn.reason == "only the screen of all changes shows it; fresh rounds have to confirm it"


def test_a_machine_that_is_slow_in_a_third_of_the_visits_hides_no_cause():
    """In 31 of 40 experiments of 20 rounds it is confirmed; by means of the central half of the rounds it was in 8."""
    one = experiment(factors=("onednn", "other_layout"))
    times = {None: FC6_MS[None], "onednn": OF_SHARE[0.9], "other_layout": OF_SHARE[0.0]}
    found = [outcomes(one, times, rounds=20, noise=0.01, slow=0.3, seed=seed)[1:] for seed in range(20)]
    assert [onednn.verdict for onednn, _ in found].count(Verdict.CONFIRMED) >= 14
    assert not any(other.verdict == Verdict.CONFIRMED for _, other in found)
    held = sum(onednn.taken.low <= 0.9 <= onednn.taken.high for onednn, _ in found)
    assert held == 20


@pytest.mark.parametrize(
    ("kind", "share", "verdict"),
    [
        (FIXED_COST, 0.35, Verdict.CONFIRMED),
        (FIXED_COST, 0.1, Verdict.UNDECIDED),
        ("bend", 0.35, Verdict.UNDECIDED),
        ("bend", 0.9, Verdict.CONFIRMED),
    ],
)
def test_a_factor_that_takes_a_part_of_its_cause_away_confirms_a_fixed_cost_from_a_fifth_on(kind, share, verdict):
    one = replace(experiment(factors=("replayed_operators", "onednn")), functional_kind=kind)
    changed = {**FC6_MS[None], 4: FC6_MS[None][4] - share * 3.5 / 3}
    times = {None: FC6_MS[None], "replayed_operators": changed, "onednn": changed}
    _, part, whole = outcomes(one, times, noise=0.003)
    assert part.verdict == verdict
    of_half = Verdict.CONFIRMED if share > 0.5 else Verdict.UNDECIDED
    assert whole.verdict == (of_half if share > 0.2 else Verdict.REFUTED)


def test_a_part_under_2_percent_of_the_step_confirms_nothing():
    """The functional is 13.5 - 3·9 + 2·7 = 0.5 ms; a quarter of it is 1.8 % of the 7 ms at 2."""
    one = replace(experiment(factors=("replayed_operators",)), functional_kind=FIXED_COST)
    as_is = {2: 7.0, 4: 9.0, 8: 13.5}
    times = {None: as_is, "replayed_operators": {**as_is, 8: 13.375}}
    _, part = outcomes(one, times, noise=0.0002)
    assert part.taken.low > 0.2
    assert (part.verdict, part.reason) == (Verdict.UNDECIDED, "what it takes away may be under 2 % of the step")


@pytest.mark.parametrize(("stage", "verdict"), [(Stage.CONFIRM, Verdict.UNDECIDED), (Stage.SCREEN, Verdict.CONFIRMED)])
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


def test_a_factor_that_could_not_be_changed_is_untested_with_the_reason():
    one = experiment(untested={"onednn": "oneDNN runs on CPUs"})
    _, onednn = outcomes(one)
    assert (onednn.verdict, onednn.reason, onednn.taken) == (Verdict.UNTESTED, "oneDNN runs on CPUs", None)


def test_an_interrupted_experiment_uses_its_complete_rounds():
    one = experiment(done=False)
    rows = rows_of(one, FC6_MS)
    rows = rows[~((rows["round"] == 9) & (rows["factor"] == "onednn") & (rows["batch"] == 8))]
    _, onednn = outcomes_of(one, rows, {})
    assert onednn.rounds == 9
    _, nothing = outcomes_of(one, rows[:0], {})
    assert (nothing.verdict, nothing.reason) == (Verdict.UNTESTED, "the experiment did not reach it")


def test_nothing_is_confirmed_where_nothing_is():
    line = {name: {2: 7.0, 4: 11.0, 8: 19.0} for name in (None, "onednn", "one_thread", "other_layout")}
    verdicts = [
        outcome.verdict
        for seed in range(40)
        for outcome in outcomes(experiment(factors=("onednn", "one_thread", "other_layout")), line, seed=seed)[1:]
    ]
    assert verdicts.count(Verdict.CONFIRMED) == 0


def test_the_ratio_of_two_statistics_by_hand():
    """Fieller for independent normals 6 ± 1 and 12 ± 1 of very many rounds, with z = 1.96: (72 ∓ √(72² − 140.16·32.16))
    over 140.16 = 0.328 and 0.699.
    """
    random = np.random.default_rng(0)
    drawn = tuple(random.standard_normal(400_000) for _ in range(2))
    ratio = ratio_estimate((6.0, 12.0), drawn, 1_000_000, 12.0)
    assert ratio.value == 0.5
    assert (ratio.low, ratio.high) == (pytest.approx(0.328, abs=0.003), pytest.approx(0.699, abs=0.003))
    assert ratio_estimate((6.0, 1.5), drawn, 1_000_000, 12.0).low == -np.inf


@pytest.mark.parametrize(
    ("share", "alone", "expected"),
    [
        ((-9, -18, -1), (-8.0, -8.5, -7.5), Reproduction.REPRODUCES),
        ((-9, -18, 1), (-8.0, -8.5, -7.5), Reproduction.REPRODUCES),
        ((-9, -10, -8), (-3.0, -3.5, -2.5), Reproduction.PARTLY),
        ((-9, -10, -8), (0.1, -0.5, 0.7), Reproduction.NOT),
        ((-9, -10, -8), (5.0, 4.0, 6.0), Reproduction.NOT),
        ((-9, -10, -8), (-6.0, -14.0, 2.0), Reproduction.UNDECIDED),
        # a share of -30 to +50 says nothing: a small measurement is a part of it, and no more
        ((10.0, -30.0, 50.0), (1.0, 0.9, 1.1), Reproduction.PARTLY),
    ],
)
def test_a_term_alone_reproduces_its_share_or_not(share, alone, expected):
    p = 0.001 if alone[1] * alone[2] > 0 else 0.5
    assert reproduction(Estimate(*share, 0.01), Estimate(*alone, p)) == expected


@pytest.mark.parametrize(
    ("cost_ms", "kind", "at", "period"),
    [
        (lambda b: 5.0 + b, "straight", None, None),
        (lambda b: 5.0 + b + 4.0 * (b >= 6), "jump", 6, None),
        (lambda b: 5.0 + b - 4.0 * (b >= 6), "jump", 6, None),
        (lambda b: 8.0 * -(-b // 4), "staircase", None, 4),
        (lambda b: 5.0 + 0.5 * b**1.5, "curve", None, None),
    ],
    ids=["straight", "jump up", "fall", "staircase", "curve"],
)
def test_the_shape_on_a_finer_grid(cost_ms, kind, at, period):
    one = experiment(0, Stage.GRID, (), batches=tuple(range(2, 18)))
    rows = rows_of(one, {None: cost_ms}, noise=0.01)
    (alone,) = outcomes_of(one, rows, {})
    found = shape(alone, rows, Axis("tokens"))
    assert (found.kind, found.at, found.period) == (kind, at, period)
    assert period is None or found.sentence.endswith(f"every {period} tokens.")


@pytest.mark.parametrize(
    ("shares", "noise", "decided"),
    [
        ((0.9,), 0.005, True),
        ((0.0,), 0.005, True),
        ((0.9, 0.0), 0.005, True),
        ((0.9, 0.5), 0.005, False),  # the second may be either
        ((0.2,), 0.005, False),
        ((0.9,), 0.1, False),
        ((), 0.005, False),  # it estimates, and tests nothing
    ],
)
def test_an_experiment_is_settled_where_no_round_would_change_a_verdict(shares, noise, decided):
    names = ("onednn", "other_layout")[: len(shares)]
    one = experiment(factors=names)
    times = {None: FC6_MS[None], **{name: OF_SHARE[share] for name, share in zip(names, shares, strict=True)}}
    assert settled(one, rows_of(one, times, rounds=10, noise=noise)) == decided


def test_a_factor_that_could_not_be_changed_keeps_no_experiment_open():
    one = experiment(factors=("onednn", "other_layout"), untested={"other_layout": "it is no product"})
    assert settled(one, rows_of(one, {None: FC6_MS[None], "onednn": OF_SHARE[0.9]}, rounds=10, noise=0.005))
    rows = rows_of(one, {None: FC6_MS[None], "onednn": OF_SHARE[0.9]}, rounds=10, noise=0.005)
    assert not settled(replace(one, factors=("other_layout",)), rows)


def test_looks_at_an_experiment_that_runs_confirm_no_more_half_shares_by_chance():
    """A share of a half is on the threshold: 1 in 40 is confirmed by chance, at looks and without them."""
    one, looks = experiment(), (10, 15, 23, 35)
    early = 0
    for seed in range(8):
        rows = rows_of(one, {None: FC6_MS[None], "onednn": OF_SHARE[0.5]}, 35, 0.05, per_visit=1, seed=seed)
        early += any(settled(one, rows[rows["round"] < rounds]) for rounds in looks)
    assert early == 0


@pytest.mark.parametrize(("claimed_ms", "decided"), [(None, False), (-1.5, True), (-2.2, False), (-20.0, True)])
def test_a_factor_whose_cause_claims_a_part_is_settled_by_what_it_claims(claimed_ms, decided):
    """It takes away 0.35 of -3.5 ms, -1.2 ms: most of 1.5, about half of 2.2, and less than a fifth of 20."""
    one = experiment(factors=("onednn",))
    changed = {**FC6_MS[None], 4: FC6_MS[None][4] - 0.35 * 3.5 / 3}
    rows = rows_of(one, {None: FC6_MS[None], "onednn": changed}, rounds=12, noise=0.004)
    claims = {} if claimed_ms is None else {(one.functional, "onednn"): claimed_ms}
    assert settled(one, rows, claims) == decided


@pytest.mark.parametrize("name", ["replayed_operators", "cold_caches"])
def test_a_factor_that_removes_no_whole_cause_is_settled_by_its_share_whatever_is_claimed(name):
    one = experiment(factors=(name,))
    rows = rows_of(one, {None: FC6_MS[None], name: OF_SHARE[0.5]}, rounds=12, noise=0.004)
    claims = {(one.functional, name): -0.1}
    assert settled(one, rows, claims)
    assert not settled(one, rows, claims, FACTS)
