"""The catalogue of factors: what every one says, and what the budget and a recording know of it."""

import pkgutil
from dataclasses import replace
from itertools import chain, product

from curvescope.experiments import factors
from curvescope.experiments.budget import Budget
from curvescope.experiments.factor import Factor, Target
from curvescope.experiments.factors import FACTORS, names_of
from curvescope.experiments.replay.operator_kinds import on_cuda
from curvescope.profiling.hardware import heap
from curvescope.profiling.hardware.locked_clocks import clocks_may_be_locked
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.recording.experiments import Scope, Stage

from ..tables import ask_each
from .planted_experiments import experiment

EVERY = list(product(FACTORS, ("cpu", "cuda:0")))
# Remedies that set something in one place, whatever they are for.
OF_THE_PROGRAM = {"kept_memory", "expandable_segments", "malloc_async"}
OF_THE_PROGRAM |= {"fused_optimizer", "foreach_optimizer", "prepacked_linear", "loader_workers"}
EXPERIMENT_ONLY = {"cold_caches", "warm_caches", "pauses", "locked_clock", "usual_values"}
EXPERIMENT_ONLY |= {"one_expert"}
EXPERIMENT_ONLY |= {"smaller_memory", "replayed_operators", "filled_wave", "no_update"}


def test_every_file_describes_factors_and_no_two_have_one_name():
    described = {
        module.name: [
            one.name
            for one in vars(getattr(factors, module.name)).values()
            if isinstance(one, Factor)
        ]
        for module in pkgutil.iter_modules(factors.__path__)
    }
    assert all(described.values())
    assert sorted(chain.from_iterable(described.values())) == list(FACTORS)
    assert all(factor.term or factor.step for factor in FACTORS.values())


@ask_each("scope", [Scope.TERM, Scope.STEP])
def test_every_factor_says_what_it_changes_and_how_a_user_sets_it(scope):
    for name, device in product(names_of(scope), ("cpu", "cuda:0")):
        facts = FACTORS[name].facts(scope, device)
        assert (facts.name, bool(facts.what)) == (name, True)
        assert (facts.remedy is None) == (facts.how is None) == (name in EXPERIMENT_ONLY)
        assert not facts.remedy or "{where}" in facts.remedy or name in OF_THE_PROGRAM
        assert not (facts.levels and facts.brings_about)


@ask_each(("name", "device"), EVERY)
def test_a_factor_takes_no_time_of_the_plan_on_a_device_that_it_refuses(name, device):
    """Neither to set up complete steps nor for rounds of a term: on a GPU, three factors once did
    and refused.
    """
    factor, runs = FACTORS[name], FACTORS[name].refusal(device) is None
    budget = replace(BUDGET, device="cuda" if on_cuda(device) else "cpu")
    assert bool(budget.setup_s(name)) == (runs and factor.step is not None)
    alone = experiment(stage=Stage.SCREEN, factors=())
    with_factor = replace(alone, factors=(name,))
    assert (budget.shortest_s(with_factor) > budget.shortest_s(alone)) == runs


class _Anything:
    """A diagnosis whose step takes no time, and that has no terms."""

    curve = terms = None


BUDGET = Budget(_Anything(), "cpu", 60.0)


@ask_each(("name", "device"), EVERY)
def test_steps_can_be_changed_on_every_device_that_the_plan_keeps_time_for(
    name, device, monkeypatch
):
    monkeypatch.setattr(heap, "can_change", lambda: True)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr("curvescope.experiments.factors.processor.physical_cores", lambda: 4)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    factor = FACTORS[name]
    if factor.step is not None and factor.refusal(device) is None:
        steps = Configuration.of_step("steps.py:make_step", device)
        code = {3: "none", 4: "shared"}  # of torch.compile
        with clocks_may_be_locked():
            assert (
                factor.step.reason_against(
                    Target(steps, (3,), {3: 1.0}, lowest_clock_hz=10**9, compiled_code=code)
                )
                is None
            )
    assert set(factor.refuses) < {"cpu", "cuda"}


@ask_each(("device", "most"), [("cpu", 9), ("cuda", 11)])
def test_a_screen_tries_few_that_the_device_has_and_no_two_at_one_place(device, most):
    """Each costs every user seconds."""
    screened = [
        f for f in FACTORS.values() if f.step and f.step.screen and device in f.step.screen_on
    ]
    for changes in ([f.term for f in FACTORS.values()], [f.step for f in screened]):
        places = [
            change.screen for change in changes if change is not None and change.screen is not None
        ]
        assert len(places) == len(set(places))
    assert 5 <= len([f for f in screened if f.refusal(device) is None]) <= most
