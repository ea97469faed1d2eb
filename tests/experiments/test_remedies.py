"""The plan of remedies on machines of known costs: what it tries, what it claims, and how often
that is wrong.
"""

import math
import re
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.statistics import Estimate, pool_variance, share_estimate
from curvescope.analysis.decompose.terms import KERNELS, Key
from curvescope.analysis.diagnosis.remedies import Remedies, _without_refuted, find_remedies
from curvescope.analysis.render.remedies import (
    SavedAt,
    _possible,
    instruction,
    promise,
    remedy_table,
    saving_sentence,
)
from curvescope.analysis.verdicts.savings import Saving, _order
from curvescope.analysis.verdicts.words import Verdict
from curvescope.experiments.budget import Budget
from curvescope.experiments.factors import FACTORS, factor_of
from curvescope.experiments.plan import paces_of
from curvescope.experiments.remedies import RemedyPlan
from curvescope.experiments.situation import Situation
from curvescope.experiments.tried_changes import TriedChange
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.experiments import (
    TIME,
    TIME_IS_UP,
    FactorFacts,
    Scope,
    Stage,
    members,
    name_together,
)
from curvescope.profiling.recording.probes import find_probed

from ..tables import ask_each
from .planted_experiments import outcomes_of, rows_of

BATCHES = (1, 4, 8, 16, 32)
STEP_MS = {batch: 4.0 + 0.5 * batch for batch in BATCHES}
CHANGES_RESULTS = {"bf16_autocast": "products have 8 significant bits"}
CANNOT = {"half_threads", "physical_cores", "channels_last", "inference_mode", "prepacked_linear"}


class Machine:
    """Runs the plan of remedies on complete steps of known times.

    `saves` has, by factor, the share of a step that it saves: a function of the batch size. `noise`
    is the standard deviation of the logarithm of a step's time, `between` that of a process, for
    all of its steps; in a share `slow` of the visits the machine is slower by a third.
    """

    def __init__(self, saves, seed=0, noise=0.05, between=0.0, slow=0.0):
        self.saves, self.noise, self.between, self.slow = saves, noise, between, slow
        self.random = np.random.default_rng(seed)
        self.made, self.outcomes = [], []

    @property
    def remedies(self):
        return find_remedies(self.outcomes)

    def next(self, left_s):
        """The next experiment."""
        plan = RemedyPlan(self.situation(left_s))
        return next(chain(plan.candidates(), plan.together(), plan.further()), None)

    def situation(self, left_s):
        """What a plan is made of."""
        points = [SimpleNamespace(time_ms=SimpleNamespace(value=ms)) for ms in STEP_MS.values()]
        diagnosis = SimpleNamespace(
            curve=SimpleNamespace(conditions=BATCHES, points=points),
            terms=None,
            outcomes=self.outcomes,
            remedies=self.remedies,
            explanations=(),
            fixed_cost=None,
            disturbances=None,
        )
        starts_s = tuple(one.setup_s[""] for one in self.made if one.setup_s)
        budget = Budget(diagnosis, "cpu", left_s, starts_s, paces=paces_of(diagnosis))
        return Situation(diagnosis, tuple(self.made), {}, budget)

    def run(self, seconds=600.0):
        """Run the plan to its end, each experiment for its time."""
        while (experiment := self.next(seconds)) is not None:
            seconds -= experiment.time_limit_s
            self.run_one(experiment)
            assert len(self.made) < 12, self.stages()
        return self

    def run_one(self, experiment, **changed):
        """Run one experiment with the fewest rounds."""
        untested = {
            name: FACTORS[name].refusal("cpu") or "no"
            for name in experiment.factors
            if self.cannot(name)
        }
        done = replace(experiment, untested=untested, done=True, setup_s={"": 1.0}, **changed)
        changes = {name: CHANGES_RESULTS[name] for name in done.factors if name in CHANGES_RESULTS}
        done = replace(done, changed_results=changes)
        rows = pd.concat([self.started(done, start) for start in range(done.starts)])
        facts = {
            name: factor_of(name).facts(Scope.STEP, "cpu")
            for name in done.factors
            if name not in untested
        }
        self.made.append(done)
        self.outcomes += outcomes_of(done, rows, facts, self.outcomes)

    def started(self, experiment, start):
        """Rows of the rounds after one start of the processes."""
        names, rounds = (None, *experiment.factors), experiment.rounds[0]
        speed = {name: np.exp(self.between * self.random.standard_normal()) for name in names}
        times = {
            name: {b: speed[name] * self.time_ms(name, b) for b in experiment.batches}
            for name in names
        }
        seed = int(self.random.integers(1 << 30))
        rows = rows_of(experiment, times, rounds, self.noise, seed=seed, slow=self.slow)
        return rows.assign(round=rows["round"] + start * rounds, process=start)

    def cannot(self, name):
        return name in CANNOT or any(FACTORS[member].refusal("cpu") for member in members(name))

    def time_ms(self, name, batch):
        time_ms = STEP_MS[batch]
        for member in members(name) if name else ():
            time_ms *= 1 - self.saves.get(member, lambda _: 0.0)(batch)
        return time_ms

    def stages(self):
        """What ran: (stage, factors that could be changed)."""
        return [
            (one.stage, tuple(name for name in one.factors if name not in one.untested))
            for one in self.made
        ]


