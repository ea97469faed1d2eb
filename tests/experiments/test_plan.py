"""Which experiment comes next, and the answer that comes out, on machines of known costs."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from curvescope.analysis.decompose.functionals import FIXED_COST
from curvescope.analysis.diagnosis.explain import explain, explain_again
from curvescope.analysis.render.answer_words import sentence
from curvescope.analysis.render.headline import headline
from curvescope.analysis.verdicts.words import Reproduction, Verdict
from curvescope.experiments import stages
from curvescope.experiments.budget import Budget
from curvescope.experiments.case import TermCase
from curvescope.experiments.plan import next_experiment, open_terms
from curvescope.experiments.recorded_steps import compiling_s
from curvescope.profiling.hardware.locked_clocks import NOT_ASKED, clocks_may_be_locked
from curvescope.profiling.measure import visit
from curvescope.profiling.measure.protocol import EXPERIMENT
from curvescope.profiling.recording.experiments import Scope, Stage
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..analysis.causes.planted_causes import CPU, Plan
from ..curvescope.recordings import write_planted
from ..tables import ask_each
from .machine import Machine
from .planted_experiments import experiment, operator

TERM = "conv3 backward"
CPU_META = {"device": {"kind": "cpu", "name": CPU.name}}


def jump(batch):
    """Cost of conv3 backward: twice as much per sample from 16 on."""
    return (3.0 if batch < 16 else 6.0) * batch


def line(batch):
    return 3.0 * batch


def faults(_, duration_ns):
    return {
        "cpu_time_ns": duration_ns,
        "run_queue_wait_ns": 0,
        "system_time_ns": 40_000_000,
        "page_faults": 53_250,
    }


JUMP = Plan(kernel=lambda b: ("mkl_sgemm", jump(b), {}), hardware=CPU)
FAULTY = Plan(kernel=lambda b: ("mkl_sgemm", 80.0 + 3.0 * b, {}), host_use=faults, hardware=CPU)


@pytest.fixture
def record(tmp_path):
    """Writes a planted sweep with operators of conv3 backward, and of other terms."""

    def write(plan, *others, of_others="aten::mm"):
        path = write_planted(tmp_path / "r", plan, **CPU_META)
        operators = {"conv3": "aten::mm"}
        rows = [
            operator(b, operators.get(layer, of_others), layer=layer, phase=phase)
            for layer, phase in (("conv3", "backward"), *others)
            for b in (4, 8, 16)
        ]
        with RecordingWriter.extend(path) as writer:
            writer.write("operators", columns_of(rows))
        return path

    return write


def test_a_bend_goes_through_all_stages_to_a_confirmed_cause_and_a_remedy(record):
    path = record(JUMP)
    alone = {
        ("conv3 backward", None): jump,
        ("conv3 backward", "onednn"): line,
        ("conv3 backward", "one_thread"): jump,
    }
    machine = Machine(path, alone).run()
    of_term = [stage for label, stage, _ in machine.stages() if label == "conv3 backward"]
    assert of_term[:3] == [Stage.ALONE, Stage.SCREEN, Stage.CONFIRM]
    assert Stage.GRID in of_term
    confirm = next(
        one for one in machine.stages() if one[1] == Stage.CONFIRM and one[0] == "conv3 backward"
    )
    assert confirm[2] == ("onednn",)
    diagnosis = explain(open_recording(path))
    answer = diagnosis.answers[0]
    assert (answer.where, answer.cause, answer.verdict) == (
        "conv3 backward",
        "slow library call",
        Verdict.CONFIRMED,
    )
    assert answer.remedy.what == "run conv3 backward through oneDNN"
    assert answer.remedy.term_gain.value == pytest.approx(0.5, abs=0.02)
    assert answer.remedy.step_gain is None
    (evidence,) = answer.evidence
    assert evidence.reproduction == Reproduction.REPRODUCES
    assert (evidence.shape.kind, evidence.shape.at) == ("jump", 16)
    assert [one.verdict for one in evidence.factors][:1] == [Verdict.CONFIRMED]
    assert sentence(answer).startswith("The excess from 8 to 16 (+41.0 ms)")
    assert (
        "is mostly conv3 backward: slow library call; when products run through oneDNN instead of "
        "MKL, it is gone (" in sentence(answer)
    )
    assert "Run conv3 backward through oneDNN: -50 % of its time at batch 16." in sentence(answer)


@pytest.mark.slow
def test_what_helped_a_term_is_measured_on_the_complete_step(record):
    path = record(JUMP)
    costs = {("conv3 backward", None): jump, ("conv3 backward", "one_thread"): line}
    costs |= {
        ("the step", None): lambda b: 7.0 + 2.0 * b + jump(b),
        ("the step", "one_thread"): lambda b: 7.0 + 5.0 * b,
    }
    machine = Machine(path, costs).run()
    stages = [
        (label, stage) for label, stage, factors in machine.stages() if "one_thread" in factors
    ]
    of_term, of_step = "conv3 backward", "the step"
    assert stages[:3] == [
        (of_term, Stage.SCREEN),
        (of_term, Stage.CONFIRM),
        (of_step, Stage.REMEDY),
    ]
    answer = explain(open_recording(path)).answers[0]
    assert (answer.cause, answer.where) == ("start of threads", "conv3 backward")
    # 135 → 87 ms
    assert answer.remedy.step_gain.value == pytest.approx(48 / 135, abs=0.02)
    advice = (
        r"Run conv3 backward on one thread: -50 % of its time at batch 16, -3[56] % of "
        r"the step\.$"
    )
    assert re.search(advice, sentence(answer))


@pytest.mark.slow
def test_one_thread_shows_idle_threads_where_it_is_no_faster(record):
    """On one thread the jump is gone, as all sizes take longer than they did on two."""
    path = record(JUMP)
    costs = {("conv3 backward", None): jump, ("conv3 backward", "one_thread"): lambda b: 8.0 * b}
    Machine(path, costs).run()
    assert explain(open_recording(path)).answers[0].cause == "idle threads"


@pytest.mark.slow
def test_one_experiment_on_a_term_tests_all_that_it_makes(record):
    """An excess from 8 to 16 and the fixed cost of 60 ms are of one layer: it runs once, at the
    sizes of both.
    """

    def cost(batch):
        return 60.0 + (3.0 if batch < 16 else 12.0) * batch

    path = record(Plan(kernel=lambda b: ("mkl_sgemm", cost(b), {}), hardware=CPU))
    machine = Machine(
        path, {("conv3 backward", None): cost, ("conv3 backward", "onednn"): line}
    ).run()
    of_term = [one for one in machine.made if one.scope == Scope.TERM]
    assert [one.stage for one in of_term][:3] == [Stage.ALONE, Stage.SCREEN, Stage.CONFIRM]
    assert [one.stage for one in of_term].count(Stage.ALONE) == 1
    assert of_term[0].batches == (4, 8, 16)
    kinds = {of_term[0].functional_kind, *(kind for kind, _ in of_term[0].also)}
    assert {"excess", "fixed cost"} <= kinds
    answers = {answer.functional.kind: answer for answer in explain(open_recording(path)).answers}
    for kind in ("excess", "fixed cost"):
        assert (answers[kind].cause, answers[kind].verdict) == (
            "slow library call",
            Verdict.CONFIRMED,
        )
        assert answers[kind].evidence[0].reproduction == Reproduction.REPRODUCES
    # 252 → 48 ms at 16, 72 → 12 ms at 4
    assert answers["excess"].remedy.term_gain.value == pytest.approx(204 / 252, abs=0.02)
    assert answers["fixed cost"].remedy.term_gain.value == pytest.approx(60 / 72, abs=0.02)


@pytest.mark.slow
def test_what_a_term_does_not_show_alone_suggests_no_factor(record):
    """The step has a fixed cost of 60 ms in the layer, which alone has none: shares of that are
    noise.
    """

    def in_step(batch):
        return 60.0 + (3.0 if batch < 16 else 12.0) * batch

    path = record(Plan(kernel=lambda b: ("mkl_sgemm", in_step(b), {}), hardware=CPU))
    alone = lambda b: in_step(b) - 60.0  # noqa: E731
    costs = {
        ("conv3 backward", name): alone
        for name in (None, "one_thread", "cold_caches", "other_layout")
    }
    machine = Machine(path, costs | {("conv3 backward", "onednn"): line}).run()
    confirms = [
        one for one in machine.made if one.scope == Scope.TERM and one.stage == Stage.CONFIRM
    ]
    assert [one.factors for one in confirms] == [("onednn",)]


@pytest.mark.slow
def test_page_faults_of_the_fixed_cost_are_found_without_being_told(record):
    path = record(FAULTY)
    step = lambda b: 87.0 + 5.0 * b  # noqa: E731
    costs = {("the step", None): step, ("the step", "kept_memory"): lambda b: 51.0 + 5.0 * b}
    machine = Machine(path, costs).run(seconds=90.0)
    assert machine.stages()[0] == ("the step", Stage.CONFIRM, ("kept_memory",))
    diagnosis = explain(open_recording(path))
    answer = diagnosis.answers[-1]
    assert (answer.cause, answer.verdict) == ("page faults", Verdict.CONFIRMED)
    assert answer.where == "conv3 backward"  # the only layer
    pattern = (
        r"The fixed cost of a step \(86\.4 ms\) is mostly conv3 backward: page faults; when freed "
        r"memory stays with the process, most of it is gone \(confirmed, "
    )
    assert re.match(pattern, sentence(answer))
    assert answer.evidence[-1].factors[0].verdict == Verdict.CONFIRMED
    assert answer.remedy.batch == 4
    assert answer.remedy.step_gain.value == pytest.approx(36 / 107, abs=0.02)
    assert re.search(
        r"Keep freed memory: -3[34] % of the step at batch 4\.", sentence(answer)
    )  # 33.6 %


@pytest.mark.slow
def test_a_term_that_shows_nothing_alone_leads_to_complete_steps(record):
    path = record(JUMP)
    step = lambda b: 2.0 + 5.0 + 2.0 * b + jump(b)  # noqa: E731
    costs = {
        ("conv3 backward", None): line,
        ("the step", None): step,
        ("the step", "kept_memory"): step,
    }
    machine = Machine(path, costs).run(seconds=200.0)
    of_excess = [one for one in machine.made if one.functional_kind == "excess"]
    assert [(one.scope, one.stage) for one in of_excess][:2] == [
        (Scope.TERM, Stage.ALONE),
        (Scope.STEP, Stage.SCREEN),
    ]
    answer = explain(open_recording(path)).answers[0]
    assert answer.evidence[0].reproduction == Reproduction.NOT
    assert answer.cause is None
    assert "cause is not known" in sentence(answer)


def test_without_operators_no_term_runs_alone(tmp_path):
    path = write_planted(tmp_path / "r", JUMP, **CPU_META)
    experiment = next_experiment(open_recording(path), 600.0)
    assert experiment is None or experiment.scope == Scope.STEP


@pytest.mark.slow
def test_an_undecided_factor_gets_more_rounds_once(record):
    path = record(JUMP)
    half = lambda b: line(b) if b < 16 else 3.0 * b + 24.0  # noqa: E731
    machine = Machine(
        path, {("conv3 backward", None): jump, ("conv3 backward", "onednn"): half}, noise=0.1
    ).run()
    confirms = [
        one for one in machine.made if one.stage == Stage.CONFIRM and one.scope == Scope.TERM
    ]
    assert len(confirms) == 2
    assert confirms[1].rounds[0] == 2 * confirms[0].rounds[0]


def test_the_plan_is_a_function_of_the_recording_and_keeps_to_the_time(record):
    path = record(JUMP)
    first = next_experiment(open_recording(path), 60.0)
    assert next_experiment(open_recording(path), 60.0) == first
    assert first.time_limit_s <= 60.0
    assert next_experiment(open_recording(path), 0.5) is None


@pytest.mark.slow
def test_an_interrupted_experiment_is_made_once_more(record):
    path = record(JUMP)
    first = next_experiment(open_recording(path), 60.0)
    for number in range(2):
        with RecordingWriter.extend(path) as writer:
            entries = [*writer.meta.get("experiments", ()), {**first.to_entry(), "number": number}]
            writer.update(experiments=entries)
        following = next_experiment(open_recording(path), 60.0)
        assert following is None or (following.stage == first.stage) == (number == 0)


@pytest.mark.slow
def test_open_terms_are_those_that_more_rounds_would_tell(tmp_path):
    clear = write_planted(tmp_path / "clear", JUMP, **CPU_META)
    assert open_terms(explain(open_recording(clear))) == ()
    noisy = write_planted(tmp_path / "noisy", replace(JUMP, jitter=0.4), **CPU_META)
    found = explain(open_recording(noisy))
    terms = open_terms(found)
    assert terms or not found.explanations
    assert not any(share.real for share in terms)


@pytest.mark.slow
def test_a_screen_in_little_time_leaves_out_first_what_the_device_does_not_have(record):
    """On a CPU cuDNN's factors only say why they do not apply; a short screen once had no other
    factor left.
    """
    path = record(JUMP)
    Machine(path, {("conv3 backward", None): jump}).run_one(
        next_experiment(open_recording(path), 60.0)
    )
    recording = open_recording(path)
    diagnosis = explain(recording)
    screens = [
        next_experiment(recording, seconds, diagnosis) for seconds in (60.0, 10.0, 5.0, 4.0, 3.0)
    ]
    whole, *shorter = [
        one.factors for one in screens if one is not None and one.stage == Stage.SCREEN
    ]
    idle = {"cudnn_benchmark", "no_cudnn", "cublaslt", "cublaslt_list"}
    idle |= {"small_workspace", "deterministic"}
    assert idle == set(whole[-len(idle) :])
    assert all(chosen == whole[: len(chosen)] for chosen in shorter)
    assert 0 < len(shorter[-1]) <= len(whole) - len(idle)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_ms", "verdict"), [(12.0, Verdict.CONFIRMED), (66.0, Verdict.UNDECIDED)]
)
def test_the_step_without_the_code_between_its_operators_confirms_that_it_waits_for_the_host(
    record, left_ms, verdict
):
    """What stays of the host's work in a replay refutes nothing; compiling takes longer than the
    time that is left.
    """
    path = record(
        Plan(kernel=lambda b: ("mkl_sgemm", 3.0 * b, {}), idle_ms=lambda b: 60.0, hardware=CPU)
    )
    costs = {
        ("the step", None): lambda b: 67.0 + 5.0 * b,
        ("the step", "replayed_operators"): lambda b: left_ms + 5.0 * b,
    }
    machine = Machine(path, costs).run(seconds=90.0)
    assert machine.stages()[0] == ("the step", Stage.CONFIRM, ("replayed_operators",))
    answer = explain(open_recording(path)).answers[-1]
    assert (answer.cause, answer.verdict, answer.remedy) == ("launch- or host-bound", verdict, None)


@pytest.mark.slow
def test_the_fixed_cost_waits_where_it_would_leave_too_little_to_the_largest_size(record):
    path = record(FAULTY)
    recording = open_recording(path)
    with_time, without = (next_experiment(recording, seconds) for seconds in (90.0, 45.0))
    assert with_time.functional_kind == FIXED_COST
    assert (without.stage, without.functional) == (Stage.SCREEN, ())


@pytest.mark.slow
def test_an_undecided_factor_gets_more_rounds_though_another_one_does_not_fit_the_time(record):
    path = record(replace(FAULTY, idle_ms=lambda b: 30.0))
    half = lambda b: 102.0 + 5.0 * b  # noqa: E731  # the faults claim 32 ms of it
    costs = {("the step", None): lambda b: 117.0 + 5.0 * b, ("the step", "kept_memory"): half}
    machine = Machine(path, costs, noise=0.03).run(seconds=120.0)
    of_faults = [
        one.starts for one in machine.made if "kept_memory" in one.factors and one.functional
    ]
    assert of_faults[1] > of_faults[0]
    assert not any("compiled" in one.factors for one in machine.made if one.functional)


@pytest.mark.slow
def test_the_diagnosis_after_an_experiment_is_that_of_the_recording(record):
    path = record(JUMP)
    before = explain(open_recording(path))
    Machine(path, {("conv3 backward", None): jump, ("conv3 backward", "onednn"): line}).run()
    recording = open_recording(path)
    again, anew = explain_again(before, recording), explain(recording)
    assert again.outcomes == anew.outcomes
    assert again.answers == anew.answers
    assert explain_again(again, recording).answers == anew.answers


def faults_at_16(batch, duration_ns):
    return {
        **faults(batch, duration_ns),
        **({} if batch == 16 else {"page_faults": 100, "system_time_ns": 0}),
    }


@pytest.mark.slow
def test_a_cause_that_another_one_outbids_is_tested_too(record):
    """Another kernel runs at 16, in fresh memory; the memory makes the jump."""
    kernel = lambda b: ("mkl_sgemm" if b < 16 else "jit_gemm", jump(b), {})  # noqa: E731
    path = record(Plan(kernel=kernel, host_use=faults_at_16, hardware=CPU))
    causes = {
        total.cause: total.amount for total in explain(open_recording(path)).explanations[0].causes
    }
    assert causes["algorithm switch"] > 40
    assert "page faults" not in causes
    costs = {
        ("the step", None): lambda b: 7.0 + 2.0 * b + jump(b),
        ("the step", "kept_memory"): lambda b: 7.0 + 5.0 * b,
    }
    machine = Machine(path, {**costs, ("conv3 backward", None): line}).run()
    # The largest cause can be tested alone, so its term comes first, which does not show the jump.
    assert machine.stages()[0] == ("conv3 backward", Stage.ALONE, ())
    assert machine.stages()[1] == ("the step", Stage.CONFIRM, ("kept_memory",))
    answer = explain(open_recording(path)).answers[0]
    assert (answer.cause, answer.verdict) == ("page faults", Verdict.CONFIRMED)


def test_a_large_part_of_the_step_is_tested_before_a_bend(record):
    path = record(replace(FAULTY, kernel=lambda b: ("mkl_sgemm", 20.0 + jump(b) / 2.0, {})))
    recording = open_recording(path)
    diagnosis = explain(recording)
    assert diagnosis.explanations
    first = next_experiment(recording, 90.0, diagnosis)
    assert (first.functional_kind, first.factors) == ("fixed cost", ("kept_memory",))


@pytest.mark.slow
def test_a_long_screen_tries_some_factors_now_and_the_others_last(record):
    long = lambda b: 40.0 * jump(b)  # noqa: E731
    path = record(replace(JUMP, kernel=lambda b: ("mkl_sgemm", long(b), {})))
    alone = {
        ("conv3 backward", name): long
        for name in (None, "onednn", "other_layout", "one_thread", "reused_memory")
    }
    machine = Machine(path, alone).run(seconds=600.0)
    screens = [one for one in machine.made if one.stage == Stage.SCREEN and one.scope == Scope.TERM]
    assert len(screens) > 1
    assert not set(screens[0].factors) & set(screens[1].factors)
    between = machine.made[machine.made.index(screens[0]) + 1 : machine.made.index(screens[1])]
    assert between


@pytest.mark.slow
@pytest.mark.parametrize("of_others", ["aten::mm", "aten::threshold"])
def test_what_confirms_a_cause_in_one_term_is_tried_at_once_in_the_next_with_the_same_operators(
    record, of_others
):
    def product(scale):
        return lambda b: (
            "mkl_sgemm",
            scale * jump(b),
            {"flops": 10**9 * b, "bytes_compulsory": 10**6 * b},
        )

    plan = replace(JUMP, kernel=product(1.0), first=product(0.7))
    path = record(plan, ("conv1", "forward"), of_others=of_others)
    costs = {("conv3 backward", None): jump, ("conv3 backward", "onednn"): line}
    costs |= {
        ("conv1 forward", None): lambda b: 0.7 * jump(b),
        ("conv1 forward", "onednn"): lambda b: 0.7 * line(b),
    }
    stages = Machine(path, costs).run().stages()
    assert ("conv3 backward", Stage.CONFIRM, ("onednn",)) in stages
    first = next(one for one in stages if one[0] == "conv1 forward")
    if of_others != "aten::mm":
        assert first[1] == Stage.ALONE
        return
    assert first[1:] == (Stage.CONFIRM, ("onednn",))
    assert ("conv1 forward", Stage.SCREEN) not in {one[:2] for one in stages}
    diagnosis = explain(open_recording(path))
    assert "slow library call in conv3 backward and 1 more makes 109 % of it" in headline(
        {}, diagnosis
    )
    totals = {total.cause: total for total in diagnosis.explanations[0].causes}
    slow = totals["slow library call"]
    assert (slow.verdict, {one.label for one in slow.terms}) == (
        Verdict.CONFIRMED,
        {"conv3 backward", "conv1 forward"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("best_holds", [True, False])
def test_a_factor_that_takes_much_less_away_than_the_best_one_comes_only_if_that_one_fails(
    record, best_holds
):
    """One thread takes half of the jump away, and is slower; oneDNN takes all of it, or does so in
    the screen only.
    """

    class Fickle(Machine):
        def run_one(self, experiment):
            holds = best_holds or experiment.stage == Stage.SCREEN
            self.costs["conv3 backward", "onednn"] = line if holds else jump
            super().run_one(experiment)

    half = lambda b: jump(b) + line(b)  # noqa: E731
    path = record(JUMP)
    machine = Fickle(
        path, {("conv3 backward", None): jump, ("conv3 backward", "one_thread"): half}
    ).run()
    confirms = [
        factors
        for label, stage, factors in machine.stages()
        if (label, stage) == (TERM, Stage.CONFIRM)
    ]
    assert confirms[0] == ("onednn",)
    assert (("one_thread",) in confirms) != best_holds


@pytest.mark.slow
def test_what_complete_steps_have_confirmed_is_not_tested_again_on_a_term(record):
    path = record(FAULTY)
    faulty = lambda b: 80.0 + 3.0 * b  # noqa: E731
    step = lambda b: 87.0 + 5.0 * b  # noqa: E731
    costs = {("the step", None): step, ("the step", "kept_memory"): lambda b: 27.0 + 5.0 * b}
    costs |= {(TERM, None): faulty, (TERM, "reused_memory"): lambda b: 20.0 + 3.0 * b}
    machine = Machine(path, costs).run(seconds=90.0)
    assert machine.stages()[0] == ("the step", Stage.CONFIRM, ("kept_memory",))
    of_term = [factors for label, _, factors in machine.stages() if label == TERM]
    assert of_term
    assert not any("reused_memory" in factors for factors in of_term)


class Steps:
    """Steps of one duration on a GPU; `now_ns` is what they took."""

    device = "cuda:0"

    def __init__(self, step_ns):
        self.step_ns, self.now_ns = step_ns, 0

    def load(self, batch):
        pass

    def time_step(self):
        self.now_ns += self.step_ns
        return self.now_ns - self.step_ns, self.step_ns


FACTS = {
    "functional": ((16, 1.0), (8, -2.0)),
    "functional_kind": "excess",
    "batches": (8, 16),
    "layer": None,
}
EXCESS = experiment(scope=Scope.STEP, phase=None, **FACTS)


def budget_of_steps(step_ms, **facts):
    """The default time on a GPU, for steps of one duration at batch 8 and 16."""
    curve = SimpleNamespace(
        conditions=(8, 16), points=[SimpleNamespace(time_ms=SimpleNamespace(value=step_ms))] * 2
    )
    return Budget(SimpleNamespace(curve=curve, terms=None), "cuda", 180.0, **facts)


@ask_each(("full", "round_s"), [(0.4, 2 * 2 * 0.21), (0.86, 2 * 2 * 0.21 + 2 * 6)])
def test_a_memory_that_holds_one_process_costs_a_start_of_each_in_every_round(full, round_s):
    """Steps of 100 ms: 100 ms of warm-up and one timed.

    Eight rounds with starts of 6 s fit the default time.
    """
    budget = budget_of_steps(100, fullness={8: full / 2, 16: full})
    (fitted,) = budget.fitting(replace(EXCESS, factors=("smaller_memory",), rounds=(8, 25)))
    assert budget._times_s(fitted)[1] == pytest.approx(round_s, rel=0.1)
    assert fitted.rounds[0] == 8


@pytest.mark.parametrize("step_ms", [1, 3, 10, 25, 60, 200])
def test_the_planned_time_of_a_visit_on_a_gpu_is_what_a_worker_takes(monkeypatch, step_ms):
    """100 ms of warm-up, then up to four steps: 104 ms for steps of 1 ms, where 12.5 ms were
    planned once.
    """
    steps = Steps(step_ms * 10**6)
    monkeypatch.setattr(visit, "meter_of", lambda _: None)
    monkeypatch.setattr(visit, "reset_peak", lambda _: False)
    warm_up = visit.discard_steps(steps, 8, 1)
    visit.time_steps(steps, EXPERIMENT.steps_of_visit(8, warm_up.last_ns))
    budget, wanted = budget_of_steps(step_ms), replace(EXCESS, factors=("cuda_graph", "pauses"))
    setup_s, round_s = budget._times_s(wanted)
    first_steps = 3
    assert setup_s == pytest.approx(3 * (6 + first_steps * step_ms / 1e3))
    assert round_s == pytest.approx(3 * 2 * steps.now_ns / 1e9, rel=0.1)


@pytest.mark.parametrize("asked", [False, True])
def test_an_experiment_that_locks_the_clock_comes_again_once_it_is_asked_for(monkeypatch, asked):
    """It was planned without `--lock-clocks`, and ran only its pauses."""
    made = SimpleNamespace(factors=("locked_clock", "pauses"), untested={"locked_clock": NOT_ASKED})
    monkeypatch.setattr(TermCase, "earlier", lambda *_: [made])
    monkeypatch.setattr(TermCase, "experiment", lambda _, stage, factors: factors)
    case = TermCase(SimpleNamespace(budget=SimpleNamespace(setup_s=lambda _: 1.0)), None, (), None)
    with clocks_may_be_locked(asked):
        planned = list(stages._on_steps(case, Stage.CONFIRM, made.factors))
    assert planned == [("locked_clock",)] * asked


def test_a_start_that_took_no_time_leaves_every_factor_applicable():
    """A clock may stand still while a process starts; a set-up of 0 s would say that no factor
    applies.
    """
    assert budget_of_steps(10, starts_s=(0.0, 0.0)).setup_s("tf32") > 0


def compiled_recording(code, setups_s):
    """What a recording tells of steps that torch.compile compiled."""
    rows = [{"batch": batch, "compiled_code": of} for batch, of in code.items()]
    return SimpleNamespace(
        rows=lambda *_: rows,
        meta={"setup_s": {str(batch): seconds for batch, seconds in setups_s.items()}},
    )


TEN = {n: "own" if n < 9 else "none" for n in range(1, 11)}


@ask_each(
    ("code", "setups_s", "expected_s"),
    [
        # the smallest was compiled before, two ran beyond the limit: all ten may be compiled
        (TEN, {1: 0.001, **dict.fromkeys(range(2, 9), 1.3), 9: 0.002, 10: 0.002}, 13.0),
        # from the third size on code of dynamic shapes ran
        ({1: "own", 2: "own", 4: "shared"}, {1: 0.001, 2: 2.5, 4: 0.001}, 7.5),
        ({4: "own"}, {4: 3.0}, 3.0),
        ({1: None, 2: None}, {1: 1.0, 2: 1.0}, None),
        (TEN, {}, None),
    ],
)
def test_what_compiling_takes_is_what_the_recorded_first_steps_took(code, setups_s, expected_s):
    found = compiling_s(compiled_recording(code, setups_s))
    assert found == (None if expected_s is None else pytest.approx(expected_s))


@ask_each("name", ["more_versions", "dynamic_shapes", "static_shapes"])
def test_compiling_again_is_planned_for_as_long_as_it_took(name):
    """Ten sizes of 1.3 s fit a default diagnosis, with the constant of 40 s they did not. What
    compiles a step that was not compiled keeps the constant, and a slow compilation is no shorter.
    """
    quick = budget_of_steps(10, compiling_s=13.0)
    assert 13 < quick.setup_s(name) < 20
    assert budget_of_steps(10, compiling_s=13.0, starts_s=(25.0,)).setup_s(name) == 25
    assert budget_of_steps(10).setup_s(name) == 40
    assert budget_of_steps(10, compiling_s=90.0).setup_s(name) > 90
    assert quick.setup_s("compiled") == 40
