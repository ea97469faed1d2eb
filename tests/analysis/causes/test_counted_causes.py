"""Causes that use measured counters of the kernels: memory traffic and cycles of the SM clock."""

from __future__ import annotations

import dataclasses

import pytest

from curvescope.analysis.causes import cache_capacity, throttling
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.diagnosis.split import diagnose, explain

from ..synthetic import times_of
from .planted_causes import planted


def claim_of(cause, plan, change):
    """The claim of one cause on the term of conv3 after a change of the kernels or of what else is recorded."""
    steps, kernels, recorded = planted(plan, 1, rounds=4)
    kernels = kernels.assign(batch=kernels["step"].map(steps.set_index("step")["batch"]))
    kernels, recorded = change(kernels, recorded)
    found = diagnose(steps, times_of(steps, kernels.drop(columns="batch")), recorded=recorded)
    split = explain(excess(8, 16), found.curve, found.terms, found.kernel_times, recorded)
    (case,) = [one.case for one in split.weighed if one.case.share.key.layer == "conv3"]
    return cause.weigh(case)


@pytest.mark.parametrize(("misses", "claimed"), [(4, True), (1, False)])
def test_data_that_outgrew_the_cache_must_move_more_measured_bytes(misses, claimed):
    def counted(kernels, recorded):
        per_byte = kernels["batch"].map({4: 0.25, 8: 0.25, 16: 0.25 * misses})
        return kernels.assign(dram_bytes=kernels["bytes_compulsory"] * per_byte), recorded

    claim = claim_of(cache_capacity, "cache capacity", counted)
    assert (claim is not None) == claimed
    if claimed:
        traffic = next(one for one in claim.evidence if "measured DRAM" in one.what)
        assert (traffic.before, traffic.after) == (0.25, 1.0)


def test_bytes_of_some_launches_say_nothing_about_all():
    def partly(kernels, recorded):
        some = kernels.index % 2 == 0
        return kernels.assign(dram_bytes=kernels["bytes_compulsory"].where(some)), recorded

    claim = claim_of(cache_capacity, "cache capacity", partly)
    assert claim is not None
    assert not [one for one in claim.evidence if "measured DRAM" in one.what]


def cycles(hertz):
    """Cycles of kernels that run at a clock, by batch size, with samples of the clock or without."""

    def counted(samples):
        def change(kernels, recorded):
            amount = (kernels["duration_ns"] / 1e9 * kernels["batch"].map(hertz)).round().astype("Int64")
            return kernels.assign(sm_cycles=amount), recorded if samples else dataclasses.replace(recorded, clocks=None)

        return change

    return counted


def test_cycles_stand_in_for_missing_samples_of_the_clock():
    fallen = cycles({4: 1.7e9, 8: 1.7e9, 16: 1.2e9})(samples=False)
    claim = claim_of(throttling, "throttling", fallen)
    (evidence,) = claim.evidence
    assert (evidence.table, round(evidence.before), round(evidence.after)) == ("kernels.sm_cycles", 1700, 1200)
    assert claim_of(throttling, "throttling", lambda k, r: (k, dataclasses.replace(r, clocks=None))) is None


def test_a_term_whose_own_clock_did_not_fall_is_not_throttled():
    """The step's samples fell to 1.2 GHz; the term's cycles take as long as before."""
    assert claim_of(throttling, "throttling", lambda kernels, recorded: (kernels, recorded)) is not None
    assert claim_of(throttling, "throttling", cycles(dict.fromkeys((4, 8, 16), 1.7e9))(samples=True)) is None