HELPFUL = {
    "fused_optimizer": lambda batch: 0.3 if batch < 8 else 0.1,
    "kept_memory": lambda batch: 0.2,
    "bf16_autocast": lambda batch: -0.5,
}


def test_what_helps_is_screened_confirmed_and_combined():
    machine = Machine(HELPFUL, noise=0.01).run(seconds=200.0)
    stages = machine.stages()
    assert [stage for stage, _ in stages[:3]] == [Stage.SCREEN, Stage.CONFIRM, Stage.REMEDY]
    assert {"fused_optimizer", "kept_memory", "flush_denormal"} <= set(stages[0][1])
    both = name_together(("kept_memory", "fused_optimizer"))
    assert stages[1][1] == ("kept_memory", "fused_optimizer", both)  # as at 32
    assert stages[2][1][0] == both
    assert all(one.functional_kind == TIME and not one.functional for one in machine.made)
    assert [one.batches for one in machine.made[:3]] == [(1, 32), (1, 8, 32), (1, 8, 32)]
    remedies = machine.remedies
    assert [one.factor for one in remedies.helping] == ["kept_memory", "fused_optimizer"]
    assert remedies.together.factor == both
    gains = dict(remedies.together.gains)
    assert gains[1].value == pytest.approx(1 - 0.7 * 0.8, abs=0.02)
    assert gains[32].low < 1 - 0.9 * 0.8 < gains[32].high
    said = saving_sentence(remedies, Axis())
    assert said == (
        "keep freed memory in the process and fuse the optimizer: together -28 % of the step (28 "
        "to 29) at batch 32, -44 % at 1."
    )
    table = remedy_table(remedies, Axis())
    assert [row.do for row in table.rows] == [
        "keep freed memory in the process",
        "fuse the optimizer",
        "1 and 2 together",
    ]
    assert table.sentence.startswith("None of the 8 other changes tried ")


def test_a_change_that_sets_what_a_better_one_sets_does_not_join_it():
    helpful = {
        "fused_optimizer": lambda _: 0.3,
        "foreach_optimizer": lambda _: 0.2,
        "kept_memory": lambda _: 0.1,
    }
    machine = Machine(helpful, noise=0.01).run(seconds=200.0)
    sets = {name for one in machine.made for name in one.factors if len(members(name)) > 1}
    assert {name_together(("fused_optimizer", "kept_memory"))} <= sets
    assert not any({"fused_optimizer", "foreach_optimizer"} <= set(members(name)) for name in sets)


