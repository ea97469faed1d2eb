"""The rule: what is confirmed and refuted, of measurements made by hand of an anomaly of ±10 ms in steps of 100 ms."""

from dataclasses import replace

import pytest

from curvescope.analysis.decompose.functionals import FIXED_COST
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.verdicts.measurement import Measurement
from curvescope.analysis.verdicts.outcome import Outcome
from curvescope.analysis.verdicts.proof import decisive, of_claims, prove_term
from curvescope.analysis.verdicts.rule import (
    LEVELLED,
    ONLY_SCREENED,
    OVERTAKEN,
    TOO_SLOW,
    TOO_WIDE,
    Decision,
    decide,
    ends_early,
    reproduction,
)
from curvescope.analysis.verdicts.words import Reproduction, Verdict
from curvescope.profiling.recording.experiments import Stage

from ...experiments.planted_experiments import FACTS, experiment

CONFIRMED, REFUTED, UNDECIDED = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED
IN_PART = "it removes a part of the cause only"
SURE = 0.0001


def measured(
    low, high, factor="one_thread", *, f=10.0, kind="bend", stage=Stage.CONFIRM, p=SURE, faster_ms=0.0, rounds=10
):
    """What removes a share between `low` and `high` of an anomaly `f`; batch 2 gets faster by `faster_ms`."""
    share = Estimate((low + high) / 2, low, high, p)
    ends = sorted((f * low, f * high))
    functional = ((2, 1.0 if f > 0 else -1.0), (4, -3.0), (8, 1.0))
    time = Estimate(100.0, 99.0, 101.0, 0.0)
    return Measurement(
        experiment=replace(experiment(stage=stage, factors=(factor,), functional=functional), functional_kind=kind),
        factor=factor,
        facts=FACTS.get(factor),
        rounds=rounds,
        batches=(2, 4, 8),
        times_ms=(time, time, time),
        changed_ms=(Estimate(100.0 - faster_ms, 99.0, 101.0, 0.0), time, time),
        value=Estimate(f, f - 1, f + 1, SURE),
        removed=Estimate(f * share.value, *ends, p),
        taken=share,
    )


@pytest.mark.parametrize(
    ("measurement", "decision"),
    [
        (measured(0.55, 0.9), (CONFIRMED, None)),
        (measured(0.55, 0.9, f=-10.0), (CONFIRMED, None)),
        (measured(0.45, 0.9), (UNDECIDED, TOO_WIDE)),
        (measured(0.05, 0.25), (UNDECIDED, TOO_WIDE)),
        (measured(0.0, 0.19), (REFUTED, None)),
        (measured(-0.5, -0.1), (REFUTED, None)),
        (measured(float("-inf"), float("inf")), (UNDECIDED, "without the factor, nothing can be distinguished from 0")),
        (measured(0.55, 0.9, rounds=1), (UNDECIDED, "a single round has no interval")),
        (measured(0.55, 0.9, stage=Stage.SCREEN), (UNDECIDED, ONLY_SCREENED)),
        (measured(0.0, 0.1, stage=Stage.SCREEN), (REFUTED, None)),
        (measured(1.4, 1.8), (UNDECIDED, OVERTAKEN)),
        # An excess that turns into a fixed cost is gone, if the batch size that makes it became faster.
        (measured(1.4, 1.8, kind="excess", faster_ms=6.0), (CONFIRMED, None)),
        (measured(1.4, 1.8, kind="excess", faster_ms=4.0), (UNDECIDED, OVERTAKEN)),
        (measured(0.9, 1.1, "split_batch", faster_ms=4.0), (UNDECIDED, LEVELLED)),
        (measured(0.9, 1.1, "split_batch", faster_ms=6.0), (CONFIRMED, None)),
        # A library that is slower at all batch sizes and has no bend is no faster call.
        (measured(0.9, 1.1, "onednn", faster_ms=4.0), (UNDECIDED, LEVELLED)),
        (measured(0.9, 1.1, "onednn", faster_ms=6.0), (CONFIRMED, None)),
        (measured(0.9, 1.1, "cold_caches"), (CONFIRMED, None)),
        (measured(0.9, 1.6, "cold_caches"), (UNDECIDED, TOO_WIDE)),
        (measured(1.4, 1.8, "cold_caches"), (UNDECIDED, TOO_SLOW)),
        (measured(0.0, 0.1, "cold_caches"), (REFUTED, None)),
        # The host's part: from a fifth of a fixed cost on, at least 2 ms of the step's 100, and it refutes nothing.
        (measured(0.25, 0.4, "replayed_operators", kind=FIXED_COST), (CONFIRMED, None)),
        (measured(0.25, 0.4, "replayed_operators"), (UNDECIDED, TOO_WIDE)),
        (measured(0.55, 0.9, "replayed_operators"), (CONFIRMED, None)),
        (measured(0.0, 0.1, "replayed_operators", kind=FIXED_COST), (UNDECIDED, IN_PART)),
        (
            measured(0.3, 0.9, "replayed_operators", kind=FIXED_COST, f=5.0),
            (UNDECIDED, "what it removes may be under 2 % of the step"),
        ),
    ],
)
def test_a_share_of_the_anomaly_decides(measurement, decision):
    assert decide(measurement, None, [SURE]) == decision


