"""A busy machine is told from a noisy step, and what a quiet run would take is said."""

import numpy as np
import pytest

from curvescope.analysis.decompose.waiting import WAITS, waiting_of

from .drifting_sweeps import drifting_sweep


@pytest.fixture
def steps():
    found = drifting_sweep(np.random.default_rng(3))
    waits = np.random.default_rng(0).exponential(0.5, len(found))
    return found.assign(**{WAITS: waits * found["duration_ns"]}), waits


def test_waits_that_make_the_spread_are_told_from_a_step_that_varies(steps):
    table, waits = steps
    busy = table.assign(duration_ns=table["duration_ns"] * (1 + waits))
    busy[WAITS] = waits * busy["duration_ns"]
    found = waiting_of(busy)
    assert found.left < 0.3
    assert found.sentence.startswith("Waits for a core explain ")
    assert "Intervals of a quiet run like this one would be about 0." in found.sentence
    assert f" of its {found.rounds} rounds, in " in found.sentence
    varying = waiting_of(table)
    assert varying.left > 0.7
    assert "the step itself varies" in varying.sentence


def test_too_few_visits_and_a_recording_without_waits_say_nothing(steps):
    table, _ = steps
    assert waiting_of(table.drop(columns=WAITS)) is None
    assert waiting_of(table.assign(run_queue_wait_ns=np.nan)) is None
    assert waiting_of(table[table["round"] < 2]) is None


def test_the_same_wait_in_every_visit_explains_nothing(steps):
    table, _ = steps
    found = waiting_of(table.assign(run_queue_wait_ns=0.2 * table["duration_ns"]))
    assert found.left > 0.9