def test_what_changes_results_is_shown_and_joins_nothing():
    helpful = {"bf16_autocast": lambda _: 0.4, "kept_memory": lambda _: 0.1}
    remedies = Machine(helpful, noise=0.01).run(seconds=200.0).remedies
    assert [one.factor for one in remedies.helping] == ["bf16_autocast", "kept_memory"]
    assert remedies.together is None
    assert remedies.best.factor == "kept_memory"
    first, _ = remedy_table(remedies, Axis()).rows
    assert first.costs == "changes results: products have 8 significant bits"


def test_a_change_that_does_not_add_stays_out_of_the_set():
    """Both save the same 20 %: with one of them there is nothing left for the other."""

    class Same(Machine):
        def time_ms(self, name, batch):
            saves = {"kept_memory", "flush_denormal"} & set(members(name) if name else ())
            return STEP_MS[batch] * (0.8 if saves else 1.0)

    remedies = Same({}, noise=0.005).run(seconds=200.0).remedies
    assert {one.factor for one in remedies.helping} == {"kept_memory", "flush_denormal"}
    assert remedies.together is None


@ask_each(
    ("further", "adds"),
    [
        ((-0.02, -0.021, -0.019, -0.02), True),
        ((-0.1, 0.06, -0.07, 0.03), False),  # the same mean, of a machine that varies more
        ((-0.005, -0.006, -0.004, -0.005), False),  # too little, however sure
    ],
)
def test_a_change_adds_what_chance_does_not_explain(further, adds):
    before = ((-0.2,), (-0.25,), (-0.15,), (-0.2,))
    both = tuple((start[0] + more,) for start, more in zip(before, further, strict=True))
    experiment = SimpleNamespace(number=1, functional_kind=TIME, stage=Stage.CONFIRM)

    def change(ratios):
        outcome = SimpleNamespace(experiment=experiment, ratios=ratios)
        return TriedChange("a change", (), (outcome,), None, largest=1, only_largest=False)

    assert change(both).adds_to(change(before)) == adds


def test_a_set_with_a_member_that_is_not_shown_to_help_is_not_shown():
    machine = Machine(HELPFUL, noise=0.01).run(seconds=200.0)
    whole = machine.remedies
    alone = tuple(replace(one, verdict=Verdict.UNDECIDED, proven=()) for one in whole.savings[1:])
    assert whole.together is not None
    assert replace(whole, savings=(whole.savings[0], *alone)).together is None


def test_where_nothing_helps_it_says_so_with_an_interval():
    machine = Machine({}, noise=0.002).run(seconds=90.0)
    assert {stage for stage, _ in machine.stages()} == {Stage.SCREEN}
    remedies = machine.remedies
    assert remedies.best is None
    assert {one.verdict for one in remedies.attempts} == {Verdict.REFUTED}
    said = remedy_table(remedies, Axis()).sentence
    assert said.startswith(
        f"None of {len(remedies.attempts)} changes tried saves 2 % at batch 1, 32: at most "
    )


def test_what_stays_possible_is_named():
    """Three rounds of steps that vary by a fifth tell little."""
    machine = Machine({}, noise=0.2)
    machine.run_one(machine.next(90.0))
    said = remedy_table(machine.remedies, Axis()).sentence
    assert " is shown to save anything at batch 1, 32; not ruled out: " in said


def test_torch_compile_waits_for_its_time():
    short, long = (
        Machine({}, noise=0.01).run(seconds=60.0),
        Machine({}, noise=0.01).run(seconds=300.0),
    )
    assert not any("compiled" in factors for _, factors in short.stages())
    assert (Stage.CONFIRM, ("compiled",)) in long.stages()


