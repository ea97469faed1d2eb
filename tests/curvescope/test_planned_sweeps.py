"""What `sweep` plans, without measuring it."""

import os

import pytest

from curvescope.cli import main
from curvescope.profiling.measure import sweep_plan
from curvescope.profiling.workload import framework_step

CACHE = "JAX_COMPILATION_CACHE_DIR"


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Run `sweep` with further words; returns its plan, and the environment of its visits."""

    def plan(*words):
        seen = []
        monkeypatch.setattr(
            sweep_plan,
            "run_plan",
            lambda folder, plan, *rest: seen.append((plan, {**os.environ})) or [],
        )
        main(["sweep", "alexnet", "--device", "cpu", "-o", str(tmp_path / "r"), *words])
        return seen[0]

    monkeypatch.delenv(CACHE, raising=False)
    return plan


@pytest.mark.parametrize(
    ("words", "least"),
    [((), 6), (("--time-limit", "25"), 1), (("--protocol", "addfor", "--time-limit", "25"), None)],
)
def test_a_limit_that_is_given_holds_after_one_round(planned, words, least):
    """Of JAX on an H100 six visits of 28 s were made where 25 s were given."""
    plan, _ = planned(*words)
    assert plan.protocol.rounds[0] == (least or plan.protocol.rounds[1])


def test_visits_keep_what_jax_compiled(planned, monkeypatch):
    monkeypatch.setattr(framework_step, "find_spec", lambda _: True)  # JAX is no package of tests
    _, environment = planned("--framework", "torch,jax")
    assert CACHE in environment
    assert CACHE not in os.environ


def test_visits_of_pytorch_have_no_variable_of_jax(planned):
    assert CACHE not in planned()[1]
