"""A change saves what is paid: slow steps count; and waits beside other work are no saving."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.diagnosis.remedies import find_remedies
from curvescope.analysis.render.found import describe_saving
from curvescope.analysis.render.remedies import remedy_table, saving_sentence
from curvescope.analysis.verdicts.words import Verdict
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.experiments import Scope, Stage

from ...experiments.planted_experiments import FACTS, experiment, outcomes_of
from ...tables import ask_each

BATCH, STARTS, STEPS, USUAL_MS = 8, 5, 16, 10.0
FACTOR = "onednn"


def step_rows(unmodified, changed, waits=0.0, steps_of_visit=STEPS, changed_waits=0.0):
    """Steps of complete steps in five starts: times over and over, ms, of which a share was waited
    for a core.
    """
    visits = STEPS // steps_of_visit
    random = np.random.default_rng(0)
    rows = []
    for start in range(STARTS):
        for name, pattern_ms in ((None, unmodified), (FACTOR, changed)):
            times_ms = np.resize(pattern_ms, STEPS) * np.exp(0.01 * random.standard_normal(STEPS))
            for index, time_ms in enumerate(times_ms):
                waited_ns = (waits if name is None else changed_waits) * time_ms * 1e6
                round_ = start * visits + index // steps_of_visit
                place = (round_, index % steps_of_visit)
                rows.append((0, name, BATCH, *place, int(time_ms * 1e6), start, waited_ns))
    columns = ["experiment", "factor", "batch", "round", "index", "duration_ns", "process"]
    return pd.DataFrame(rows, columns=[*columns, "run_queue_wait_ns"])


def remedies_of(rows):
    tried = experiment(
        factors=(FACTOR,),
        functional=(),
        functional_kind="time",
        batches=(BATCH,),
        scope=Scope.STEP,
        stage=Stage.REMEDY,
        layer=None,
        phase=None,
    )
    return find_remedies(outcomes_of(tried, rows, FACTS))


@pytest.mark.parametrize("steps_of_visit", [STEPS, 1])
@ask_each(
    ("unmodified", "changed", "saved"),
    [
        ((10.0, 10.0, 10.0, 40.0), (10.0,), 1 - 10 / 17.5),  # the pace stays
        ((10.0,), (5.0, 5.0, 5.0, 25.0), 0.0),  # the pace halves, and the cost does not
        ((10.0,), (8.0,), 0.2),
    ],
)
def test_a_saving_is_of_the_time_of_all_steps(unmodified, changed, saved, steps_of_visit):
    """Also where steps are long, so that a visit has a single one."""
    rows = step_rows(unmodified, changed, steps_of_visit=steps_of_visit)
    (saving,) = remedies_of(rows).savings
    ((_, gain),) = saving.gains
    assert gain.value == pytest.approx(saved, abs=0.02)
    assert (saving.verdict == Verdict.CONFIRMED) == (saved > 0)


def test_what_avoids_waits_beside_other_work_is_no_headline():
    rows = step_rows((20.0,), (10.0,), waits=0.3)
    remedies = remedies_of(rows)
    assert [saving.factor for saving in remedies.beside_work] == [FACTOR]
    assert remedies.helping == ()
    assert saving_sentence(remedies, Axis()) is None
    shown = remedy_table(remedies, Axis())
    assert not shown.rows
    assert shown.sentence.startswith("While other work runs on this machine: ")
    assert "on a quiet machine is not known" in shown.sentence
    (saving,) = remedies.beside_work
    found = describe_saving(saving, SimpleNamespace(curve=SimpleNamespace(conditions=(BATCH,))))
    assert (found.what.partition(":")[0], found.sure) == ("while other work runs", "not proven")


@ask_each(
    ("waits", "changed_waits", "is_beside_work"),
    [
        (1.0, 0.4, True),  # all visits of both wait, as beside a compiler
        (0.8, 0.05, True),
        (0.1, 0.1, False),  # a shorter step waits less in proportion: the saving is another
        (0.1, 0.0, False),
    ],
)
def test_a_saving_is_of_the_waits_where_the_waits_avoided_make_half_of_it(
    waits, changed_waits, is_beside_work
):
    remedies = remedies_of(step_rows((20.0,), (10.0,), waits, changed_waits=changed_waits))
    assert [saving.beside_work for saving in remedies.savings] == [is_beside_work]
    assert bool(remedies.helping) == (not is_beside_work)


def test_the_same_on_a_quiet_machine_is_the_headline():
    remedies = remedies_of(step_rows((20.0,), (10.0,)))
    assert [saving.factor for saving in remedies.helping] == [FACTOR]
    assert "-50 % of the step" in saving_sentence(remedies, Axis())
