"""Experiments on complete steps: what the loop does with workers that answer from a table, and real
workers.
"""

import os
import select
import signal
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from curvescope.experiments import step_variants, step_worker
from curvescope.experiments.factor import Target
from curvescope.experiments.factors import FACTORS, names_of, step_change
from curvescope.experiments.runner import Watch
from curvescope.experiments.step_variants import MOST_AT_ONCE, run_step
from curvescope.experiments.step_worker import Ready
from curvescope.profiling.hardware import locked_clocks
from curvescope.profiling.hardware.nvml import NvmlDevice
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.protocol import EXPERIMENT
from curvescope.profiling.measure.sites import here
from curvescope.profiling.measure.sites.site import STAYS
from curvescope.profiling.measure.visits import Empty, Visit, VisitPlan
from curvescope.profiling.recording.experiments import Scope, Stage, experiments_of, factors_of
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..profiling.hardware.test_clocks import fake_nvml
from ..profiling.measure.fake_clock import FakeClock
from .planted_experiments import experiment as planted

ALEXNET = Configuration("alexnet")
GB = 10**9


def experiment(*factors, batches=(1, 2), rounds=(3, 3), limit_s=None):
    facts = {
        "functional": tuple((batch, 1.0) for batch in batches),
        "functional_kind": "excess",
        "batches": batches,
    }
    facts |= {
        "scope": Scope.STEP,
        "layer": None,
        "phase": None,
        "rounds": rounds,
        "time_limit_s": limit_s,
    }
    return planted(4, Stage.REMEDY, factors, done=False, **facts)


def sweep_of(path, configuration=ALEXNET, step_ms=10, **columns):
    """Three rounds at batch 1 and 2, of `step_ms` per sample; further columns have a value for each
    batch size.
    """
    with RecordingWriter(path, configuration.entry) as writer:
        keys = [(batch, round_) for round_ in range(3) for batch in (1, 2)]
        rows = [
            {
                "step": n,
                "batch": b,
                "round": r,
                "index": 0,
                "duration_ns": b * step_ms * 10**6 + r,
                "profiled": False,
            }
            | {name: values[b - 1] for name, values in columns.items()}
            for n, (b, r) in enumerate(keys)
        ]
        writer.write("steps", columns_of(rows))
    return open_recording(path)


class Workers:
    """Workers on a clock; a step of a variant takes 10 ms per sample times its speed.

    `fails` has the outcome of a variant's visits from the third round on; `never_ready` that of its
    first steps; `starts_s` the seconds that these take.
    """

    fails, never_ready, results, memory, starts_s = {}, {}, {}, {}, {}
    draws, available, ms_per_sample, most = False, 64 * GB, 10, 0

    def __init__(self, clock, speed=None, **options):
        self.clock, self.speed, self.running, self.visits = clock, speed or {}, [], []
        vars(self).update(options)

    def start(self, _target, factor):
        workers = self

        class Worker:
            def warm_up(self, while_waiting):
                if (outcome := workers.never_ready.get(factor)) == "slow":
                    for _ in range(1000):
                        workers.clock.now_ns += 10**9
                        while_waiting()
                for _ in range(workers.starts_s.get(factor, 0)):
                    workers.clock.now_ns += 10**9
                    while_waiting()
                results = {1: ((workers.results.get(factor, 5.0), 5.0),)}
                return outcome or Ready(results, workers.draws, workers.memory.get(factor, GB))

            def visit(self, batch, _how, while_waiting):
                workers.visits.append((factor, batch))
                if factor in workers.fails and workers.visits.count((factor, batch)) > 2:
                    while workers.fails[factor] == "hangs":
                        workers.clock.now_ns += 10**9
                        while_waiting()
                    if isinstance(workers.fails[factor], BaseException):
                        raise workers.fails[factor]
                    return workers.fails[factor]
                ns = (
                    int(batch * workers.speed.get(factor, 1.0) * workers.ms_per_sample * 10**6)
                    or 10**7
                )
                workers.clock.now_ns += ns
                row = {
                    "start_ns": workers.clock.now_ns - ns,
                    "duration_ns": ns,
                    "page_faults": 7,
                    "process": 1,
                }
                return Visit([row])

            def available_bytes(self):
                return workers.available - sum(
                    workers.memory.get(name, GB) for name in workers.running
                )

            def end(self):
                workers.running.remove(factor)

        self.running.append(factor)
        self.most = max(self.most, len(self.running))
        return Worker()


