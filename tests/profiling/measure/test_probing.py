"""Sizes between those of a sweep: published anomalies that doublings miss or misplace, on simulated
clocks.
"""

import pytest

from benchmarks.probed_sizes import PUBLISHED, STRAIGHT, found, sweep
from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render.notes import list_notes
from curvescope.profiling.measure.affordable import Affordable
from curvescope.profiling.measure.probing import Probing, probe_sizes
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.stopping import Complete
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visits import Look, Visit
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.probes import Jumps, probes_sentence
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload import own_step

from ...tables import ask_each
from .fake_clock import FakeWorkload, clock

__all__ = ["clock"]  # a fixture


@pytest.mark.first_rows(3, in_ci=3)  # the next test asks it of all
@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.where)
def test_a_published_anomaly_is_found_at_its_size(published):
    assert found(published, "even", range(3)) == 3


@pytest.mark.slow
def test_nine_of_ten_published_anomalies_are_found_at_their_size_beside_slow_states():
    """A quarter of the visits run 8 % slower."""
    assert sum(found(published, "two states", range(1)) for published in PUBLISHED) >= 0.9 * len(
        PUBLISHED
    )


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("noise", ["even", "spikes", "two states", "slow visits"])
def test_no_jump_is_found_on_a_straight_line(noise):
    """Further rounds may be made for one; they show none."""
    assert [jump for seed in range(15) for jump in sweep(STRAIGHT, noise, seed).jumps] == []


def test_what_leaves_the_line_smoothly_is_no_jump():
    """Of a cost that grows with the square, no single size is off the line of its neighbours."""
    square = STRAIGHT._replace(cost_ms=lambda size: 5 + size * size / 10)
    assert sum(bool(sweep(square, "even", seed).looked) for seed in range(8)) <= 1  # by chance


@ask_each(
    ("sizes", "probed"),
    [
        ((1, 2, 4, 8), [3, 5, 9, 6, 7]),
        ((1, 2, 4, 8, 16, 32), [3, 5, 9, 17, 33, 6, 12, 24, 7, 15, 31, 11, 23]),
        ((1, 2, 3, 4), [5]),
    ],
)
def test_sizes_beside_those_of_the_sweep_are_probed_first(sizes, probed):
    assert probe_sizes(sizes) == probed


class Probed:
    """Visits of sizes on a clock of their own, each of which takes the same seconds."""

    def __init__(self, takes_s, duration_ns):
        self.sizes, self.now_s = [], 0.0
        self._takes_s, self._duration_ns = takes_s, duration_ns

    def visit(self, size):
        self.now_s += self._takes_s
        self.sizes.append(size)
        return Visit([{"start_ns": 0, "duration_ns": self._duration_ns(size)}])

    def clock_s(self):
        return self.now_s


def test_probes_end_with_their_time():
    """A probe of 40 s of 20: the first is made, the next are not."""
    probed = Probed(40.0, lambda _: 10**9)
    rule = Probing(Complete((6, 9), 1000.0), (4, 8), 20.0, probed.visit)
    rows = [
        {"batch": size, "round": 0, "profiled": False, "duration_ns": size * 10**8}
        for size in (4, 8)
    ]
    look = Look(round_=1, elapsed_s=1.0, conditions=(4, 8), visit_s={}, rows=lambda: rows)
    chosen = rule.next_round(look)
    assert chosen == [4, 5, 6, 7, 8, 9]  # visited beside the sizes that they are compared with
    for size in (5, 9):
        rule.probe(size, 1, probed.clock_s)
    assert (probed.sizes, rule.entry["seconds"]) == ([5], 40.0)
    assert rule.next_round(look) == (4, 8)


def test_a_probe_off_the_line_without_time_for_a_second_visit_is_said():
    """An H100 took twice as long at 17 as at 16: time was up, and none was said to
    leave the line.
    """
    times_ms = {8: 8.0, 16: 16.0, 32: 32.0}
    visits = [
        {"batch": size, "round": 1, "duration_ns": [ms * 10**6]}
        for size, ms in ((9, 9), (17, 34), (31, 28))
    ]
    meta = {"probes": {"least": 0.05, "seconds": 8.1, "visits": visits, "found": []}}
    said = probes_sentence(meta, Axis(), Jumps(), times_ms)
    assert "17 by +100 %, 31 by -10 % leave the line, in too few visits to test it" in said
    found = {"probes": {**meta["probes"], "found": [(16, 17)]}}
    left_open = probes_sentence(found, Axis(), Jumps(open=[(16, 17)]), {**times_ms, 17: 34.0})
    assert "further rounds are too few to test a jump between 16 and 17" in left_open
    assert "no jump" not in left_open
    on_line = {"probes": {**meta["probes"], "visits": visits[:1]}}
    assert "none leaves the line by 5 %" in probes_sentence(on_line, Axis(), Jumps(), times_ms)


def test_a_first_round_of_probes_leaves_time_for_a_second():
    """A new size costs far more than its steps, e.g. where a library chooses its algorithms."""
    probed = Probed(1.0, lambda size: size * 10**6 * (3 if size == 17 else 1))
    rule = Probing(Complete((9, 9), 100.0), (8, 16, 32), 8.0, probed.visit)
    sizes = {8, 16, 32}
    rows = [
        {"batch": b, "round": r, "profiled": False, "duration_ns": b * 10**6}
        for b in sizes
        for r in (0, 1)
    ]
    for round_ in (1, 2):
        elapsed_s = 10.0 * round_
        look = Look(
            round_=round_,
            elapsed_s=elapsed_s,
            conditions=(8, 16, 32),
            visit_s=dict.fromkeys(sizes, 1.0),
            rows=lambda: rows,
        )
        chosen = rule.next_round(look)
        for size in chosen:
            if size not in sizes:
                rule.probe(size, round_, probed.clock_s)
    assert sorted(probed.sizes[:4]) == [9, 12, 17, 33]
    assert probed.sizes.count(17) == 2  # in the second round before all that is new


