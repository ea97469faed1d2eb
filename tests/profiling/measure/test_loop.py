"""The experiment loop to the nanosecond, on a clock that only steps advance: sweeps, scaling runs
and benchmarks.
"""

import itertools
from dataclasses import replace
from functools import partial

import pytest

from curvescope.analysis.causes import context
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import Functional
from curvescope.analysis.decompose.terms import OVERHEAD
from curvescope.analysis.diagnosis.explain import explain
from curvescope.kernels import sweeps
from curvescope.kernels.backends import Prepared
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import Method
from curvescope.kernels.runner import run_sweep as run_bench
from curvescope.kernels.timers import PerfCounter
from curvescope.profiling.attribution.events import StepRows
from curvescope.profiling.attribution.outermost_operators import OperatorCalls
from curvescope.profiling.frameworks import memory_ran_out
from curvescope.profiling.hardware import clocks as clocks_module
from curvescope.profiling.hardware.clocks import ClockSampler
from curvescope.profiling.measure import scaling_run
from curvescope.profiling.measure import visit as visit_module
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.loop import Loop, Progress, VisitWriter, part_of_visit
from curvescope.profiling.measure.process_group import ProcessGroup
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.scaling_plan import PLAN_FILE, ScalingPlan, ScalingPoint
from curvescope.profiling.measure.sites import here
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sites.ranks import FRESH_STEPS
from curvescope.profiling.measure.stopping import Complete
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visits import Visit, VisitPlan
from curvescope.profiling.recording.rank_info import RankInfo
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...kernels.fakes import FakeBackend, exact
from ...tables import ask_each
from .fake_clock import (
    COLD_NS,
    OVERHEAD_NS,
    SESSION_NS,
    WARM_UP_NS,
    FakeClock,
    FakeWorkload,
    clock,
    record_step,
)

__all__ = ["clock"]  # a fixture

BATCHES = (1, 2, 4)
THREE = Protocol("three", (3, 3), 2, (4, 4), visit_s=0.0, profiled_steps=4, time_limit_s=None)
# Of random.Random(0).shuffle, each from the increasing order.
SHUFFLED = [[1, 2, 4], [1, 4, 2], [4, 2, 1], [1, 2, 4], [1, 4, 2]]


def step_ns(batch):
    return 1_000_003 * batch + 70_001


def sweep(path, clock, protocol=THREE, batches=BATCHES):
    workload = FakeWorkload(clock, step_ns)
    run_sweep(Here(workload), batches, protocol, path, clock_s=clock.seconds)
    recording = open_recording(path)
    return workload, recording, recording.frame("steps").sort_values("step")


def visits_of(steps):
    """(round, condition) of every visit, as they were made."""
    return [
        key
        for key, _ in itertools.groupby(
            steps[["round", "batch"]].itertuples(index=False, name=None)
        )
    ]


def loop(visit, rule, conditions=BATCHES, **more):
    return Loop(conditions=conditions, visit=visit, rule=rule, **more)


def test_a_sweep_records_every_step_but_the_discarded_ones(tmp_path, clock):
    workload, _, steps = sweep(tmp_path / "r", clock)
    unprofiled, profiled = steps[~steps["profiled"]], steps[steps["profiled"]]
    assert unprofiled["duration_ns"].tolist() == [step_ns(batch) for batch in unprofiled["batch"]]
    assert profiled["duration_ns"].tolist() == [
        step_ns(batch) + OVERHEAD_NS for batch in profiled["batch"]
    ]
    assert [point.time_ms.value for point in cost_curve(steps).points] == [
        step_ns(batch) / 1e6 for batch in BATCHES
    ]
    recorded = set(steps["start_ns"])
    trial, *ran = workload.log
    assert trial == (1, 1_000_000_000, step_ns(1) + COLD_NS)
    # Two discarded and four marked ones in each of nine visits.
    assert len(recorded) == len(steps) == len(ran) - 6 * 9
    assert recorded < {start for _, start, _ in ran}
    assert all(took == step_ns(batch) for batch, start, took in ran if start in recorded)


def test_rounds_are_interleaved_and_all_but_the_first_are_shuffled_by_the_seed(tmp_path, clock):
    _, recording, steps = sweep(
        tmp_path / "r", clock, Protocol("five", (5, 5), 1, (1, 1), 0.0, 0, None)
    )
    assert visits_of(steps) == [
        (round_, batch) for round_, order in enumerate(SHUFFLED) for batch in order
    ]
    assert recording.meta["rounds"] == 5