def run(path, workers, wanted, recording=None, reports=None):
    recording = recording or sweep_of(path)
    with RecordingWriter.extend(recording.path) as writer:
        report = (lambda _: None) if reports is None else reports.append
        done = run_step(
            recording,
            wanted,
            writer,
            Watch(report=report, clock_s=workers.clock.seconds),
            workers.start,
        )
    after = open_recording(path)
    assert experiments_of(after.meta) == (done,)
    assert not workers.running
    return done, after.arrow("experiments").to_pylist()


def test_each_start_visits_in_an_order_of_its_own(tmp_path):
    """After a start the machine may still be slow: the unmodified steps do not always
    come first.
    """
    workers = Workers(FakeClock())
    run(tmp_path / "r", workers, replace(experiment("one_thread", rounds=(1, 1)), starts=12))
    starts = [tuple(workers.visits[number : number + 4]) for number in range(0, 48, 4)]
    assert len(starts) == 12
    assert {frozenset(visits) for visits in starts} == {frozenset(starts[0])}
    assert {visits[0] for visits in starts} == set(starts[0])


@pytest.mark.parametrize(
    ("start_s", "stage", "made"),
    [(1, Stage.CONFIRM, 5), (5, Stage.CONFIRM, 4), (1, Stage.SCREEN, 3), (20, Stage.CONFIRM, 2)],
)
def test_starts_that_take_less_than_expected_leave_time_for_more(tmp_path, start_s, stage, made):
    """Three are planned, in at most 45 s; each takes two processes and 60 ms of steps."""
    starts = Counter()

    class Counting(Workers):
        def start(self, target, factor):
            starts[factor] += 1
            return super().start(target, factor)

    workers = Counting(FakeClock(), starts_s=dict.fromkeys((None, "one_thread"), start_s))
    wanted = replace(experiment("one_thread", rounds=(1, 1), limit_s=45.0), starts=3, stage=stage)
    run(tmp_path / "r", workers, wanted)
    assert starts == {None: made, "one_thread": made}


def test_processes_of_one_start_build_their_steps_at_the_same_time(tmp_path):
    """All start before any is waited for; the first ones wait to see what memory they take."""
    order = []

    class Ordered(Workers):
        def start(self, target, factor):
            order.append(("start", factor))
            worker = super().start(target, factor)
            warm_up = worker.warm_up

            def noted(while_waiting):
                order.append(("ready", factor))
                return warm_up(while_waiting)

            worker.warm_up = noted
            return worker

    names = ("one_thread", "flush_denormal")
    wanted = replace(experiment(*names, rounds=(1, 1)), starts=2)
    run(tmp_path / "r", Ordered(FakeClock()), wanted)
    first, later = order[:6], order[6:]
    assert [what for what, _ in first] == ["start", "ready", "start", "start", "ready", "ready"]
    assert [what for what, _ in later] == ["start"] * 3 + ["ready"] * 3
    assert {name for _, name in later} == {None, *names}


def test_no_round_starts_that_would_end_after_the_deadline(tmp_path):
    """A worker that starts late."""
    wanted = replace(experiment("one_thread", rounds=(9, 9)), deadline_s=5.0)
    done, rows = run(
        tmp_path / "late", Workers(FakeClock(), never_ready={"one_thread": "slow"}), wanted
    )
    assert (done.done, rows) == (False, [])
    assert done.untested["one_thread"].startswith("its first steps took more than")


def test_a_change_without_effect_is_untested_and_its_rows_stay(tmp_path, monkeypatch):
    change = replace(
        step_change("priority"),
        without_effect=lambda *rows: f"{len(rows[0])} and {len(rows[1])} rows",
    )
    monkeypatch.setitem(FACTORS, "priority", replace(FACTORS["priority"], step=change))
    done, rows = run(tmp_path / "r", Workers(FakeClock()), experiment("priority", "one_thread"))
    assert done.untested == {"priority": "6 and 6 rows"}
    assert len(rows) == 18


