"""Where marks cost next to nothing, marked steps are the samples of T, and a reference runs beside
them.
"""

from dataclasses import replace

import pytest

from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.terms import OVERHEAD
from curvescope.analysis.diagnosis.explain import explain
from curvescope.profiling.hardware.reference import SHARE, Reference
from curvescope.profiling.measure import visit as visit_module
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites import here
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.recording.store import open_recording

from .fake_clock import FakeWorkload, clock

__all__ = ["clock"]  # a fixture

LONG_NS, SHORT_NS = 100_000_000, 100_000
COST_NS = 500_000  # of one part of the reference


@pytest.fixture
def sweep(tmp_path, clock):
    def run(step_ns, protocol="default"):
        how = replace(PROTOCOLS[protocol], rounds=(4, 4), time_limit_s=None)
        how = how if protocol != "default" else replace(how, rounds=(4, 5))
        workload = FakeWorkload(clock, lambda batch: step_ns * batch)
        run_sweep(Here(workload), (1, 2, 4), how, tmp_path / protocol, clock_s=clock.seconds)
        return open_recording(tmp_path / protocol)

    return run


def visits_of(recording):
    """Kinds of the steps of each visit of batch size 2, by round."""
    steps = recording.frame("steps")
    steps = steps[steps["batch"] == 2]
    kinds = steps["profiled"].map({True: "profiled", False: "timed"})
    kinds = kinds.mask(steps["marked"].astype("boolean").fillna(False), "marked")
    return {
        round_: kinds[rows].value_counts().to_dict()
        for round_, rows in steps.groupby("round").groups.items()
    }


def test_only_the_first_visit_times_other_steps_than_marked_ones(sweep):
    recording = sweep(LONG_NS)
    both, *later = visits_of(recording).values()
    assert both["timed"] == both["marked"]
    assert all("timed" not in kinds and kinds["marked"] == both["marked"] for kinds in later)
    assert [kinds.get("profiled", 0) > 0 for kinds in later] == [True, *[False] * (len(later) - 1)]
    marks = recording.frame("marks")
    assert marks.groupby("round")["batch"].nunique().tolist() == [3] * (1 + len(later))


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(("disturbed", "profiled"), [((), 2), ((0,), 3), ((0, 1, 2, 3, 4, 5), 4)])
def test_a_disturbed_profile_is_made_again_at_most_twice_as_often(
    sweep, monkeypatch, disturbed, profiled
):
    rounds = iter(range(100))
    whole = here.visit

    def waiting(workload, batch, *rest, **how):
        made = whole(workload, batch, *rest, **how)
        if batch == 2 and next(rounds) in disturbed:
            for row in made.unprofiled:
                row["run_queue_wait_ns"] = row["duration_ns"]
        return made

    monkeypatch.setattr(here, "visit", waiting)
    visits = visits_of(sweep(LONG_NS, "quick"))
    assert len(visits) >= 4
    assert sum(kinds.get("profiled", 0) > 0 for kinds in visits.values()) == profiled


def test_marks_that_weigh_leave_unmarked_steps_the_samples(sweep):
    assert all("marked" not in kinds for kinds in visits_of(sweep(SHORT_NS)).values())


@pytest.mark.slow
def test_published_protocols_are_measured_as_published(sweep):
    later = list(visits_of(sweep(LONG_NS, "dell")).values())[1:]
    assert all(kinds["timed"] for kinds in later)


def test_terms_of_the_samples_themselves_add_up_to_t_without_overhead(sweep):
    diagnosis = explain(sweep(LONG_NS))
    shares = diagnosis.terms.decompose(excess(2, 4), diagnosis.curve)
    assert OVERHEAD not in {share.key.kind for share in shares}
    value = diagnosis.curve.evaluate(excess(2, 4)).value
    assert sum(share.value.value for share in shares) == pytest.approx(value, abs=1e-6)


def test_a_reference_runs_beside_the_steps_for_its_share_of_their_time(clock):
    ran = []

    def work():
        ran.append(clock.now_ns)
        clock.now_ns += COST_NS

    reference = Reference(clock, work)
    workload = FakeWorkload(clock, lambda _: LONG_NS)
    ran.clear()
    how = VisitPlan(PROTOCOLS["default"], light=True, profile=False)
    found = visit_module.visit(workload, 2, how, reference=reference)
    assert {row["reference_ns"] for row in found.unprofiled} == {COST_NS}
    steps_ns = sum(row["duration_ns"] for row in found.unprofiled)
    assert 0 < len(ran) * COST_NS <= SHARE * steps_ns + reference.cost_ns
    inside = [
        at
        for at in ran
        for row in found.unprofiled
        if row["start_ns"] <= at < row["start_ns"] + row["duration_ns"]
    ]
    assert not inside


def test_a_reference_that_would_take_too_long_does_not_run(clock):
    reference = Reference(clock, lambda: setattr(clock, "now_ns", clock.now_ns + COST_NS))
    workload = FakeWorkload(clock, lambda _: SHORT_NS)
    how = VisitPlan(PROTOCOLS["default"], profile=False)
    found = visit_module.visit(workload, 2, how, reference=reference)
    assert all("reference_ns" not in row for row in found.unprofiled)
