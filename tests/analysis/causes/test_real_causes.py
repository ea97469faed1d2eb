"""Causes on a real machine: recordings kept from one, and what this one records of the same."""

import math
from pathlib import Path

import numpy as np
import pytest

from curvescope.analysis.causes import CAUSES, memory
from curvescope.analysis.causes.case import BatchFacts, MeanHostUse
from curvescope.analysis.decompose.breakdown import break_down
from curvescope.analysis.decompose.functionals import curvature, excess
from curvescope.analysis.decompose.kernel_times import device_work
from curvescope.analysis.diagnosis.explain import explain, explain_one
from curvescope.analysis.render.causes import verdict_sentence
from curvescope.profiling.recording.store import open_recording

from ...tables import ask_each
from .planted_machine import CASES, name_cause, record

KEPT = Path(__file__).parents[2] / "data" / "causes"
NETWORKS = Path(__file__).parents[2] / "data" / "networks"
ONCE = {"rounds": 1, "profiled": 1}  # a round of the same process; enough for what is counted


def claims_of(found):
    """Every claim on every term, taken or not: (cause, term, evidence by its words)."""
    for total in found.causes:
        for term in total.terms:
            for claim in (*filter(None, [term.claim]), *term.rivals):
                yield claim.cause, term.label, {e.what: (e.before, e.after) for e in claim.evidence}


def check_amounts_add_up(found):
    amounts = [cause.amount for cause in found.causes]
    assert math.fsum(amounts) == pytest.approx(found.value.value, rel=1e-9, abs=1e-9)


@pytest.mark.first_rows(2)
@pytest.mark.parametrize("name", CASES)
def test_a_kept_recording_names_what_was_planted_in_it(name):
    found = name_cause(CASES[name], open_recording(KEPT / name))
    assert found.largest_cause.cause == CASES[name].cause
    check_amounts_add_up(found)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("network", ["alexnet", "googlenet", "vgg_a"])
def test_causes_account_for_all_that_a_network_does(network):
    recording = open_recording(NETWORKS / network)
    found = explain(recording)
    for functional in (excess(1, 2), excess(2, 4), curvature(1, 2, 4)):
        split = explain_one(found, functional)
        check_amounts_add_up(split)
        shares = [cause.amount / split.value.value for cause in split.causes]
        assert math.fsum(shares) == pytest.approx(1, abs=1e-9)
        assert {cause.cause for cause in split.causes} <= set(CAUSES)
        # Of every layer, of idle and of the profiling overhead each has its causes, and they make
        # up its part.
        for part in split.shares:
            claimed = [t.amount for c in split.causes for t in c.terms if t.label == part.label]
            assert math.fsum(claimed) == pytest.approx(part.value.value, rel=1e-9, abs=1e-9)


def evidence(name, term):
    case = CASES[name]
    named = [
        what
        for cause, label, what in claims_of(name_cause(case, open_recording(KEPT / name)))
        if (cause, label) == (case.cause, term)
    ]
    assert named, f"{case.cause} is not claimed of {term}"
    return named[0]


@ask_each(
    ("name", "term", "what", "holds"),
    [
        (
            "OutgrowsTheCache",
            "scale forward",
            "bytes of one launch of aten::mul",
            lambda *b: b == (18 << 20, 36 << 20),
        ),
        ("OutgrowsTheCache", "scale forward", "the cache", lambda before, _: before == 32 << 20),
        (
            "OutgrowsTheCache",
            "scale forward",
            "its bandwidth",
            lambda before, after: after < 0.9 * before,
        ),
        (
            "BusyNeighbour",
            "product forward",
            "share of runnable time with a core",
            lambda b, a: a < 0.7 * b,
        ),
        (
            "Convolution",
            "conv forward",
            "kernel with the most time",
            lambda b, a: b and a and b != a,
        ),
    ],
)
def test_the_evidence_of_what_was_kept(name, term, what, holds):
    assert holds(*evidence(name, term)[what])


# What is recorded on this machine, as far as no load changes it; which cause is claimed of it is
# asked of what is kept.


@pytest.mark.slow
def test_pages_given_back_are_faulted_in_anew(tmp_path):
    """3 uses of 48 MiB, in pages of 4 KiB: huge ones have to be asked for, by `madvise` or in the
    settings.
    """
    before, after = steps_by_batch("FreshMemory", tmp_path)["page_faults"].mean()
    assert before < 1000
    assert after == pytest.approx(3 * 48 * 2**20 / 4096, rel=0.05)


@pytest.mark.slow
def test_a_neighbour_on_the_core_takes_about_half_of_it(tmp_path):
    """Beside other work it is less than half, never more."""
    steps = steps_by_batch("BusyNeighbour", tmp_path, rounds=2)
    _, ran_ns = steps["cpu_time_ns"].sum()
    _, waited_ns = steps["run_queue_wait_ns"].sum()
    assert ran_ns / (ran_ns + waited_ns) < 0.65


@pytest.mark.slow
def test_a_step_that_waits_for_its_input_is_idle(tmp_path):
    """100 ms at 4, none at 2; a loaded machine wakes late, never early."""
    live = record(CASES["WaitsForItsInput"], tmp_path / "run", **ONCE)
    rows = break_down(live.frame("steps"), device_work(live), "layer", 4).rows
    (idle,) = [row for row in rows if row.label == "idle"]
    assert idle.time_ms > 95


@pytest.mark.slow
def test_torchs_own_choice_of_library_is_another_kernel(tmp_path):
    live = record(CASES["Convolution"], tmp_path / "run", **ONCE)
    kernels = live.frame("kernels").merge(live.frame("steps")[["step", "batch"]], on="step")
    few, many = kernels[kernels["layer"] == "conv"].groupby("batch")["name"].agg(set)
    assert few - many
    assert many - few


def steps_by_batch(name, tmp_path, rounds=1):
    """The unprofiled steps of a case that is recorded here, the smaller of its two sizes first."""
    steps = record(CASES[name], tmp_path / "run", **{**ONCE, "rounds": rounds}).frame("steps")
    return steps[~steps["profiled"]].groupby("batch")


def test_less_than_half_is_not_called_most():
    """Page faults are the largest cause of FreshMemory's excess; waiting and missing cores have
    their parts.
    """
    found = name_cause(CASES["FreshMemory"], open_recording(KEPT / "FreshMemory"))
    portion = found.largest_cause.amount / sum(c.amount for c in found.causes if c.amount > 0)
    sentence = verdict_sentence(found)
    assert sentence.startswith(
        "Mostly" if portion > 0.5 else "Several causes, the largest page faults"
    )


def facts(wall_ms, use):
    return BatchFacts(
        timed_ms=np.array([wall_ms]), idle_ms=0.0, kernel_ms=wall_ms, kernel_calls=1.0, host_use=use
    )


def test_time_in_the_system_as_wall_time_by_hand():
    """10 of 40 ms of CPU time are the system's."""
    alone = facts(40.0, MeanHostUse(40.0, 10.0, 0, 0.0))
    four_threads = facts(10.0, MeanHostUse(40.0, 10.0, 0, 0.0))
    half_a_core = facts(80.0, MeanHostUse(40.0, 10.0, 0, 40.0))
    sleeps_too = facts(140.0, MeanHostUse(40.0, 10.0, 0, 40.0))
    wait_unknown = facts(80.0, MeanHostUse(40.0, 10.0, 0, None))
    steps = (alone, four_threads, half_a_core, sleeps_too, wait_unknown)
    assert [memory.system_wall_ms(step) for step in steps] == pytest.approx([10, 2.5, 20, 20, 10])