def test_rows_have_what_the_workers_timed(tmp_path):
    workers = Workers(FakeClock(), {"one_thread": 3.0})
    done, rows = run(tmp_path / "r", workers, experiment("one_thread"), reports=(got := []))
    assert (done.done, done.untested, done.changed_results, done.notes) == (True, {}, {}, ())
    assert got[0].doing == "starting unmodified steps"
    assert {(row["factor"], row["batch"], row["duration_ns"]) for row in rows} == {
        (None, 1, 10_000_000),
        (None, 2, 20_000_000),
        ("one_thread", 1, 30_000_000),
        ("one_thread", 2, 60_000_000),
    }
    assert {
        (row["experiment"], row["index"], row["page_faults"], row["process"]) for row in rows
    } == {(4, 0, 7, 1)}
    facts = factors_of(open_recording(tmp_path / "r").meta, Scope.STEP)
    assert facts["one_thread"].how.startswith("torch.set_num_threads(1)")


def test_a_factor_that_cannot_be_changed_is_untested_with_its_reason(tmp_path):
    done, rows = run(
        tmp_path / "r", Workers(FakeClock()), experiment("cuda_graph", "no_such", "one_thread")
    )
    assert done.untested == {
        "cuda_graph": "only steps on a CUDA device can be captured",
        "no_such": "there is no such factor of complete steps",
    }
    assert {row["factor"] for row in rows} == {None, "one_thread"}


@pytest.mark.parametrize(
    ("what", "outcome", "why"),
    [
        ("fails", Empty("killed", "SIGSEGV"), "killed (SIGSEGV)"),
        ("fails", "hangs", "its steps took more than 120 s"),
        ("never_ready", Empty("failed", "no C++ compiler"), "no C++ compiler"),
        ("never_ready", Empty("out of memory", "8 GB"), "out of memory (8 GB)"),
    ],
)
def test_a_variant_that_does_not_start_dies_or_hangs_is_untested_and_the_others_continue(
    tmp_path, what, outcome, why
):
    workers = Workers(FakeClock(), **{what: {"compiled": outcome}})
    done, rows = run(tmp_path / "r", workers, experiment("compiled", "one_thread"))
    assert set(done.untested) == {"compiled"}
    assert done.untested["compiled"].endswith(why)
    of = [row["factor"] for row in rows]
    assert of.count("one_thread") == of.count(None) == 3 * 2


def test_once_all_variants_have_failed_no_further_start_is_made(tmp_path):
    """As where each visit is a run of a program, which a change ends with an error."""
    workers = Workers(FakeClock(), never_ready={"bf16_autocast": Empty("failed", "no engine")})
    wanted = replace(experiment("bf16_autocast", rounds=(1, 1)), starts=4)
    done, rows = run(tmp_path / "r", workers, wanted)
    assert (done.done, set(done.untested)) == (True, {"bf16_autocast"})
    assert len(rows) == 2  # one round of each batch size


def test_first_steps_that_take_half_of_the_time_are_given_up(tmp_path):
    workers = Workers(FakeClock(), never_ready={"compiled": "slow"})
    done, rows = run(tmp_path / "r", workers, experiment("compiled", "one_thread", limit_s=60))
    assert done.untested == {"compiled": "its first steps took more than 30 s of the time limit"}
    assert {row["factor"] for row in rows} == {None, "one_thread"}


@pytest.mark.parametrize(("start_s", "untested"), [(23, set()), (25, {"cudnn_benchmark"})])
def test_first_steps_may_take_three_times_as_long_as_the_unmodified_ones(
    tmp_path, start_s, untested
):
    """The unmodified steps start in 8 s: of a limit of 20 s half of the rest would be 6 s."""
    workers = Workers(FakeClock(), starts_s={None: 8, "cudnn_benchmark": start_s})
    recording = sweep_of(tmp_path / "r", replace(ALEXNET, device="cuda:0"))
    done, _ = run(tmp_path / "r", workers, experiment("cudnn_benchmark", limit_s=20), recording)
    assert set(done.untested) == untested


def test_without_the_unmodified_steps_nothing_is_tested(tmp_path):
    workers = Workers(FakeClock(), fails={None: Empty("out of memory", "8 GB")})
    done, _ = run(tmp_path / "r", workers, experiment("one_thread"))
    assert set(done.untested) == {"one_thread"}
    assert "out of memory (8 GB)" in done.untested["one_thread"]
    assert "out of memory (8 GB)" in done.notes[0]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("allowed", [True, False])