@pytest.mark.parametrize(
    ("family", "verdict"),
    [
        ([0.024], CONFIRMED),
        ([0.026], UNDECIDED),
        # Holm: the second of three counts twice, and no less than the first counts
        ([0.012, 0.008, 0.9], CONFIRMED),
        ([0.012, 0.009, 0.9], UNDECIDED),
        ([0.013, 0.001, 0.9], UNDECIDED),
    ],
)
def test_a_share_is_confirmed_among_the_factors_that_were_tried(family, verdict):
    assert decide(measured(0.55, 0.9), None, family).verdict == verdict


@pytest.mark.parametrize(
    ("measurement", "claim", "decision"),
    [
        (measured(0.2, 0.4), 4.0, (CONFIRMED, None)),  # 3 of 4 ms, though of all only 0.3
        (measured(0.2, 0.4, f=-10.0), -4.0, (CONFIRMED, None)),
        (measured(0.2, 0.4, f=-10.0), 4.0, (REFUTED, None)),  # the opposite of the claim
        (measured(0.1, 0.3), 4.1, (UNDECIDED, TOO_WIDE)),
        (measured(0.0, 0.07), 4.0, (REFUTED, None)),
        (measured(0.0, 0.09), 4.0, (UNDECIDED, TOO_WIDE)),
        (measured(0.05, 1.97, f=63.0), 63.0, (UNDECIDED, TOO_WIDE)),  # 3 to 124 ms of 63 say next to nothing
        (measured(0.9, 1.3), 4.6, (CONFIRMED, None)),
        (measured(0.2, 0.4, stage=Stage.SCREEN), 4.0, (UNDECIDED, ONLY_SCREENED)),
        (measured(1.4, 1.8), 4.0, (UNDECIDED, OVERTAKEN)),
        # Running all sizes alike counts by what it saves of the claim, whatever share of all that is.
        (measured(0.2, 0.4, "padded_batch", faster_ms=2.1), 4.0, (CONFIRMED, None)),
        (measured(0.2, 0.4, "padded_batch", faster_ms=1.9), 4.0, (UNDECIDED, LEVELLED)),
        (measured(0.1, 0.19, "padded_batch"), 2.0, (UNDECIDED, LEVELLED)),
    ],
)
def test_of_complete_steps_the_claim_decides(measurement, claim, decision):
    assert decide(measurement, claim, [SURE, 1.0]) == decision


@pytest.mark.parametrize(
    ("p", "others", "verdict"), [(0.024, 1, CONFIRMED), (0.026, 1, UNDECIDED), (0.026, 0, CONFIRMED)]
)
def test_a_claim_is_confirmed_among_the_factors_that_complete_steps_tried(p, others, verdict):
    outcomes = [of(measured(0.2, 0.4, p=p)), *[of(measured(0.0, 0.9, "kept_memory", p=0.9))] * others]
    assert of_claims(outcomes, {"one_thread": 4.0})[0].verdict == verdict


def of(measurement, verdict=UNDECIDED, reason=None):
    return Outcome.of(measurement, Decision(verdict, reason))