STAIRS = Protocol("stairs", (4, 8), 1, (2, 2), 0.0, 1, 112.0)


def stairs_ns(batch):
    """Tiles of 6 samples; so small a step has time for all probes."""
    return 1_000_000 * -(-batch // 6) + 50_000


def sweep_probed(workload, sizes, path, clock):
    """Record a sweep with time for probes, and read it."""
    run_sweep(Here(workload), sizes, STAIRS, path, clock_s=clock.seconds, probe_s=10.0)
    return open_recording(path)


@pytest.mark.slow
def test_what_is_found_is_part_of_the_recording_and_its_curve(tmp_path, clock):
    """Time rises at 7; so it does at 13, between 12 and 16."""
    workload = FakeWorkload(clock, stairs_ns)
    recording = sweep_probed(workload, (1, 2, 4, 8, 16), tmp_path / "r", clock)
    found = explain(recording)
    assert recording.meta["probes"]["found"] == [[6, 7], [12, 13]]
    assert (
        found.curve.conditions == tuple(recording.meta["batches"]) == (1, 2, 4, 6, 7, 8, 12, 13, 16)
    )
    assert {"excess 6→7", "excess 12→13"} <= {finding.tested.label for finding in found.anomalies}
    assert {(finding.tested.at, *finding.tested.conditions[:2]) for finding in found.findings} & {
        (7, 6, 7)
    } == set()
    assert "the cost jumps from 6 to 7 and from 12 to 13" in list_notes(found)[-1]
    # The visits that chose the sizes count nowhere.
    chosen_in = {
        visit["round"] for visit in recording.meta["probes"]["visits"] if visit["batch"] == 7
    }
    steps = recording.frame("steps")
    assert steps[steps["batch"] == 7]["round"].min() > max(chosen_in)


@pytest.mark.slow
def test_a_size_that_is_found_too_late_for_a_step_has_no_data(tmp_path, clock, monkeypatch):
    """It is named, and the rest is explained."""
    fits = Affordable.fits

    def late(rule, size):
        is_found = size == 7 and 7 in rule._sizes
        return not is_found and fits(rule, size)

    monkeypatch.setattr(Affordable, "fits", late)
    workload = FakeWorkload(clock, stairs_ns)
    recording = sweep_probed(workload, (1, 2, 4, 8, 16), tmp_path / "r", clock)
    (left_out,) = recording.meta["unmeasured"]
    assert (left_out["batch"], left_out["detail"]) == (7, "it was found too late")
    assert [6, 7] in recording.meta["probes"]["found"]
    assert 7 not in explain(recording).curve.conditions


@pytest.mark.slow
def test_a_size_that_is_faster_than_a_smaller_one_is_said_to_be(tmp_path, clock):
    """Each size of the sweep is a multiple of 8, and slow; the sizes beside them are not."""
    workload = FakeWorkload(clock, lambda batch: 10_000 * batch * batch * (1 if batch % 8 else 3))
    recording = sweep_probed(workload, (8, 16, 32, 64), tmp_path / "r", clock)
    note = list_notes(explain(recording))[-1]
    assert "the cost falls from 8 to 9" in note or "the cost falls from 16 to 17" in note
    assert "no jump between" not in note


@pytest.mark.slow
def test_a_size_that_does_not_run_is_left_out(tmp_path, clock, monkeypatch):
    load = FakeWorkload.load

    def refuse(workload, batch):
        if batch % 2 and batch > 1:
            raise MemoryError
        load(workload, batch)

    monkeypatch.setattr(FakeWorkload, "load", refuse)
    workload = FakeWorkload(clock, stairs_ns)
    meta = sweep_probed(workload, (1, 2, 4, 8), tmp_path / "r", clock).meta
    assert {visit["batch"] for visit in meta["probes"]["visits"]} == {6}
    assert (meta["batches"], meta["unmeasured"]) == ([1, 2, 4, 8], [])


@pytest.mark.slow
def test_a_compiled_step_has_no_probes(tmp_path, clock):
    workload = FakeWorkload(clock, stairs_ns)
    workload.compiled = True
    run_sweep(
        Here(workload), (1, 2, 4, 8), STAIRS, tmp_path / "r", clock_s=clock.seconds, probe_s=10.0
    )
    assert "probes" not in open_recording(tmp_path / "r").meta


@pytest.mark.slow
def test_steps_of_probed_sizes_are_let_go_when_the_probes_end(tmp_path, clock, monkeypatch):
    kept = []
    monkeypatch.setattr(FakeWorkload, "free_others", lambda _, but=(): kept.append([*but]))
    workload = FakeWorkload(clock, lambda batch: 1_000_000 * batch)
    run_sweep(
        Here(workload), (1, 2, 4, 8), STAIRS, tmp_path / "r", clock_s=clock.seconds, probe_s=10.0
    )
    assert open_recording(tmp_path / "r").meta["probes"]["visits"]
    assert kept[-1] == [1, 2, 4, 8]


def test_a_users_steps_of_some_sizes_stay_while_others_are_let_go(monkeypatch):
    monkeypatch.setattr(own_step, "memory_is_short", lambda _: False)
    made = []
    workload = own_step.OwnStep(lambda batch: made.append(batch) or (lambda: None))
    for batch in (1, 2, 3):
        workload.load(batch)
    assert workload.free_others((1,))
    for batch in (1, 3, 2):
        workload.load(batch)
    assert made == [1, 2, 3, 2]