def test_the_clock_is_locked_below_that_of_all_sizes_during_the_visits_of_its_factor(
    tmp_path, monkeypatch, allowed, asked
):
    """The steps ran at 1980 and at 1700 MHz: 1615 MHz is 5 % below the lower.

    Unasked, nobody's clock is changed.
    """
    workers, told = Workers(FakeClock()), []

    def lock(_, low, high):
        if not allowed:
            raise nvml.NVMLError("Insufficient Permissions")
        told.append((low, high, len(workers.visits)))

    nvml = fake_nvml(nvmlDeviceSetGpuLockedClocks=lock)
    nvml.nvmlDeviceResetGpuLockedClocks = lambda _: told.append(len(workers.visits))
    monkeypatch.setattr(locked_clocks, "find_device", lambda _: NvmlDevice(nvml, "handle"))
    monkeypatch.setattr(locked_clocks, "start_guard", lambda _: None)
    monkeypatch.setattr(locked_clocks, "end_guard", lambda _: None)
    clocks = {"sm_clock_hz": [1_980_000_000, 1_700_000_000]}
    recording = sweep_of(tmp_path / "r", replace(ALEXNET, device="cuda:0"), **clocks)
    with locked_clocks.clocks_may_be_locked(asked):
        done, rows = run(
            tmp_path / "r", workers, experiment("locked_clock", rounds=(2, 2)), recording
        )
    if not asked:
        assert "needs --lock-clocks" in done.untested["locked_clock"]
        assert told == []
        return
    if not allowed:
        assert (
            "1615 MHz (Insufficient Permissions): this takes root" in done.untested["locked_clock"]
        )
        assert {row["factor"] for row in rows} == {None}
        return
    visits = [
        number for number, (factor, _) in enumerate(workers.visits) if factor == "locked_clock"
    ]
    assert told == [entry for number in visits for entry in ((1615, 1615, number), number + 1)]
    assert len(visits) == 2 * 2


def test_variants_that_do_not_fit_the_memory_together_take_turns(tmp_path):
    """Each takes a gigabyte, and a further one starts only if a quarter more is left: of 3.5, it is
    two at a time.
    """
    factors = ("one_thread", "no_onednn", "channels_last")
    workers = Workers(FakeClock(), available=int(3.5 * GB))
    done, rows = run(tmp_path / "r", workers, experiment(*factors))
    assert done.done
    assert not done.untested
    assert workers.most == 3
    rounds = {
        factor: {row["round"] for row in rows if row["factor"] == factor}
        for factor in (None, *factors)
    }
    assert rounds["one_thread"] == rounds["no_onednn"] == {0, 1, 2}
    assert rounds["channels_last"] == {3, 4, 5}
    assert rounds[None] == set(range(6))


def test_variants_that_did_not_get_their_turn_are_untested(tmp_path):
    workers = Workers(
        FakeClock(), fails={None: Empty("killed", "SIGKILL")}, available=int(2.5 * GB)
    )
    done, _ = run(tmp_path / "r", workers, experiment("one_thread", "no_onednn"))
    assert "killed (SIGKILL)" in done.untested["one_thread"]
    assert done.untested["no_onednn"] == "the unmodified steps failed"


def test_a_variant_that_takes_more_memory_is_noted(tmp_path):
    workers = Workers(
        FakeClock(), memory={"kept_memory": int(1.5 * GB), "one_thread": int(1.05 * GB)}
    )
    done, _ = run(tmp_path / "r", workers, experiment("kept_memory", "one_thread"))
    assert done.notes == (
        "The first steps took 1.50 GB of memory with kept_memory, 1.00 GB unmodified.",
    )


def test_processes_take_turns_with_a_memory_that_holds_one(tmp_path, monkeypatch):
    """Of 80 GB a process takes 68: in each round each starts anew, visits all batch sizes, and
    ends.
    """
    emptied = []
    monkeypatch.setattr(step_variants, "empty_cache", emptied.append)
    factors = ("smaller_memory", "cudnn_workspace")
    sizes = dict.fromkeys((None, *factors), 68 * GB)
    workers = Workers(FakeClock(), {"smaller_memory": 2.0}, memory=sizes, available=80 * GB)
    peaks = {"peak_memory_bytes": [34 * GB, 68 * GB]}
    recording = sweep_of(tmp_path / "r", replace(ALEXNET, device="cuda:0"), **peaks)
    done, rows = run(tmp_path / "r", workers, experiment(*factors), recording)
    assert (done.done, done.untested, workers.most, emptied) == (True, {}, 1, ["cuda:0"])
    assert done.notes == (
        "Processes took turns with the memory, which holds one of them: each started anew for "
        "every round.",
    )
    visited = [factor for factor, batch in workers.visits if batch == 1]
    assert workers.visits == [(factor, batch) for factor in visited for batch in (1, 2)]
    assert len(visited) == 3 * 3
    assert {
        (r["factor"], r["batch"], r["duration_ns"])
        for r in rows
        if r["factor"] != "cudnn_workspace"
    } == {
        (None, 1, 10_000_000),
        (None, 2, 20_000_000),
        ("smaller_memory", 1, 20_000_000),
        ("smaller_memory", 2, 40_000_000),
    }