class Chosen:
    """A rule that names some conditions from the minimum number of rounds on, by round and seconds
    so far.
    """

    def __init__(self, choose, rule):
        self.choose, self.rule = choose, rule
        self.least, self.time_limit_s = rule.least, rule.time_limit_s

    def next_round(self, look):
        chosen = self.choose(look.round_, look.elapsed_s) if look.round_ >= self.least else None
        return self.rule.next_round(look if chosen is None else look.of(chosen))


def focused_sweep(path, clock, time_limit_s, choose):
    """Visits of two steps of 0.5 ms a sample, of which one is discarded."""
    protocol = Protocol("focus", (2, 9), 1, (1, 1), 0.0, 0, time_limit_s)
    workload = FakeWorkload(clock, lambda batch: batch * 500_000)
    run_sweep(
        Here(workload),
        BATCHES,
        protocol,
        path,
        rule=Chosen(choose, Complete.of(protocol)),
        clock_s=clock.seconds,
    )
    return open_recording(path)


def test_a_round_beyond_the_minimum_visits_what_the_focus_names(tmp_path, clock):
    """Rounds of 1, 2 and 4 ms: the focus is asked before each, with the time so far; an empty one
    ends the run.
    """
    asked = []

    def focus(round_, elapsed_s):
        asked.append((round_, round(elapsed_s * 1e3)))
        return {2: (2, 4), 3: None, 4: (4,), 5: ()}[round_]

    recording = focused_sweep(tmp_path / "r", clock, None, focus)
    steps = recording.frame("steps").sort_values("step")
    rounds = steps.groupby("round")["batch"].agg(sorted).tolist()
    assert rounds == [[1, 2, 4], [1, 2, 4], [2, 4], [1, 2, 4], [4]]
    assert asked == [(2, 14), (3, 20), (4, 27), (5, 31)]
    assert recording.meta["rounds"] == 5


def test_a_focused_round_that_ends_beyond_the_time_limit_does_not_start(tmp_path, clock):
    """Two rounds of 7 ms, then rounds of 4 ms until 25 ms."""
    steps = focused_sweep(tmp_path / "r", clock, 0.025, lambda *_: {4}).frame("steps")
    assert steps.groupby("batch").size().to_dict() == {1: 2, 2: 2, 4: 4}


def test_conditions_of_a_group_stay_together():
    visits = []
    points = [(1, "a"), (1, "b"), (2, "a"), (4, "a"), (4, "b")]
    assert (
        loop(
            lambda point, _: visits.append(point),
            Complete((3, 3)),
            points,
            group=lambda point: point[0],
        ).run()
        == 3
    )
    orders = [visits[:5], visits[5:10], visits[10:]]
    assert orders == [
        [p for group in order for p in points if p[0] == group] for order in SHUFFLED[:3]
    ]


@ask_each(
    ("rounds", "disturbed", "limit_s", "made"),
    [
        ((2, 4), lambda batch, round_: False, None, 4),
        (
            (2, 4),
            lambda batch, round_: batch == 2 and round_ in (0, 3),
            None,
            6,
        ),  # both visits are replaced
        ((2, 4), lambda batch, round_: True, None, 8),  # twice as many at most
        ((2, 4), lambda batch, round_: True, 5.5, 5),  # and only within the time
        ((4, 4), lambda batch, round_: True, None, 4),  # a fixed number stays
    ],
)
def test_further_rounds_replace_disturbed_visits(rounds, disturbed, limit_s, made):
    """A round takes a second."""
    rows = []

    def visit(batch, round_):
        waits_ns = 10**6 if disturbed(batch, round_) else 0
        row = {
            "batch": batch,
            "round": round_,
            "profiled": False,
            "duration_ns": 10**6,
            "run_queue_wait_ns": waits_ns,
        }
        rows.append(row)

    rule = Complete(rounds, limit_s)
    assert loop(visit, rule, (1, 2), rows=lambda: rows, clock_s=lambda: len(rows) / 2).run() == made