def test_what_the_time_did_not_reach_is_tried_once_more():
    machine = Machine({}, noise=0.01)
    first = machine.next(300.0)
    machine.made.append(
        replace(first, done=False, untested=dict.fromkeys(first.factors, TIME_IS_UP))
    )
    second = machine.next(300.0)
    assert (second.stage, second.factors) == (Stage.SCREEN, first.factors)
    machine.made.append(
        replace(second, done=False, untested=dict.fromkeys(first.factors, TIME_IS_UP))
    )
    assert machine.next(30.0) is None


def test_slow_steps_are_screened_at_the_largest_batch_size_alone(monkeypatch):
    """One trains there: with fewer changes, if need be, rather than at a size that
    takes no time.
    """
    monkeypatch.setitem(STEP_MS, 32, 3000.0)
    first = Machine({}).next(74.0)
    assert (first.batches, first.starts, first.rounds) == ((32,), 1, (2, 2))
    assert len(first.factors) >= 2


def test_one_start_screens_all_changes_of_slow_steps_and_those_that_lead_share_fresh_starts(
    monkeypatch,
):
    """A start takes several of their steps: two of few changes would leave most untried."""
    monkeypatch.setitem(STEP_MS, 32, 600.0)
    saves = {"bf16_autocast": lambda _: 0.3, "kept_memory": lambda _: 0.1}
    machine = Machine(saves, noise=0.01)
    machine.run_one(machine.next(150.0))
    (first,) = machine.made
    assert (first.batches, first.starts) == ((32,), 1)
    possible = {"kept_memory", "fused_optimizer", "foreach_optimizer", "one_thread"}
    possible |= {"other_layout", "bf16_autocast", "flush_denormal"}
    assert possible <= set(first.factors)
    then = machine.next(50.0)
    assert (then.batches, then.factors) == ((32,), ("bf16_autocast", "kept_memory"))
    assert (then.starts, then.rounds) >= (4, (2, 2))


@pytest.mark.parametrize(("optimizer_ms", "first"), [(10.0, False), (100.0, True)])
def test_a_change_that_can_save_little_of_the_largest_step_is_tried_last(
    monkeypatch, optimizer_ms, first
):
    """Of 600 ms the optimizer takes 10, or 100: no form of it saves more than that."""
    monkeypatch.setitem(STEP_MS, 32, 600.0)
    situation = Machine({}).situation(150.0)
    key = Key(None, "optimizer", KERNELS)
    values_ms = np.full((len(BATCHES), 1), optimizer_ms)
    terms = SimpleNamespace(keys=(key,), values_ms=values_ms, conditions=BATCHES)
    vars(situation.diagnosis).update(terms=terms, recorded=SimpleNamespace(groups={}))
    names = RemedyPlan(situation)._order(costly=False)
    assert (names.index("fused_optimizer") < names.index("bf16_autocast")) is first


@pytest.mark.parametrize(
    ("left_s", "rounds", "starts"), [(120.0, (2, 2), 4), (60.0, (1, 1), 3), (40.0, (1, 1), 2)]
)
def test_fresh_rounds_of_a_change_are_planned_with_the_time_that_its_steps_took(
    monkeypatch, left_s, rounds, starts
):
    """Beside other work a step takes 6 s, and on one thread 1.2 s: a start and a round take 8.4 s.

    Three starts of one round prove more than two of two; of 12 s a round, 60 s would hold neither.
    """
    monkeypatch.setitem(STEP_MS, 32, 6000.0)
    machine = Machine({"one_thread": lambda _: 0.8}, noise=0.01)
    screen = replace(machine.next(150.0), factors=("one_thread",), rounds=(2, 2), starts=1)
    machine.run_one(screen)
    fresh = machine.next(left_s)
    assert (fresh.stage, fresh.factors) == (Stage.CONFIRM, ("one_thread",))
    assert (fresh.rounds, fresh.starts) == (rounds, starts)


