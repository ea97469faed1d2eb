"""On a GPU every cause can be confirmed and refuted within the default time, at its own thresholds,
on 80 GB.
"""

import json

import pytest

from curvescope.analysis.causes import interventions

from .gpu_feasibility import DEFAULT_S, RESULT, SCENARIOS, table

ON_A_CPU = {
    "page faults",
    "CPU contention",
    "idle threads",
    "start of threads",
    "values of the operands",
}
ONLY_BY_EXPERIMENT = {"size of one call"}  # it claims nothing
OF_FOUR_SIZES = {"padding to blocks"}  # a sweep here has fewer
OF_MIXTURES = {"weights of experts"}  # no step here is one
OF_COMPILED_STEPS = {"recompile limit", "kernels of dynamic shapes"}  # no step here is compiled


def test_every_cause_that_claims_on_a_gpu_has_a_scenario():
    tested = {cause for cause, one in interventions().items() if one.untested is None}
    others = ON_A_CPU | ONLY_BY_EXPERIMENT | OF_FOUR_SIZES | OF_MIXTURES | OF_COMPILED_STEPS
    assert tested - others == {one.cause for one in SCENARIOS}


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: f"{one.cause}: {one.at}")
def test_an_experiment_confirms_the_cause_and_one_refutes_it_within_the_default_time(scenario):
    """`python -m tests.experiments.gpu_feasibility` writes the stored row anew."""
    row = table(scenario)
    for world in ("confirmed", "refuted"):
        assert row[world]["factor"] is not None
        assert row[world]["seconds"] <= DEFAULT_S
    assert row in json.loads(RESULT.read_text())
