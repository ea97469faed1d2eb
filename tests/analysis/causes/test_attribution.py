"""Causes after experiments: confirmed ones take what was measured, refuted ones nothing, and
amounts add up.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from curvescope.analysis.causes import (
    NOT_SIGNIFICANT,
    UNEXPLAINED,
    TermCause,
    factors,
    interventions,
)
from curvescope.analysis.causes.attribution import claim_steps
from curvescope.analysis.causes.totals import totals
from curvescope.analysis.decompose.functionals import excess, fixed_cost
from curvescope.analysis.decompose.terms import KERNELS, Key
from curvescope.analysis.verdicts.proof import spread
from curvescope.analysis.verdicts.rule import LEVELLED
from curvescope.analysis.verdicts.words import Verdict
from curvescope.experiments.factors import FACTORS, names_of
from curvescope.profiling.recording.experiments import Scope, Stage

from ...experiments.planted_experiments import FACTS, experiment, outcomes_of, rows_of
from .planted_causes import CPU, Plan, explained

SLOW_FROM_16 = {4: 12.0, 8: 24.0, 16: 96.0}
PROPORTIONAL = {4: 12.0, 8: 24.0, 16: 48.0}


def totals_of(cause, experiments=(), functional=None, **others):
    """The causes of a planted sweep with experiments, (experiment, times) of each; of two totals
    the confirmed one.
    """
    measured = [
        o
        for one, times in experiments
        for o in outcomes_of(one, rows_of(one, times, noise=0.01), FACTS)
    ]
    explanation = explained(cause, functional, measured=tuple(measured), **others)
    scale = sum(abs(share.value.value) for share in explanation.shares)
    total = math.fsum(cause.amount for cause in explanation.causes)
    assert total == pytest.approx(explanation.value.value, rel=1e-9, abs=1e-12 * scale)
    confirmed_last = sorted(
        explanation.causes, key=lambda total: total.verdict == Verdict.CONFIRMED
    )
    return {total.cause: total for total in confirmed_last}


def on_conv3(factor, stage=Stage.CONFIRM, **changed):
    functional = changed.pop("functional", excess(8, 16))
    of = {"functional": functional.coefficients, "functional_kind": functional.kind}
    options = {**of, "batches": (8, 16), "layer": "conv3", "phase": "backward", **changed}
    return experiment(0, stage, (factor,), **options)


def on_the_step(factor, functional=None):
    return on_conv3(
        factor,
        scope=Scope.STEP,
        layer=None,
        phase=None,
        functional=functional or fixed_cost(4, 8),
        batches=(4, 8),
    )


def test_every_factor_belongs_to_one_cause_and_runs_somewhere():
    for scope in (Scope.TERM, Scope.STEP):
        # What only the plan of remedies tries belongs to no cause.
        tried = {name for name in names_of(scope) if (step := FACTORS[name].step) and step.common}
        assert set(factors(scope)) <= set(names_of(scope)) <= {*factors(scope), *tried}
        named = [name for one in interventions().values() for name in getattr(one, scope)]
        assert len(named) == len(set(named))
    for cause, one in interventions().items():
        tested = one.term or one.step or one.shared
        assert one.expected.endswith("."), cause
        assert bool(tested) != bool(one.untested), cause


def test_a_cause_without_evidence_is_confirmed_by_its_experiment():
    times = {None: SLOW_FROM_16, "onednn": PROPORTIONAL}
    causes = totals_of("unexplained", [(on_conv3("onednn"), times)])
    slow = causes["slow library call"]
    assert slow.verdict == Verdict.CONFIRMED
    # 96 - 2 * 24 = 48, all of it taken away
    assert slow.amount == pytest.approx(48, rel=0.05)
    evidence = slow.terms[0].claim.evidence[0]
    assert (evidence.before, evidence.after) == (
        pytest.approx(48, rel=0.1),
        pytest.approx(0, abs=2),
    )
    assert abs(causes.get(UNEXPLAINED, slow).amount) < 50


def test_the_weights_of_one_expert_for_all_confirm_or_refute_the_cause():
    """The calls and their tokens stay, so what is left is no matter of weights."""
    many = {4: 40.0, 8: 40.0, 16: 160.0}
    confirmed = totals_of(
        "weights of experts",
        [(on_conv3("one_expert"), {None: many, "one_expert": {4: 4.0, 8: 8.0, 16: 16.0}})],
    )
    assert confirmed["weights of experts"].verdict == Verdict.CONFIRMED
    refuted = totals_of(
        "weights of experts", [(on_conv3("one_expert"), {None: many, "one_expert": many})]
    )
    assert "weights of experts" not in refuted


def test_a_slow_library_call_is_suspected_until_another_way_is_faster():
    causes = totals_of("slow library call")
    assert "slow library call" not in causes
    unexplained = causes[UNEXPLAINED]
    # 96 - 2 * 24 = 48
    assert unexplained.amount == pytest.approx(48, rel=0.05)
    assert unexplained.terms[0].claim.cause == "slow library call"
    assert unexplained.reason == (
        "a slow library call is suspected and not confirmed; if it is one, through another "
        "library, or with operands stored in another order, the term's share goes away"
    )


def test_a_cause_that_the_time_left_untested_says_so():
    causes = totals_of("slow library call", waits_for_time=True)
    assert "not confirmed (the time for experiments was up)" in causes[UNEXPLAINED].reason
    assert causes["optimizer work"].reason == "the time for experiments was up"


def test_a_refuted_cause_loses_its_claim():
    same = {None: SLOW_FROM_16, "onednn": SLOW_FROM_16}
    causes = totals_of("slow library call", [(on_conv3("onednn"), same)])
    assert "slow library call" not in causes
    assert causes[UNEXPLAINED].amount == pytest.approx(48, rel=0.05)


def test_a_term_that_shows_nothing_alone_proves_nothing():
    nothing = {None: PROPORTIONAL, "onednn": {4: 12.0, 8: 30.0, 16: 48.0}}
    causes = totals_of("slow library call", [(on_conv3("onednn"), nothing)])
    assert "(the term in isolation does not show its share)" in causes[UNEXPLAINED].reason


def test_splitting_takes_what_a_more_telling_experiment_leaves():
    both = [
        (on_conv3("split_batch"), {None: SLOW_FROM_16, "split_batch": PROPORTIONAL}),
        (on_conv3("onednn"), {None: SLOW_FROM_16, "onednn": {4: 12.0, 8: 24.0, 16: 56.0}}),
    ]
    causes = totals_of("unexplained", both)
    # 48 → 8: oneDNN takes 40, and splitting the 8 that it leaves
    assert causes["slow library call"].amount == pytest.approx(40, rel=0.05)
    assert causes["size of one call"].amount == pytest.approx(8, rel=0.3)


@pytest.mark.parametrize(
    ("planted_cause", "owner"),
    [("algorithm switch", "algorithm switch"), ("unexplained", "slow library call")],
)
def test_a_library_at_all_sizes_tests_the_switch_where_kernels_differ(planted_cause, owner):
    """As it is 14 ms per sample from 16 on, and 3 before; through another library 3 at all."""
    times = {None: {8: 24.0, 16: 112.0}, "no_cudnn": {8: 24.0, 16: 48.0}}
    causes = totals_of(planted_cause, [(on_conv3("no_cudnn"), times)])
    assert [name for name, total in causes.items() if total.verdict == Verdict.CONFIRMED] == [owner]


def test_a_switch_is_confirmed_where_pieces_of_the_size_before_it_are_faster():
    times = {None: {8: 24.0, 16: 112.0}, "before_switch": {8: 24.0, 16: 48.0}}
    switch = totals_of("algorithm switch", [(on_conv3("before_switch"), times)])["algorithm switch"]
    assert switch.verdict == Verdict.CONFIRMED
    assert switch.terms[0].claim.detail.startswith("from winogradForwardData4x4")
    # A larger algorithm that is the faster one bends the curve down, and pieces only make the
    # larger batch slower.
    slower = {None: {8: 48.0, 16: 56.0}, "before_switch": {8: 48.0, 16: 96.0}}
    faster_after = Plan(
        kernel=lambda b: ("small", 6.0 * b, {}) if b < 16 else ("large", 3.5 * b, {})
    )
    total = totals_of(faster_after, [(on_conv3("before_switch"), slower)])["algorithm switch"]
    assert (total.verdict, total.reason) == (Verdict.UNDECIDED, LEVELLED)


def faulty(_, duration_ns):
    """The same 20,000 page faults at every batch size, which take 40 ms in the system."""
    return {
        "cpu_time_ns": duration_ns,
        "run_queue_wait_ns": 0,
        "system_time_ns": 40_000_000,
        "page_faults": 20_000,
    }


FAULTY = Plan(kernel=lambda b: ("mkl_sgemm", 80.0, {}), host_use=faulty, hardware=CPU)


def test_page_faults_that_do_not_grow_are_a_share_of_the_fixed_cost():
    faults = totals_of(FAULTY, functional=fixed_cost(4, 8))["page faults"]  # without an experiment
    # 40 ms, by time the share of the layers and the optimizer: all but idle
    assert faults.amount == pytest.approx(40, rel=0.1)
    assert faults.verdict == Verdict.UNTESTED


def test_counted_page_faults_are_of_the_terms_that_cause_them():
    """Three quarters of those inside operators are of conv1; a tenth of the step's is outside all
    operators.
    """
    of_terms = {
        Key("conv1", "forward", KERNELS): 13_500.0,
        Key("conv3", "backward", KERNELS): 4_500.0,
    }
    plan = replace(
        FAULTY, kernel=lambda b: ("mkl_sgemm", 80.0, {}), first=lambda b: ("mkl_sgemm", 40.0, {})
    )
    shared = totals_of(plan, functional=fixed_cost(4, 8))["page faults"]
    counted = totals_of(
        plan, functional=fixed_cost(4, 8), term_faults=dict.fromkeys((4, 8), of_terms)
    )["page faults"]
    first, then = sorted(counted.terms, key=lambda term: -term.amount)
    assert (first.label, then.label) == ("conv1 forward", "conv3 backward")
    assert first.amount == pytest.approx(40 * 0.675, rel=0.1)
    assert then.amount == pytest.approx(40 * 0.225, rel=0.1)
    assert first.claim.evidence[2].what == "share of the term in the step's page faults"
    assert first.claim.evidence[2].before == pytest.approx(0.675)
    assert max(shared.terms, key=lambda term: term.amount).label == "conv3 backward"


def test_page_faults_that_were_counted_at_the_larger_size_only_are_none_at_the_other():
    def few_at_first(batch, duration_ns):
        return (
            faulty(batch, duration_ns)
            if batch == 16
            else faulty(batch, duration_ns) | {"page_faults": 100}
        )

    plan = replace(
        FAULTY,
        kernel=lambda b: ("mkl_sgemm", 5.0 * b + 40.0 * (b == 16), {}),
        host_use=few_at_first,
    )
    of_terms = {16: {Key("conv3", "backward", KERNELS): 20_000.0}}
    assert totals_of(plan, term_faults=of_terms)["page faults"].amount == pytest.approx(40, rel=0.1)


# conv3 backward alone: 80 ms of fixed cost, 60 of it page faults; the step: 87 ms, 70 of it
ALONE = (
    on_conv3("reused_memory", functional=fixed_cost(4, 8), batches=(4, 8)),
    {None: {4: 80.0, 8: 80.0}, "reused_memory": {4: 20.0, 8: 20.0}},
)
STEP = (on_the_step("kept_memory"), {None: {4: 95.0, 8: 103.0}, "kept_memory": {4: 25.0, 8: 33.0}})


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("made", "too_few"), [(ALONE, 0), (STEP, 90)], ids=["alone", "on the step"]
)
def test_steps_that_count_too_few_page_faults_have_another_cause(made, too_few):
    """A factor may look good by luck, also where steps count 20,000 faults; fewer than a hundred
    cost no 70 ms.
    """
    few = replace(
        FAULTY, host_use=lambda _, duration_ns: {**faulty(_, duration_ns), "page_faults": too_few}
    )
    assert totals_of(FAULTY, [made], fixed_cost(4, 8))["page faults"].verdict == Verdict.CONFIRMED
    assert "page faults" not in totals_of(few, [made], fixed_cost(4, 8))


def test_weights_make_a_fixed_cost_and_no_excess():
    excess_goes = {None: SLOW_FROM_16, "warm_caches": PROPORTIONAL}
    assert "weights read every step" not in totals_of(
        "unexplained", [(on_conv3("warm_caches"), excess_goes)]
    )


def test_a_cause_confirmed_alone_and_on_the_step_takes_its_amount_once():
    faults = totals_of(FAULTY, [ALONE, STEP], fixed_cost(4, 8))["page faults"]
    assert faults.measured.value == pytest.approx(70, abs=4)
    assert faults.amount == pytest.approx(faults.measured.value, rel=0.01)


def test_a_cause_that_some_terms_confirm_and_others_do_not_has_twototals():
    """What is confirmed is confirmed for its own amount, however much else the recording suggests
    of the cause.
    """
    terms = [TermCause(f"layer {n}", 3.0, None, ()) for n in range(10)]
    fc6 = TermCause("fc6", 20.0, None, (), Verdict.CONFIRMED)
    confirmed, rest = totals("weights read every step", [*terms, fc6], None, "the time was up")
    assert (confirmed.amount, confirmed.verdict, confirmed.terms) == (20, Verdict.CONFIRMED, (fc6,))
    assert (rest.amount, rest.verdict, rest.reason) == (30, Verdict.UNTESTED, "the time was up")
    undecided = TermCause("fc7", 1.0, None, (), Verdict.UNDECIDED, "the interval is too wide")
    _, rest = totals("weights read every step", [*terms, fc6, undecided], None, None)
    assert (rest.amount, rest.verdict, rest.reason) == (
        31,
        Verdict.UNDECIDED,
        "the interval is too wide",
    )
    assert [one.verdict for one in totals("weights read every step", [fc6], None, None)] == [
        Verdict.CONFIRMED
    ]


def half_a_core(_, duration_ns):
    """A neighbour that has half of every core at every batch size."""
    half_ns = duration_ns // 2
    return {
        "cpu_time_ns": half_ns,
        "run_queue_wait_ns": half_ns,
        "system_time_ns": 0,
        "page_faults": 100,
    }


SHARED = Plan(kernel=lambda b: ("mkl_sgemm", 80.0, {}), host_use=half_a_core, hardware=CPU)


def test_contention_is_what_a_raised_priority_takes_away():
    one = on_conv3("priority", scope=Scope.STEP, layer=None, phase=None)
    as_it_is, raised = {8: 31.0, 16: 110.0}, {8: 31.0, 16: 57.0}
    of_step = totals_of("CPU contention", [(one, {None: as_it_is, "priority": raised})])[
        "CPU contention"
    ]
    assert of_step.verdict == Verdict.CONFIRMED
    assert of_step.measured.value == pytest.approx(53, abs=4)
    same = totals_of("CPU contention", [(one, {None: as_it_is, "priority": as_it_is})])
    assert "CPU contention" not in same


def test_what_makes_every_batch_size_faster_alike_is_no_cause_of_the_fixed_cost():
    """A neighbour has half of every core at all batch sizes: without it F is half as large, and so
    is all else.
    """
    one = on_the_step("priority")
    faster = {None: {4: 75.0, 8: 110.0}, "priority": {4: 37.5, 8: 55.0}}
    assert "CPU contention" not in totals_of(SHARED, [(one, faster)], fixed_cost(4, 8))


@pytest.mark.slow
def test_a_narrow_measurement_alone_ends_what_was_not_significant():
    unclear = {
        term.label: term.amount for term in totals_of("not significant")[NOT_SIGNIFICANT].terms
    }
    one = replace(on_conv3("onednn", Stage.ALONE), factors=())
    times = {None: {8: 24.0, 16: 48.0 + unclear["conv3 backward"]}}
    after = totals_of("not significant", [(one, times)])
    assert "conv3 backward" not in {term.label for term in after[NOT_SIGNIFICANT].terms}


def test_a_claim_beyond_the_anomaly_counts_as_all_of_it():
    """Terms claim 80 ms of page faults and 15 of contention, of a fixed cost of 50 ms: others take
    45 ms off it.
    """
    amounts = {
        "page faults": 80.0,
        "CPU contention": 15.0,
        "launch- or host-bound": 90.0,
        "optimizer work": -3.0,
    }
    term = SimpleNamespace(claim_of=lambda cause: amounts.get(cause, 0.0))
    claims = claim_steps([term], 50.0)
    assert (claims["kept_memory"], claims["priority"]) == (50.0, 15.0)
    assert claim_steps([term], -50.0) == dict.fromkeys(
        ("no_update", "fused_optimizer", "foreach_optimizer"), -3.0
    )


def test_an_amount_spreads_over_what_is_left():
    assert spread(6.0, [4.0, 4.0, -1.0], [2.0, 0.0, 0.0]) == pytest.approx([2 + 4 / 3, 8 / 3, 0])
    assert spread(-2.0, [-1.0, -3.0], [0.0, 0.0]) == pytest.approx([-0.5, -1.5])
    assert spread(9.0, [1.0, 2.0], [0.0, 0.0]) == pytest.approx([1.0, 2.0])