@ask_each("prevail", [True, False])
def test_where_threads_mostly_waited_for_a_core_fewer_threads_are_tried_first(prevail):
    situation = Machine({}).situation(150.0)
    vars(situation.diagnosis)["disturbances"] = SimpleNamespace(prevail=prevail)
    first = RemedyPlan(situation)._order(costly=False)[:3]
    assert ("one_thread" in first) is prevail


def test_where_slow_steps_have_no_saving_further_starts_rule_it_out(monkeypatch):
    """One start of each in the screen says nothing alone; fresh ones say how much starts differ."""
    monkeypatch.setitem(STEP_MS, 32, 160.0)
    machine = Machine({"one_thread": lambda _: -0.9}, noise=0.001)
    machine.run_one(machine.next(90.0))
    assert {one.at_most for one in machine.remedies.attempts} == {math.inf}
    then = machine.next(60.0)
    assert (then.stage, then.batches) == (Stage.REMEDY, (32,))
    assert "one_thread" not in then.factors
    machine.run_one(then)
    assert all(one.at_most < 0.03 for one in machine.remedies.attempts)
    (slow,) = (one for one in machine.remedies.attempts if one.factor == "one_thread")
    assert slow.gains[0][1].low < -0.9 < slow.gains[0][1].high
    said = remedy_table(machine.remedies, Axis()).sentence
    assert re.fullmatch(r"None of 10 changes tried saves 2 % at batch 32: at most .*", said)
    assert machine.next(60.0) is None or machine.next(60.0).stage != Stage.REMEDY


def test_a_change_that_ran_at_other_sizes_only_is_screened_where_slow_steps_train(monkeypatch):
    """A test of a bend has kept_memory at its own sizes; one trains at the largest."""
    machine = Machine({"kept_memory": lambda _: 0.2}, noise=0.001)
    machine.run_one(replace(machine.next(90.0), batches=(4, 8), factors=("kept_memory",)))
    monkeypatch.setitem(STEP_MS, 32, 300.0)
    screen = machine.next(90.0)
    assert (screen.stage, screen.batches) == (Stage.SCREEN, (32,))
    assert "kept_memory" in screen.factors


def test_a_small_bound_is_said_once_for_all_changes():
    small = [
        replace(
            saving_of(factor),
            verdict=Verdict.UNDECIDED,
            gains=((32, Estimate(0.001, -0.02, high, 0.9)),),
        )
        for factor, high in (("kept_memory", 0.029), ("flush_denormal", 0.01))
    ]
    said = remedy_table(Remedies(savings=tuple(small)), Axis()).sentence
    assert said == (
        "None of 2 changes tried is shown to save anything at batch 32; by the intervals none "
        "saves more than 2.9 %."
    )


@pytest.mark.parametrize(("step_ms", "rounds"), [(160.0, 6), (250.0, 5), (600.0, 2)])
def test_a_start_has_more_rounds_of_shorter_steps(monkeypatch, step_ms, rounds):
    """Steps differ by what the heap keeps: two of many are no sample of it."""
    monkeypatch.setitem(STEP_MS, 32, step_ms)
    machine = Machine({"kept_memory": lambda _: 0.1}, noise=0.001)
    machine.run_one(machine.next(76.0))
    assert machine.next(50.0).rounds == (rounds, rounds)


def test_short_of_time_fresh_rounds_are_of_the_batch_size_where_the_best_change_leads(monkeypatch):
    machine = Machine({"one_thread": lambda batch: 0.3 if batch == 32 else 0.05})
    machine.run_one(machine.next(90.0))
    monkeypatch.setitem(STEP_MS, 8, 3000.0)
    monkeypatch.setitem(STEP_MS, 1, 3000.0)
    assert machine.next(30.0).batches == (32,)