def test_a_turn_that_starts_too_late_ends_the_rounds_and_fails_nothing(tmp_path):
    """The first four starts take 2 s, the fifth is not done after 30 s, the deadline."""

    class Starts(dict):
        number = 0

        def get(self, _factor, _default):
            self.number += 1
            return 2 if self.number < 5 else 60

    workers = Workers(FakeClock(), starts_s=Starts({None: 2}), available=2 * GB)
    wanted = replace(experiment("one_thread", rounds=(9, 9)), deadline_s=30.0)
    done, rows = run(tmp_path / "r", workers, wanted)
    assert (done.done, done.untested, workers.most) == (False, {}, 1)
    assert not any("failed" in note for note in done.notes)
    assert {row["factor"] for row in rows if row["round"] == 1} == {None, "one_thread"}


@pytest.mark.parametrize("lost", [None, "channels_last"])
def test_a_process_that_fails_in_its_turn_ends_the_others_only_if_it_is_unmodified(tmp_path, lost):
    workers = Workers(FakeClock(), fails={lost: Empty("killed", "SIGKILL")}, available=2 * GB)
    done, rows = run(tmp_path / "r", workers, experiment("one_thread", "channels_last"))
    assert workers.most == 1
    assert set(done.untested) == (
        {"one_thread", "channels_last"} if lost is None else {"channels_last"}
    )
    assert max(row["round"] for row in rows if row["factor"] is None) == (1 if lost is None else 2)


def test_at_most_a_few_variants_run_at_a_time(tmp_path):
    fitting = [name for name in names_of(Scope.STEP) if FACTORS[name].refusal("cpu") is None]
    on_a_cpu = [
        name
        for name in fitting
        if step_change(name).reason_against(Target(ALEXNET, (1, 2))) is None
    ]
    assert len(on_a_cpu) > MOST_AT_ONCE
    workers = Workers(FakeClock())
    done, rows = run(tmp_path / "r", workers, experiment(*on_a_cpu))
    assert workers.most == MOST_AT_ONCE + 1
    assert {row["factor"] for row in rows} == {None, *on_a_cpu}
    assert not done.untested


def test_changed_results_are_said_unless_chance_explains_them(tmp_path):
    wanted = experiment("no_onednn", "channels_last", "padded_batch")
    results = {"no_onednn": 5.001, "channels_last": 5.2, "padded_batch": 9.0}
    done, _ = run(tmp_path / "fixed", Workers(FakeClock(), results=results), wanted)
    assert (
        done.changed_results["channels_last"]
        == "the result of a step of batch 1 differs by 0.04 of its size"
    )
    assert done.changed_results["padded_batch"].startswith("what pads a size")
    assert set(done.changed_results) == {"channels_last", "padded_batch"}
    done, _ = run(tmp_path / "random", Workers(FakeClock(), results=results, draws=True), wanted)
    assert set(done.changed_results) == {"padded_batch"}
    assert done.notes == (
        "The steps draw random numbers, and channels_last draws others: results were not compared.",
    )


def test_a_machine_that_became_slower_is_noted(tmp_path):
    done, _ = run(
        tmp_path / "r",
        Workers(FakeClock()),
        experiment("one_thread"),
        sweep_of(tmp_path / "r", step_ms=8),
    )
    assert done.notes == tuple(
        f"Batch {batch}: the unmodified steps take 25% more time than when the sweep ran."
        for batch in (1, 2)
    )


def test_a_recording_without_steps_that_can_be_built_is_untested(tmp_path):
    with RecordingWriter(tmp_path / "r", {"network": None}):
        pass
    done, _ = run(
        tmp_path / "r",
        Workers(FakeClock()),
        experiment("one_thread"),
        open_recording(tmp_path / "r"),
    )
    assert done.done
    assert "Measure it again" in done.untested["one_thread"]