def test_steps_of_a_gpu_have_their_own_clock_and_the_reasons_of_their_visit(tmp_path):
    """Between the steps, the GPU is idle and its clock is back; a CPU has no such columns."""
    samples = [
        {"start_ns": at, "device": 0, "sm_clock_hz": clock, "throttle_reasons": reasons}
        for at, clock, reasons in (
            (5, 345, "idle"),
            (20, 1980, "idle|application_clocks"),
            (35, 1980, "hw_thermal|sw_power_cap"),
            (10**9, 345, "idle"),
        )
    ]
    rows = [{"start_ns": at, "duration_ns": 8} for at in (10, 25)]
    counted = [{**row, "sm_clock_hz": hz} for row, hz in zip(rows, (1850, 1750), strict=True)]
    with RecordingWriter(tmp_path / "r", {"network": "n", "unmeasured": []}) as writer:
        visits = VisitWriter(writer, "training")
        visits.write(1, 0, Visit(counted, clocks=samples))
        visits.write(2, 0, Visit(rows, clocks=[{"start_ns": 20, "sm_clock_hz": 3000, "load": 1.0}]))
    recorded = open_recording(tmp_path / "r").frame("steps")
    steps = recorded.set_index("batch")
    assert list(steps.loc[1, "sm_clock_hz"]) == [1850, 1750]
    assert set(steps.loc[1, "throttle_reasons"]) == {"hw_thermal|sw_power_cap"}
    assert steps.loc[2, ["sm_clock_hz", "throttle_reasons"]].isna().all(axis=None)
    clocks, reasons = open_recording(tmp_path / "r").frame("clocks"), {"hw_thermal", "sw_power_cap"}
    of_gpu, of_cpu = (recorded[recorded["batch"] == batch] for batch in (1, 2))
    assert context.mean_clock(of_gpu, clocks) == (1800.0, reasons)
    of_card = clocks[clocks["device"].notna()]
    assert context.mean_clock(of_gpu.assign(sm_clock_hz=None), of_card) == (None, reasons)
    assert context.mean_clock(of_cpu, clocks.assign(throttle_reasons=None)) == (3000.0, frozenset())


def test_causes_see_clocks_sampled_between_the_steps(tmp_path, clock, monkeypatch):
    """Every step takes 30 ms, so that every second step is followed by a sample."""
    monkeypatch.setattr(clocks_module, "cpu_frequency_hz", lambda: 3_000_000_000)
    monkeypatch.setattr(here, "ClockSampler", partial(ClockSampler, clock_ns=clock))
    protocol = replace(THREE, steps_per_visit=(4, 4), profiled_steps=1)
    workload = FakeWorkload(clock, lambda batch: 30_000_000)
    run_sweep(Here(workload), BATCHES, protocol, tmp_path / "r", clock_s=clock.seconds)
    recording = open_recording(tmp_path / "r")
    steps, clocks = recording.frame("steps"), recording.frame("clocks")
    for batch in BATCHES:
        assert context.mean_clock(steps[steps["batch"] == batch], clocks) == (3e9, frozenset())
    ends = steps["start_ns"] + steps["duration_ns"]
    assert not any(((steps["start_ns"] < at) & (at < ends)).any() for at in clocks["start_ns"])


