"""Experts of a mixture: what a step reads of them follows the tokens, until all have one."""

from dataclasses import replace

import pytest

from curvescope.analysis.causes.case import TermOperands
from curvescope.analysis.causes.expert_tokens import ExpertTokens
from curvescope.analysis.decompose.functionals import fixed_cost

from .planted_causes import CPU, PLANS, Plan, explained


def test_the_number_of_experts_with_a_token_is_evidence_and_their_uneven_load_stands_beside_it():
    (term,) = explained("weights of experts").largest_cause.terms
    assert term.claim.detail == "(4 and 16 of 16 have a token)"
    count, tokens, load, _ = term.claim.evidence
    assert (count.before, count.after) == (4, 16)
    assert (tokens.before, tokens.after) == (14, 32)
    assert (load.before, load.after) == (pytest.approx(8 / 3.5), 1)
    assert term.claim.amount == pytest.approx(10 * (16 - 2 * 4), rel=0.1)


def of_all_experts(batch):
    return TermOperands(experts=ExpertTokens((batch,) * 16, 16))


@pytest.mark.slow
def test_all_experts_are_a_fixed_cost_that_the_dense_twin_has_not():
    """Published of a mixture of experts: 5 to 6.6 ms of a decode step that a dense one has not
    (vllm-xpu-kernels 509).
    """
    mixture = Plan(
        kernel=lambda b: ("mkl SGEMM(T,N)", 5.0 + 0.1 * b, {}),
        operands=of_all_experts,
        optimizer_ms=0.1,
        idle_ms=lambda b: 0.1,
        hardware=CPU,
    )
    explanation = explained(mixture, fixed_cost(8, 16))
    assert explanation.largest_cause.cause == "weights of experts"
    assert explanation.largest_cause.amount == pytest.approx(5.8, abs=0.9)
    dense = replace(mixture, kernel=lambda b: ("mkl SGEMM(T,N)", 0.1 * b, {}), operands=None)
    causes = [one.cause for one in explained(dense, fixed_cost(8, 16)).causes]
    assert "weights of experts" not in causes


@pytest.mark.slow
def test_where_only_the_shapes_are_known_experts_can_have_a_token():
    plan = PLANS["weights of experts"]
    of_shapes = replace(
        plan,
        operands=lambda b: TermOperands(experts=plan.operands(b).experts._replace(is_known=False)),
    )
    (term,) = explained(of_shapes).largest_cause.terms
    assert term.claim.detail == "(4 and 16 of 16 can have a token)"
    count, tokens, time = term.claim.evidence
    assert (count.what, tokens.after) == ("experts that can have a token, of 16", 32)
    assert time.unit == "ms"


@pytest.mark.slow
def test_products_that_the_memory_does_not_bound_read_no_weights_in_their_time():
    """128 MB of weights take 0.4 ms of the 160 at 320.3 GB/s."""
    plan = PLANS["weights of experts"]
    bound = Plan(
        kernel=lambda b: (*plan.kernel(b)[:2], {"bytes_compulsory": 128_000_000}),
        operands=plan.operands,
    )
    causes = [one.cause for one in explained(bound).causes]
    assert "weights of experts" not in causes