STEPS = """
import torch

def make_step(batch):
    def step():
        # 64 MiB per sample: larger than any block that glibc keeps by itself
        return torch.empty(batch, 1 << 24).fill_(batch).sum()
    return step
"""


@pytest.fixture
def own_steps(tmp_path, monkeypatch):
    (tmp_path / "own_steps.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    return sweep_of(tmp_path / "r", Configuration.of_step("own_steps.py:make_step", "cpu"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_steps_that_keep_their_memory_take_no_page_faults(own_steps):
    wanted = experiment("kept_memory", "channels_last", rounds=(2, 2))
    with RecordingWriter.extend(own_steps.path) as writer:
        done = run_step(own_steps, wanted, writer)
    assert done.untested == {
        "channels_last": "the step names no module: give it the attribute `module`"
    }
    assert not done.changed_results
    rows = open_recording(own_steps.path).arrow("experiments").to_pylist()
    assert len({row["process"] for row in rows}) == 2
    faults = {
        factor: [row["page_faults"] for row in rows if row["factor"] == factor]
        for factor in (None, "kept_memory")
    }
    # 16,384 for each sample; fewer with huge pages.
    assert min(faults[None]) >= 32
    # A step still takes them if the heap grows, because a small block lies where the large one was.
    assert statistics.median(faults["kept_memory"]) < 32


PARENT = """
from curvescope.profiling.measure.configuration import Configuration
from curvescope.experiments import step_variants, step_worker
from curvescope.experiments.factor import Target
from curvescope.experiments.step_worker import StepWorker

worker = StepWorker(Target(Configuration.of_step("own_steps.py:make_step", "cpu"), (1,)), None)
worker.warm_up()
print(worker.child._process.pid, flush=True)
input()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
@pytest.mark.usefixtures("own_steps")
def test_workers_of_a_script_without_a_guard_start_once_and_end_with_it(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, "parent.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    worker = os.pidfd_open(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert select.select([worker], [], [], 600)[0]  # readable once it has ended
    os.close(worker)
    parent.stdin.close()
    parent.stdout.close()


class _Steps:
    """Steps of known durations on a CPU, which count what ran."""

    device, ran = "cpu", 0

    def __init__(self, step_ms):
        self.step_ns = {batch: round(1e6 * ms) for batch, ms in step_ms.items()}

    def load(self, batch):
        self.batch = batch

    def time_step(self):
        self.ran += 1
        return 0, self.step_ns[self.batch]


def test_a_step_that_fills_a_visit_is_discarded_only_where_another_batch_size_ran_before(
    monkeypatch,
):
    """It would take half of the time. A short step has one each time, as other processes ran."""
    monkeypatch.setattr(here, "wait_until_quiet", lambda: True)
    server = object.__new__(step_worker._Variant)
    server._facts = STAYS
    server._steps = steps = _Steps({1: 20.0, 32: 600.0})
    counts = []
    for batch in (32, 32, 32, 1, 1, 32):
        before = steps.ran
        timed = server.visit(batch, VisitPlan(EXPERIMENT))
        counts.append((steps.ran - before, len(timed.unprofiled)))
    assert counts == [(2, 1), (1, 1), (1, 1), (5, 4), (5, 4), (2, 1)]


def test_starts_of_a_step_that_fills_a_visit_are_timed_from_another_step_on_each():
    """What the heap keeps differs from step to step, in the same order after each start."""
    runner = object.__new__(step_variants.StepRunner)
    runner.experiment = replace(experiment(batches=(32,)), starts=4)
    runner._protocol, runner._is_program = EXPERIMENT, False
    runner._target = Target(ALEXNET, (32,))
    runner._swept = [{"batch": 32, "round": 0, "duration_ns": 600 * 10**6}]
    discarded = []
    for left in (4, 3, 2, 1):
        runner._starts_left, runner._visited = left, set()
        of_start = [runner._protocol_of(None, 32).discarded_steps for _ in range(2)]
        discarded.append(tuple(of_start))
    assert discarded == [(1, 1), (2, 1), (3, 1), (1, 1)]
    runner._swept[0]["duration_ns"], runner._starts_left = 20 * 10**6, 3
    runner._visited.clear()
    assert runner._protocol_of(None, 32).discarded_steps == 1