def test_short_of_time_what_helps_at_the_largest_size_comes_before_what_helps_more_elsewhere(
    monkeypatch,
):
    """One trains there: a large saving at batch 1 is no answer for steps of batch 32."""
    saves = {
        "fused_optimizer": lambda batch: 0.4 if batch == 1 else 0.0,
        "kept_memory": lambda batch: 0.1,
    }
    machine = Machine(saves, noise=0.001)
    machine.run_one(machine.next(90.0))
    assert machine.made[0].batches == (1, 32)
    monkeypatch.setitem(STEP_MS, 32, 500.0)
    then = machine.next(60.0)
    assert (then.batches, then.factors[0]) == ((32,), "kept_memory")


def test_short_of_time_the_best_change_alone_gets_the_starts_that_prove_it(monkeypatch):
    """Two starts of each of three changes, which fit the time as well, prove none of them."""
    saves = {"kept_memory": lambda _: 0.2, "one_thread": lambda _: 0.1}
    machine = Machine(saves, noise=0.001)
    machine.run_one(machine.next(90.0))
    monkeypatch.setitem(STEP_MS, 32, 300.0)
    then = machine.next(30.0)
    assert (then.batches, then.factors) == ((32,), ("kept_memory",))
    assert then.starts >= 4
    assert machine.next(60.0).factors[:2] == ("kept_memory", "one_thread")  # where these fit


def test_a_screen_whose_changes_vary_does_not_widen_what_fresh_rounds_say():
    """A start of a screen has one round, and may fall on a busy second."""
    machine = Machine({"kept_memory": lambda _: 0.2}, noise=0.2)
    machine.run_one(replace(machine.next(90.0), batches=(32,)))
    machine.noise = 0.005
    fresh = machine.next(60.0)
    machine.run_one(replace(fresh, factors=("kept_memory",), batches=(32,), starts=4))
    saving = next(one for one in machine.remedies.savings if one.factor == "kept_memory")
    (gain,) = (gain for batch, gain in saving.gains if batch == 32)
    assert gain.low > 0.19
    assert saving.proven == (32,)


def test_a_start_of_processes_counts_once_and_a_group_that_varies_more_has_its_own_variance():
    steady, wild = np.log([0.90, 0.91, 0.89, 0.90]), np.log([0.7, 1.1, 0.9, 0.9])
    pooled = pool_variance([steady, wild])
    assert pooled[1] == 6
    assert pooled[0] == pytest.approx((np.var(steady, ddof=1) + np.var(wild, ddof=1)) / 2)
    # Student's t with 3 degrees of freedom: 3.182
    half = 3.182 * np.std(steady, ddof=1) / 2
    alone = share_estimate(steady, pool_variance([steady]))
    assert (alone.value, alone.low) == pytest.approx(
        (1 - np.exp(steady.mean()), 1 - np.exp(steady.mean() + half)), 1e-3
    )
    beside, own = (share_estimate(one, pooled) for one in (steady, wild))
    assert own.high - own.low > beside.high - beside.low > alone.high - alone.low
    for others in (
        (0.0, 0.0),
        pooled,
    ):  # one start says nothing of its process, whatever others vary
        one = share_estimate(steady[:1], others)
        assert (one.value, one.low, one.high, one.p) == (
            pytest.approx(0.1),
            -math.inf,
            math.inf,
            1.0,
        )


def false_claims(sweeps, **machine):
    """Number of null sweeps that claim a saving of 2 % or more."""
    claims = 0
    for seed in range(sweeps):
        remedies = Machine({}, seed=seed, **machine).run(seconds=60.0).remedies
        shown = [*remedies.helping, *filter(None, [remedies.together])]
        claims += any(one.largest[1].value >= 0.02 for one in shown)
    return claims


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("machine", "sweeps", "most"),
    [
        ({"noise": 0.02, "slow": 0.3}, 10, 1),
        ({"noise": 0.02, "slow": 0.3}, 30, 3),
        ({"noise": 0.01, "between": 0.03}, 30, 3),
    ],
)
def test_null_sweeps_claim_nothing(machine, sweeps, most):
    """2 of 100 at most: of 30 sweeps, 4 or more would come with a chance of under 1 %, of 10
    sweeps, 2 or more with 2 %.
    """
    assert false_claims(sweeps, **machine) <= most


