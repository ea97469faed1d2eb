"""Waves of blocks: which further batch sizes tell what an empty last wave costs, and what is
concluded from them.
"""

import math
from types import SimpleNamespace

import pytest

from curvescope.analysis.causes import fillings
from curvescope.analysis.causes.case import Case, Use
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.verdicts.words import Verdict
from curvescope.experiments.factors import all_facts
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.experiments import Scope, Wave

from ..tables import ask_each
from .planted_experiments import experiment, outcomes_of, rows_of

H100 = hardware_of({"device": {"name": "NVIDIA H100 80GB HBM3", "kind": "cuda"}})
BEND = bend(4, 8, 16)


def case_of(blocks, functional=BEND):
    """A kernel of 256 threads with 255 registers, so that each of the 132 SMs has one block at a
    time.
    """
    uses = [
        Use(
            batch=b,
            name="gemm",
            time_ms=1,
            share=w,
            calls=1,
            blocks=blocks(b),
            threads=256,
            registers_per_thread=255,
        )
        for b, w in functional.weights
    ]
    return Case(
        functional=functional,
        share=SimpleNamespace(key=SimpleNamespace(kind="kernels")),
        before=functional.at,
        after=functional.last,
        uses=tuple(uses),
        facts={},
        hardware=H100,
    )


@ask_each(
    ("blocks", "expected"),
    [
        # 0.48, 0.97 and 1.94 waves. 64 blocks for 4 samples, or 16 for one: 8 fit a wave, 11 do
        # not, 16 fit two.
        (lambda b: 16 * b, [Wave(4, 8, 11, 16, 1 - 64 / 132)]),
        # 40, 80 and 160 blocks, which are tiles of 4 samples, or of less: 12 samples fit 132
        # blocks, 17 do not.
        (
            lambda b: 20 * math.ceil(b / 2),
            [Wave(4, 12, 17, 24, 1 - 40 / 132), Wave(8, 12, 17, 24, 1 - 80 / 132)],
        ),
        (lambda b: 132, []),  # persistent: the blocks take tiles in turn
        (lambda b: 40, []),  # nothing says from where on it takes more
        (lambda b: {4: 40, 8: 80, 16: 164}[b], []),  # nor here: it does not grow by rows of samples
    ],
)
def test_further_sizes_are_those_where_the_last_wave_certainly_ends(blocks, expected):
    assert list(fillings(case_of(blocks))) == expected


def test_a_size_just_past_a_wave_is_told_by_what_still_fits_the_memory():
    """160 of 264 blocks at 64, which fill at 104 samples; the wave behind would end at 158, too
    far.
    """
    blocks = lambda b: math.ceil(2.5 * b)  # noqa: E731
    found = fillings(case_of(blocks, excess(50, 64)))
    assert list(found) == [
        Wave(50, 52, 54, 104, 1 - 125 / 132),
        Wave(64, 104, 108, 128, 2 - 160 / 132),
    ]


def test_a_small_size_just_past_a_wave_is_told_by_three_times_as_many():
    """120 blocks for 8 samples fit a wave of 132, 135 for 9 do not; the next wave ends at 17
    samples.
    """
    (found,) = fillings(case_of({8: 120, 9: 135}.get, excess(8, 9)))
    assert (found.batch, found.filled) == (9, 17)
    assert 18 < found.beyond < found.last <= 27


def test_without_the_larger_part_of_what_is_empty_no_wave_is_tested():
    """Grids do not say from where on 64 samples take a third wave; without it, 50 alone would
    refute the cause.
    """
    assert fillings(case_of({50: 125, 64: 200}.get, excess(50, 64))) == ()


WAVE = Wave(4, 8, 11, 16, 1 - 64 / 132)
IN_WAVES = lambda b: 5.0 * math.ceil(16 * b / 132)  # noqa: E731


@ask_each(
    ("time_ms", "verdict"),
    [
        (IN_WAVES, Verdict.CONFIRMED),
        (lambda b: 5.0 * max(1, b / 8), Verdict.REFUTED),  # flat, then in proportion: another roof
        (lambda b: 5.0 + b if b <= 8 else 5.0 + b + 5.0, Verdict.REFUTED),  # a switch beyond 8
        (lambda b: 5.0 + b + b**2 / 8, Verdict.REFUTED),
        (
            lambda b: IN_WAVES(b) / 4 + 5.0 * max(1, b / 8),
            Verdict.UNDECIDED,
        ),  # a fifth of the bend is waves
    ],
)
def test_a_bend_is_of_waves_if_the_time_stays_until_the_wave_is_full_and_jumps_then(
    time_ms, verdict
):
    one = experiment(
        factors=["filled_wave"], functional=BEND.weights, batches=(4, 8, 16), waves=(WAVE,)
    )
    rows = rows_of(one, {None: time_ms})
    unmodified, filled = outcomes_of(one, rows, all_facts(Scope.TERM, "cuda:0"))
    assert unmodified.batches == filled.batches == (4, 8, 16)
    assert filled.verdict == verdict
    if verdict == Verdict.CONFIRMED:
        # 64 of 132 places are taken at 4: without the rest 2.42 of 5 ms, so -0.15 ms is left of the
        # bend of 5 ms.
        assert filled.changed_ms[0].value == pytest.approx(5 * 64 / 132, rel=0.05)
        assert filled.changed.value == pytest.approx(-0.15, abs=0.2)
    without = outcomes_of(one, rows[rows["batch"] != 11], all_facts(Scope.TERM, "cuda:0"))[1]
    assert without.verdict == Verdict.UNTESTED


def test_waves_of_other_sizes_refute_nothing():
    """The fixed cost of 5 and 8 has a wave; the excess from 8 to 9, which the experiment also
    tests, has none.
    """
    wave = Wave(5, 8, 10, 16, 0.375)
    both = {"functional": ((8, -1.125), (9, 1.0)), "batches": (5, 8, 9), "waves": (wave,)}
    one = experiment(factors=["filled_wave"], **both)
    rows = rows_of(one, {None: lambda b: 2.0 * math.ceil(b / 8)})
    _, filled = outcomes_of(one, rows, all_facts(Scope.TERM, "cuda:0"))
    assert filled.verdict == Verdict.UNTESTED
    assert "its own" in filled.reason


def test_a_jump_behind_the_next_wave_confirms_no_wave_of_the_fixed_cost():
    """Arrays outgrow a cache at 20: the wave would cost less than nothing, which would take away a
    fixed cost.
    """
    wave = Wave(8, 12, 17, 24, 0.7)
    functional = ((4, 2.0), (8, -1.0))
    one = experiment(factors=["filled_wave"], functional=functional, batches=(4, 8), waves=(wave,))
    rows = rows_of(one, {None: lambda b: 5.0 + b + (0.0 if b < 20 else 100.0)})
    _, filled = outcomes_of(one, rows, all_facts(Scope.TERM, "cuda:0"))
    assert filled.verdict == Verdict.REFUTED