@pytest.mark.parametrize("factor", ["one_thread", "replayed_operators", "smaller_memory"])
def test_a_factor_without_a_claim_keeps_its_verdict_by_share(factor):
    """So does one that removes a part of its cause, or brings it about, whatever the cause claims."""
    outcome = of(measured(0.2, 0.4, factor))
    assert of_claims([outcome], {"replayed_operators": 4.0, "smaller_memory": 4.0}) == [outcome]


@pytest.mark.parametrize(
    ("tests", "early"),
    [
        ([(0.0009, 0.9)], True),
        ([(0.9, 0.0009)], True),
        ([(0.0011, 0.9)], False),
        ([(0.0009, 0.9), (0.0001, 0.9)], False),  # two tests halve the level
        ([(0.0004, 0.9), (0.9, 0.0001)], True),
        ([(0.0001, 0.9), (0.3, 0.6)], False),
        ([], False),  # it estimates, and tests nothing
    ],
)
def test_an_experiment_ends_early_where_every_test_is_clear(tests, early):
    assert ends_early(tests) == early


@pytest.mark.parametrize(
    ("share", "isolated", "expected"),
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
def test_a_term_in_isolation_reproduces_its_share_or_not(share, isolated, expected):
    p = 0.001 if isolated[1] * isolated[2] > 0 else 0.5
    assert reproduction(Estimate(*share, 0.01), Estimate(*isolated, p)) == expected


@pytest.mark.parametrize(
    ("isolated", "verdict", "amount"),
    [
        ((10.0, 9.0, 11.0), CONFIRMED, 0.7 * 12),  # reproduces: 0.7 of the share in the step
        ((5.0, 4.5, 5.5), CONFIRMED, 0.7 * 10),  # partly: what was removed in isolation, no more
        ((0.5, -0.5, 1.5), UNDECIDED, 0.0),
        ((-10.0, -11.0, -9.0), UNDECIDED, 0.0),
    ],
    ids=["reproduces", "partly", "does not", "opposite sign"],
)
def test_a_term_proves_something_if_it_shows_its_share_in_isolation(isolated, verdict, amount):
    term = type("Term", (), {"value": Estimate(12.0, 11.0, 13.0, SURE)})
    p = SURE if isolated[1] * isolated[2] > 0 else 0.5
    unmodified = replace(of(measured(0.6, 0.8)), factor=None, value=Estimate(*isolated, p))
    proof = prove_term([unmodified, of(measured(0.6, 0.8), CONFIRMED)], term, ("one_thread",))
    assert (proof.verdict, proof.amount) == (verdict, pytest.approx(amount))


def test_a_measurement_of_the_other_sign_proves_nothing_of_a_term():
    term = type("Term", (), {"value": Estimate(-12.0, -13.0, -11.0, SURE)})
    unmodified = replace(of(measured(0.6, 0.8)), factor=None, value=Estimate(-10.0, -11.0, -9.0, SURE))
    assert prove_term([unmodified, of(measured(0.6, 0.8), CONFIRMED)], term, ("one_thread",)).verdict == UNDECIDED


def test_the_last_outcome_that_decides_on_fresh_rounds_counts():
    screened, wide = of(measured(0.6, 0.8, stage=Stage.SCREEN)), of(measured(0.4, 0.8))
    refuted, confirmed = of(measured(0.0, 0.1), REFUTED), of(measured(0.6, 0.8), CONFIRMED)
    for outcomes in ([screened, wide], [wide, screened]):
        assert decisive(outcomes)["one_thread"] == wide
    assert decisive([refuted, wide])["one_thread"] == refuted
    assert decisive([refuted, confirmed, screened])["one_thread"] == confirmed


def test_of_complete_steps_the_outcome_that_counts_is_the_one_that_decides_on_the_claim():
    """By share the first one refutes, and more rounds would count for nothing; of 1.9 ms it decides nothing."""
    outcomes = [of(measured(0.0, 0.19), REFUTED), of(measured(0.1, 0.3))]
    assert decisive(outcomes)["one_thread"] == outcomes[0]
    counting = decisive(of_claims(outcomes, {"one_thread": 1.9}))["one_thread"]
    assert (counting.verdict, counting.taken) == (CONFIRMED, outcomes[1].taken)