def test_what_the_profile_of_a_single_size_suggests_is_tried_first():
    """Where time is short the rest is not reached."""
    situation = Machine(HELPFUL).situation(60.0)
    suggested = {"fused_optimizer": 0.69, "bf16_autocast": 0.1, "channels_last": 0.01}
    told = next(RemedyPlan(replace(situation, suggested=suggested)).candidates()).factors
    assert told[:2] == ("fused_optimizer", "bf16_autocast")
    usual = next(RemedyPlan(situation).candidates()).factors
    assert usual[0] != "fused_optimizer"


class OfProgram(Machine):
    """The same for a program, of which a run takes 6 s beside its steps."""

    def __init__(self, saves, suggested, **noise):
        super().__init__(saves, **noise)
        self.suggested = suggested

    def situation(self, left_s):
        situation = super().situation(left_s)
        budget = replace(situation.budget, run_s=6.0)
        return replace(situation, budget=budget, suggested=self.suggested)


SUGGESTED = {"fused_optimizer": 0.69, "channels_last": 0.01}


def test_what_a_programs_profile_suggests_gets_all_starts_at_the_largest_size_without_a_screen():
    """Every visit of a program is a start: a second round would count once with the first."""
    machine = OfProgram({"fused_optimizer": lambda _: 0.3}, SUGGESTED, noise=0.05, between=0.05)
    first = machine.next(150.0)
    assert (first.stage, first.factors) == (Stage.CONFIRM, ("fused_optimizer",))
    assert (first.batches, first.rounds) == ((BATCHES[-1],), (1, 1))
    assert first.starts >= 5
    machine.run_one(first)
    assert [one.factor for one in machine.remedies.helping] == ["fused_optimizer"]
    following = machine.next(150.0)
    assert following.stage == Stage.SCREEN
    assert "fused_optimizer" not in following.factors


def test_a_suggestion_with_which_the_program_fails_leaves_its_place_to_the_next(monkeypatch):
    """As bf16 where an operator of the program has none: TF32 saves next to as much."""
    suggested = {"fused_optimizer": 0.69, "bf16_autocast": 0.6}
    machine = OfProgram({"bf16_autocast": lambda _: 0.3}, suggested)
    monkeypatch.setitem(globals(), "CANNOT", {*CANNOT, "fused_optimizer"})
    first = machine.next(150.0)
    machine.run_one(first)
    second = machine.next(150.0)
    assert (first.factors, second.factors) == (("fused_optimizer",), ("bf16_autocast",))
    assert second.stage == Stage.CONFIRM


def test_without_a_suggestion_a_program_has_its_screen():
    weak = {"fused_optimizer": 0.04}
    assert OfProgram({}, weak).next(150.0).stage == Stage.SCREEN


@pytest.mark.slow
def test_what_a_profile_suggests_and_does_not_help_is_not_claimed():
    claims = 0
    for seed in range(20):
        machine = OfProgram({}, SUGGESTED, seed=seed, noise=0.02, between=0.05)
        claims += any(one.largest[1].value >= 0.02 for one in machine.run(150.0).remedies.helping)
    assert claims <= 2


def test_nothing_is_claimed_before_fresh_rounds():
    machine = Machine(HELPFUL, noise=0.01)
    machine.run_one(machine.next(90.0))
    assert machine.remedies.helping == ()
    assert Remedies().best is None


def test_a_saving_of_a_single_start_is_printed_without_an_interval():
    assert (
        SavedAt(8, Estimate(0.3, -math.inf, math.inf, 1.0), proven=False).text
        == "30 % (no interval)"
    )
    assert SavedAt(8, Estimate(0.3, 0.24, 0.35, 0.01), proven=True).text == "30 % (24 to 35)"


