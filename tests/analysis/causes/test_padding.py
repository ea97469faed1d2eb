"""Padding: the block of samples that a product computes is found by the times of a sweep."""

import math
import random

import pytest

from curvescope.analysis.causes.blocks import SIZES, find_block
from curvescope.analysis.causes.padding import find_filled_blocks
from curvescope.analysis.decompose.functionals import excess
from curvescope.profiling.recording.experiments import Wave

from ...tables import ask_each
from .planted_causes import Plan, blocks_of, explained

SWEEP = (1, 8, 15, 16, 17, 24, 31, 32, 33, 40, 48, 64)
NOISE = random.Random(1)


def times(function, sizes=SWEEP, noise=0.0):
    return {b: function(b) * math.exp(NOISE.gauss(0, noise)) for b in sizes}


@ask_each("size", [one for one in SIZES if one > 4])
def test_the_block_is_found_by_times_that_stay_within_it_and_jump_behind(size):
    sizes = [size * part // 4 for part in (1, 2, 4, 5, 6, 8, 9, 12)]
    block = find_block(times(lambda b: 5 + blocks_of(b, size) / 4, sizes, noise=0.005))
    assert block.size == size
    assert block.block_ms == pytest.approx(size / 4, rel=0.1)
    assert not block.is_tile


@ask_each(
    "function",
    [
        lambda b: 5 + b,
        lambda b: 5 + b**0.7,
        lambda b: 40.0,
        lambda b: max(20.0, float(b)),  # memory to 20, then operations
        lambda b: max(32.0, float(b)),
        lambda b: b + (10 if b > 16 else 0),  # another algorithm from 17 on
        lambda b: 20.0 if b <= 16 else 60.0,  # flat on both sides of one switch, no third block
    ],
)
def test_no_block_is_found_where_times_follow_none(function):
    for _ in range(40):
        assert find_block(times(function, noise=0.01)) is None


def test_a_tile_in_the_name_needs_one_flat_block_only():
    tall = times(lambda b: 2.0 * blocks_of(b, 64), (16, 32, 64, 128, 256))
    assert find_block(tall) is None
    assert find_block(tall, frozenset({128, 64})).is_tile
    assert find_block(tall, frozenset({128})) is None


def test_the_answer_names_the_block_and_what_fills_it():
    (term,) = explained("padding to blocks").largest_cause.terms
    assert term.claim.detail == "of 16 samples"
    computed, filling, within = term.claim.evidence
    assert (computed.before, computed.after) == (16, 16)
    assert (filling.before, filling.after) == (pytest.approx(24, rel=0.1), 0)
    assert within.what.endswith("within one block of 16")
    assert within.before == pytest.approx(within.after, rel=0.05)


@pytest.mark.slow
def test_low_precision_on_a_gpu_is_padded_to_the_tile_of_its_kernel():
    """A grid of persistent blocks tells nothing; 24 rows of fp8 are computed as 64."""
    name = "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128_warpgroupsize1x1x1"
    plan = Plan(
        kernel=lambda b: (name, 1.0 * blocks_of(b, 64), {}),
        batches=(4, 8, 16, 32, 64, 128, 192),
    )
    verdict = explained(plan, excess(8, 16)).largest_cause
    assert verdict.cause == "padding to blocks"
    assert verdict.amount == pytest.approx(-64, rel=0.1)


def test_experiments_run_the_sizes_that_fill_the_block_and_begin_the_next():
    explanation = explained("padding to blocks", excess(16, 17))
    (case,) = [case for case in explanation.cases if case.block]
    assert find_filled_blocks(case) == (Wave(17, 32, 33, 48, 15 / 16),)