@ask_each(
    ("message", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", True),
        (
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
            "`cublasSgemm( handle, opa, opb, m, n, k)`",
            False,
        ),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_BAD_LAUNCH_PARAM", False),
        ("Unable to find a valid cuDNN algorithm to run convolution", True),
        ("GET was unable to find an engine to execute this computation", True),
        (
            'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator'
            '.cpp":1165, please report a bug to PyTorch.',
            True,
        ),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_memory_that_ran_out_is_known_by_the_words_of_every_library(message, expected):
    assert memory_ran_out(RuntimeError(message)) is expected


def test_a_gpu_is_warm_before_its_steps_are_recorded():
    """Discarded steps take 100 ms together; on a CPU there are as many as the protocol says."""

    class Steps:
        def __init__(self, device, step_ms):
            self.device, self.time_step = device, lambda: (0, step_ms * 1_000_000)

        def load(self, batch):
            pass

    assert visit_module.discard_steps(Steps("cuda:0", 7), 2, 1)[:2] == (15, 7_000_000)
    assert visit_module.discard_steps(Steps("cuda:0", 70), 2, 3)[:2] == (3, 70_000_000)
    assert visit_module.discard_steps(Steps("cpu", 7), 2, 1)[:2] == (1, 7_000_000)
    assert visit_module.warm_up_device(Steps("cpu", 7)) == (0, 0, 0)


def test_the_number_of_steps_follows_the_time_of_a_visit(tmp_path, clock):
    protocol = Protocol(
        "timed", (1, 1), 2, (1, 8), visit_s=0.005, profiled_steps=0, time_limit_s=None
    )
    _, _, steps = sweep(tmp_path / "r", clock, protocol)
    # 1.07, 2.07 and 4.07 ms a step
    assert steps.groupby("batch").size().to_dict() == {1: 5, 2: 2, 4: 1}


def test_profiled_steps_are_as_many_as_unprofiled_ones_in_every_visit_and_follow_them(
    tmp_path, clock
):
    _, recording, steps = sweep(tmp_path / "r", clock)
    for _, visit in steps.groupby(["round", "batch"]):
        assert visit["profiled"].tolist() == [False] * 4 + [True] * 4
        assert visit["index"].tolist() == list(range(8))
    assert set(recording.frame("kernels")["step"]) == set(steps[steps["profiled"]]["step"])


@pytest.mark.parametrize(("cost", "expected"), [(1, 4), (2, 2), (7, 1)])
def test_profiling_at_most_doubles_a_visit(clock, monkeypatch, cost, expected):
    """Two discarded, four unprofiled and four marked steps; a session costs that many steps."""
    workload = FakeWorkload(clock, step_ns)

    def dear(*arguments):
        clock.now_ns += (cost - 1) * step_ns(2)
        return record_step(*arguments)

    monkeypatch.setattr(visit_module, "record_step", dear)
    began_ns = clock.now_ns
    found = visit_module.visit(workload, 2, VisitPlan(THREE))
    assert (len(found.unprofiled), len(found.marked), len(found.profiled)) == (4, 4, expected)
    spent_ns = clock.now_ns - began_ns - 10 * step_ns(2) - COLD_NS
    assert spent_ns == WARM_UP_NS + expected * (cost * step_ns(2) + OVERHEAD_NS + SESSION_NS)
    assert spent_ns <= 6 * step_ns(2) + COLD_NS or expected == 1


def operator_calls(*names, faults=None):
    """Calls of operators in layer a; equal ones are one row."""
    different = list(dict.fromkeys(names))
    rows = [{"layer": "a", "phase": "forward", "op": name} for name in different]
    return StepRows(
        [],
        [(0, 9)],
        {},
        operator_calls=OperatorCalls(rows, list(map(different.index, names)), faults),
    )


SAME = operator_calls("detach", "relu", "mul", "detach", "relu", faults=[3, 4_000, 7, 1, 900])


@pytest.mark.parametrize(
    ("counted", "page_faults", "compiled", "expected"),
    [
        (SAME, 5_000, False, [4_900, 7]),
        (SAME, 100, False, [None, None]),
        (SAME, None, False, [None, None]),
        (SAME, 5_000, True, [None, None]),
        (operator_calls("relu", "relu", "mul", faults=[1, 2, 3]), 5_000, False, [None, None]),
        (RuntimeError("the step refuses a dispatch mode"), 5_000, False, [None, None]),
    ],
    ids=["many", "few", "unknown", "compiled", "other operators", "fails"],
)
def test_page_faults_are_counted_where_steps_have_many(
    clock, monkeypatch, counted, page_faults, compiled, expected
):
    """Of relu and mul, in one more step, which runs the operators of a profiled one."""

    def record(workload, *, watch):
        if isinstance(counted, Exception):
            raise counted
        return counted

    monkeypatch.setattr(visit_module, "record_step", record)
    visit = Visit(
        [{"start_ns": 0, "duration_ns": 9, "page_faults": page_faults}],
        [operator_calls("relu", "mul", "relu")],
    )
    workload = FakeWorkload(clock, step_ns)
    workload.compiled = compiled
    visit_module.count_page_faults(workload, visit)
    assert [row.get("page_faults") for row in visit.profiled[0].operators] == expected


def lasting(clock, unit_ns):
    """A visit that takes as many units as its condition says."""

    def visit(condition, _):
        clock.now_ns += condition * unit_ns

    return visit


@ask_each(("limit_s", "rounds"), [(0.001, 2), (0.0209, 2), (0.0211, 3), (0.0281, 4), (1.0, 9)])
def test_no_round_starts_that_would_end_beyond_the_time_limit(limit_s, rounds):
    """A round is one visit each of 1, 2 and 4 ms: the third ends after 21 ms."""
    clock = FakeClock()
    assert (
        loop(lasting(clock, 10**6), Complete((2, 9), limit_s), clock_s=clock.seconds).run()
        == rounds
    )
    assert clock.now_ns == 1_000_000_000 + rounds * 7_000_000


def test_progress_adds_the_last_visit_of_each_and_the_rounds_that_are_owed():
    """A round is one visit each of 1, 2 and 4 s; the limit is 20 s, and an earlier
    start took 3 s.
    """
    clock, reports = FakeClock(), []
    how = {
        "report": reports.append,
        "elapsed_s": 3.0,
        "clock_s": clock.seconds,
        "label": "b{}".format,
    }
    loop(lasting(clock, 10**9), Complete((3, 3), 20.0), **how).run()
    assert reports[:2] == [Progress(4.0, 20.0, "round 1, b1"), Progress(6.0, 20.0, "round 1, b2")]
    # 10 s passed and two rounds of 7 s are owed; then 11 s, with 4 + 2 s of the round and 7 s of
    # the next.
    assert reports[2:4] == [
        Progress(10.0, 24.0, "round 1, b4"),
        Progress(11.0, 24.0, "round 2, b1"),
    ]
    assert reports[-1] == Progress(24.0, 24.0, "round 3, b1")


def test_a_sweep_holds_its_time_limit(tmp_path, clock):
    protocol = Protocol(
        "limited", (2, 9), 1, (1, 1), visit_s=0.0, profiled_steps=0, time_limit_s=0.060
    )
    _, recording, _ = sweep(tmp_path / "r", clock, protocol)
    # Two steps a visit are 14.4 ms a round.
    assert recording.meta["rounds"] == 4
    assert recording.meta["elapsed_s"] == round(
        4 * (2 * sum(map(step_ns, BATCHES)) + 3 * COLD_NS) / 1e9, 3
    )


def test_what_does_not_fit_is_visited_once_and_a_run_of_which_nothing_is_left_ends():
    visits, gone = [], set()

    def visit(condition, _):
        visits.append(condition)
        if condition != 2 or len(visits) > 5:
            gone.add(condition)

    loop(visit, Complete((3, None)), finished=gone.__contains__).run()
    assert visits == [1, 2, 4, 2, 2, 2]


def test_a_resumed_sweep_makes_the_visits_that_are_missing_in_their_rounds():
    visits, reports = [], []
    made = {(1, 0), (2, 0), (4, 0), (1, 1)}
    how = {
        "visited": lambda *visit: visit in made,
        "report": lambda progress: reports.append(progress.doing),
    }
    loop(lambda *visit: visits.append(visit), Complete((3, 3)), **how).run()
    assert visits == [(4, 1), (2, 1), (4, 2), (2, 2), (1, 2)]
    assert reports[0] == "round 2, 4"


def test_parts_of_a_visit_that_was_cut_off_go_and_the_visit_is_made_again(tmp_path, clock):
    """The process was killed after the kernels of the second visit were on disk, and before its
    steps were.
    """
    workload = FakeWorkload(clock, step_ns)
    workload.load(1)
    with RecordingWriter(tmp_path / "r", {}) as writer:
        VisitWriter(writer, "forward").write(
            1, 0, Visit([{"start_ns": 0, "duration_ns": 5}] * 2, [record_step(workload)])
        )
        torn = [{**record_step(workload).kernels[0], "step": 3}]
        writer.write(
            "kernels", {name: [row[name] for row in torn] for name in torn[0]}, part_of_visit(2, 0)
        )
        writer.write("clocks", {"start_ns": [1]}, part_of_visit(2, 0))
    assert open_recording(tmp_path / "r").frame("kernels")["step"].tolist() == [2, 3]

    with RecordingWriter.resume(tmp_path / "r", "steps") as writer:
        recording = open_recording(tmp_path / "r")
        assert recording.frame("kernels")["step"].tolist() == [2]
        assert recording.frame("clocks").empty
        visits = VisitWriter(writer, "forward")
        assert (visits.has(1, 0), visits.has(2, 0), visits.next_step) == (True, False, 3)
        visits.write(2, 0, Visit([{"start_ns": 0, "duration_ns": 5}], [record_step(workload)]))
    recording = open_recording(tmp_path / "r")
    assert recording.frame("steps")["step"].tolist() == [0, 1, 2, 3, 4]
    assert recording.frame("kernels")["step"].tolist() == [2, 4]


def test_a_peak_that_counts_from_before_the_visit_is_not_recorded(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(visit_module, "read_peak", lambda _: {"peak_memory_bytes": 12345})
    for fresh, peaks in ((True, {12345}), (False, set())):
        monkeypatch.setattr(visit_module, "reset_peak", lambda _, fresh=fresh: fresh)
        _, _, steps = sweep(tmp_path / str(fresh), clock, batches=(1,))
        assert set(steps["peak_memory_bytes"].dropna()) == peaks


@pytest.mark.slow
def test_a_machine_that_slows_down_over_the_run_does_not_show_as_profiling_overhead(
    tmp_path, clock
):
    """Steps take 10 % more at the end of the run than at its beginning; profiling takes 40 ns a
    step.
    """
    protocol = Protocol(
        "drift", (20, 20), 1, (3, 3), visit_s=0.0, profiled_steps=3, time_limit_s=None
    )
    run_ns = 20 * 10 * sum(map(step_ns, BATCHES))
    began_ns = clock.now_ns
    workload = FakeWorkload(
        clock, lambda batch: round(step_ns(batch) * (1 + 0.1 * (clock.now_ns - began_ns) / run_ns))
    )
    run_sweep(Here(workload), BATCHES, protocol, tmp_path / "r", clock_s=clock.seconds)
    found = explain(open_recording(tmp_path / "r"))
    for batch in BATCHES:
        whole = Functional("time", batch, None, ((batch, 1.0),))
        overhead = next(
            share for share in found.terms.decompose(whole, found.curve) if share.label == OVERHEAD
        )
        # Inside a visit, one of sixty, the machine slows down by 10 % / 60 = 0.17 %.
        assert abs(overhead.value.value) < 0.002 * step_ns(batch) / 1e6


# Scaling runs


class FourRanks(ProcessGroup):
    """Rank 0 of four that do what it does."""

    def __init__(self):
        super().__init__(RankInfo(0, 4, 0), 1.0)
        self.nodes = [0, 0, 0, 0]

    def make_groups(self, devices, backend):
        pass

    def broadcast(self, what):
        return what

    def gather(self, what):
        return [what] * 4


def point_ns(point):
    return 1_000_003 * point.batch + 50_021 * point.devices


@pytest.fixture
def scale(tmp_path, clock, monkeypatch):
    """Runs a scaling run of a protocol on the clock; returns the frame of steps by number of
    devices, and the plan.
    """

    def make(_, devices):
        return FakeWorkload(clock, lambda batch: point_ns(ScalingPoint(devices, batch)))

    monkeypatch.setattr(scaling_run._Rank, "_make_workload", make)

    def run(protocol, **options):
        setting = Configuration("tests.profiling.planted:build_plain", (3, 16, 16), mode="forward")
        plan = ScalingPlan(setting, (1, 2, 4), 2, 8, protocol, None, "resident", 60.0)
        folder = tmp_path / "run"
        if not (folder / PLAN_FILE.name).is_file():
            PLAN_FILE.write(folder, plan)
        scaling_run.run_rank(folder, plan, FourRanks(), clock_s=clock.seconds, **options)
        paths = {devices: folder / f"devices{devices}" / "rank0" for devices in plan.devices}
        return {devices: open_recording(path) for devices, path in paths.items()}, plan

    return run


def test_a_scaling_run_records_every_point_to_the_nanosecond_and_in_its_order(scale):
    recordings, plan = scale(THREE)
    frames = {devices: recording.frame("steps") for devices, recording in recordings.items()}
    for devices, steps in frames.items():
        unprofiled = steps[~steps["profiled"]]
        expected = [point_ns(ScalingPoint(devices, batch)) for batch in unprofiled["batch"]]
        assert unprofiled["duration_ns"].tolist() == expected
        assert unprofiled.groupby(["round", "batch"]).size().unique().tolist() == [4]
        # Ranks step once together before each profiled step: in the time of six or eight steps that
        # is two or three. The first visit does not know yet what profiling costs.
        profiled = steps[steps["profiled"]].groupby(["round", "batch"]).size()
        assert set(profiled[0]) == {1}
        assert {*profiled[1], *profiled[2]} <= {2, 3}
    made = sorted(
        (row.start_ns, row.round, devices, row.batch)
        for devices, steps in frames.items()
        for row in steps.itertuples()
    )
    order = [key for key, _ in itertools.groupby(made, key=lambda row: row[1:])]
    points = [(point.devices, point.batch) for point in plan.points]
    expected = [
        (r, *p)
        for r, devices in enumerate(SHUFFLED[:3])
        for n in devices
        for p in points
        if p[0] == n
    ]
    assert order == expected


def test_a_scaling_run_discards_more_steps_where_the_number_of_devices_changed(scale):
    recordings, plan = scale(Protocol("one", (1, 1), 2, (1, 1), 0.0, 0, None))
    points = [sum(point.devices == devices for point in plan.points) for devices in plan.devices]
    discarded = [recording.meta["discarded_steps"] for recording in recordings.values()]
    assert discarded == [2 * count + FRESH_STEPS for count in points]


def test_a_scaling_run_holds_its_time_limit(scale):
    recordings, _ = scale(Protocol("limited", (2, 50), 1, (1, 1), 0.0, 0, time_limit_s=0.2))
    (rounds,) = {recording.frame("steps")["round"].max() + 1 for recording in recordings.values()}
    assert 2 < rounds < 10


def test_a_scaling_run_names_a_batch_that_does_not_fit_in_the_recordings_of_its_devices(
    scale, monkeypatch
):
    load = FakeWorkload.load

    def refuse(workload, batch):
        if batch == 8:
            raise MemoryError
        load(workload, batch)

    monkeypatch.setattr(FakeWorkload, "load", refuse)
    recordings, _ = scale(THREE)
    unmeasured = {
        n: [entry["batch"] for entry in r.meta["unmeasured"]] for n, r in recordings.items()
    }
    assert unmeasured == {1: [8], 2: [], 4: []}
    assert set(recordings[1].frame("steps")["batch"]) == {2, 4}


def test_a_scaling_run_ends_when_every_number_of_devices_is_precise_enough(scale):
    seen = []

    def precise(steps):
        seen.append({row["batch"] for row in steps})
        return True

    recordings, _ = scale(Protocol("until", (2, 50), 1, (1, 1), 0.0, 0, None), precise=precise)
    assert seen == [{2, 4, 8}, {2, 4}, {2}]
    assert {recording.frame("steps")["round"].max() for recording in recordings.values()} == {1}


# Benchmarks


class ClockBackend(FakeBackend):
    """A backend whose product of n columns takes `step_ns(n)` on the clock, read by the timer of
    real benchmarks.
    """

    def __init__(self, clock):
        super().__init__(exact)
        self.clock = clock
        self.timer = PerfCounter(clock)
        self.watch._timer = clock

    def prepare(self, problem, operands):
        def run():
            self.clock.now_ns += step_ns(problem.n)

        return Prepared(run, lambda: self._kernel(problem, operands), "fake_kernel")


def test_a_benchmark_records_every_call_to_the_nanosecond_and_in_shuffled_rounds(tmp_path, clock):
    problems = sweeps.span(Gemm(8, 8, 8), ["n=1,2,4"])[0]
    method = Method(cache="hot", visits=(5, 5), visit_s=0.01, samples_per_visit=(1, 3))
    results = run_bench(problems, ClockBackend(clock), method, tmp_path / "r")
    assert [result.median_ns for result in results] == [step_ns(n) for n in BATCHES]
    steps = open_recording(tmp_path / "r").frame("steps").sort_values("step")
    assert steps["duration_ns"].tolist() == [step_ns(batch) for batch in steps["batch"]]
    assert visits_of(steps) == [(round_, n) for round_, order in enumerate(SHUFFLED) for n in order]
    for (_, n), visit in steps.groupby(["round", "batch"]):
        samples = {1: 3, 2: 3, 4: 2}[n]
        assert visit["profiled"].tolist() == [False] * samples + [True]