def test_a_change_that_slows_the_largest_size_is_not_recommended_without_its_cost():
    slower = Estimate(-0.45, -0.55, -0.35, 0.001)
    assert SavedAt(32, slower, proven=False).text == "costs 45 % (35 to 55)"
    machine = Machine({"fused_optimizer": lambda batch: 0.3 if batch < 8 else -0.4}, noise=0.01)
    said = saving_sentence(machine.run(seconds=200.0).remedies, Axis())
    assert re.fullmatch(
        r"fuse the optimizer: -30 % of the step \(.*\) at batch 1; "
        r"but it costs 4\d % \(.*\) at 32\.",
        said,
    )


def test_what_a_few_starts_showed_to_cost_time_is_called_a_cost_and_comes_last():
    """Without an interval nothing is ruled out, but it promises nothing either."""
    few = Estimate(-1.01, -math.inf, math.inf, 1.0)
    slower = SimpleNamespace(at_most=None, gains=((32, few),))
    some = SimpleNamespace(at_most=0.05, gains=((32, Estimate(0.01, -0.03, 0.05, 0.5)),))
    assert sorted((slower, some), key=promise, reverse=True) == [some, slower]
    said = _possible(slower, Axis())
    assert said == "costs 101 % at batch 32 in too few starts for an interval"


def saving_of(name, **gains):
    """A change that saves shares of steps, by batch size, each proven."""
    sizes = {int(batch[1:]): share for batch, share in gains.items()}
    return Saving(
        factor=name,
        facts=FactorFacts(name=name, what=name, remedy=f"{name} it"),
        verdict=Verdict.CONFIRMED,
        gains=tuple((at, Estimate(x, x - 0.01, x + 0.01, 1e-6)) for at, x in sizes.items()),
        proven=tuple(sizes),
        fresh=True,
    )


def test_what_saves_at_the_largest_size_leads_though_another_saves_more_elsewhere():
    """One trains there: a larger saving at batch 1 comes second."""
    small, large = saving_of("small", b1=0.4), saving_of("large", b1=0.1, b32=0.15)
    remedies = Remedies(savings=(small, large))
    assert remedies.best is large
    assert (
        saving_sentence(remedies, Axis()) == "large it: -15 % of the step (14 to 16) at batch 32."
    )
    assert sorted((small, large), key=_order) == [large, small]


def test_padding_saves_nothing_where_it_changes_nothing_or_the_sweep_measured_no_faster_size():
    """It was said to save 3 % at 64, which is a multiple of 8."""
    saving = replace(saving_of("padded_batch", b20=0.05, b25=0.5, b64=0.03), multiple=8)
    times_ms = {20: 10.0, 24: 9.99, 25: 10.0, 32: 5.0, 64: 9.0}
    kept = _without_refuted(saving, times_ms)
    assert (kept.proven, kept.verdict) == ((25,), Verdict.CONFIRMED)
    assert instruction(kept) == "pad the step from 25 to 32"
    nothing = _without_refuted(replace(saving, proven=(20, 64)), times_ms)
    assert (nothing.proven, nothing.verdict) == ((), Verdict.UNDECIDED)
    other = saving_of("large", b64=0.03)
    assert _without_refuted(other, times_ms) is other


def test_a_size_that_was_probed_is_not_taken_for_the_largest():
    """The largest is the largest that the user asked for."""
    situation = Machine({}).situation(600.0)
    assert RemedyPlan(situation).needed_s() > 0
    probing = replace(situation, probed=frozenset({BATCHES[-1]}))
    first = next(RemedyPlan(probing).candidates())
    assert first.batches[-1] == BATCHES[-2]
    meta = {"probes": {"visits": [{"batch": 257, "duration_ns": [1]}]}}
    assert (find_probed(meta), find_probed({})) == ({257}, frozenset())
