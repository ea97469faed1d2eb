"""Experiments on a term alone, on small operators and a clock of lists."""

import math
import threading
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from curvescope.analysis.verdicts.outcome import measurements
from curvescope.analysis.verdicts.words import Verdict
from curvescope.base.errors import CurvescopeError
from curvescope.experiments.factors import FACTORS, all_facts, names_of
from curvescope.experiments.factors.gpu_libraries import why_no_list
from curvescope.experiments.replay import run, site, term
from curvescope.experiments.replay.rebuild import rebuild
from curvescope.experiments.replay.recorded_call import CannotReplay
from curvescope.experiments.replay.run import run_term
from curvescope.experiments.runner import Watch
from curvescope.profiling.attribution.events import StepRows
from curvescope.profiling.measure.loop import Progress
from curvescope.profiling.recording.experiments import Stage, Wave, experiments_of, factors_of
from curvescope.profiling.recording.operators import TensorArgument, Value
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ...kernels.fakes import FakeTimer
from ...shared import ON_VIRTUAL_CARD
from ..planted_experiments import experiment as planted
from ..planted_experiments import judge_all
from ..planted_experiments import operator as row

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

LINEAR = "aten::linear"


def tensor(*shape, dtype="float"):
    return TensorArgument(shape, dtype)


def linear(batch):
    return [tensor(batch, 8), tensor(16, 8), tensor(16)]


class Backend:
    """A timer whose runs all last 1 ms, and a flush that is counted."""

    def __init__(self, cache_bytes=0, durations_ns=(1_000_000,)):
        self.timer = FakeTimer(durations_ns)
        self.cache_bytes = cache_bytes
        self.flush_ns, self.flushes = 1_000_000, 0

    def flush(self):
        self.flushes += 1

    def record(self, call, layer, phase):
        return None


class PlanCache(Backend):
    """A GPU whose kernels are those of PyTorch's plan cache: its key has all settings but
    `benchmark`.

    Each thread has a cache of its own, unless they share one.
    """

    def __init__(self, shared=False):
        super().__init__()
        self._plans: dict[Any, str] = {}
        self._shared = shared

    def record(self, call, layer, phase):
        call()
        cudnn = torch.backends.cudnn
        settings = cudnn.enabled, torch.are_deterministic_algorithms_enabled(), cudnn.allow_tf32
        key = (*settings, None if self._shared else threading.get_ident())
        chosen = "timed" if cudnn.benchmark else f"heuristic, {settings}"
        plan = self._plans.setdefault(key, chosen)
        return StepRows([{"name": plan, "grid_x": 8, "grid_y": 1, "grid_z": 1}], [], {})


@pytest.fixture
def writer(tmp_path):
    with RecordingWriter(tmp_path / "run", {"device": {"kind": "cpu"}}) as opened:
        yield opened


def record(writer, rows):
    writer.write("operators", columns_of(rows))
    return open_recording(writer.path)


def experiment(*names, batches=(2, 4), **others):
    facts = {"functional_kind": "excess", "layer": "fc", "rounds": (2, 2), "done": False, **others}
    return planted(
        0, Stage.SCREEN, names, functional=((4, 1.0), (2, -2.0)), batches=batches, **facts
    )


def linears(writer, **others):
    """A recording of a linear layer at two batch sizes."""
    return record(writer, [row(b, LINEAR, linear(b), **others) for b in (2, 4)])


def visits(path):
    """Number of timed runs by factor, batch size and round."""
    rows = open_recording(path).arrow("experiments").to_pylist()
    return Counter((row["factor"], row["batch"], row["round"]) for row in rows)


def test_every_round_times_every_factor_and_none_at_every_batch_size(writer):
    recording = linears(writer)
    progress: list[Progress] = []
    watch = Watch(report=progress.append)
    run_term(recording, experiment("split_batch", "channels_last"), writer, watch, Backend())
    # 1 ms and a flush of 1 ms: five runs fit a visit of 10 ms.
    expected = {
        (name, batch, round_): 5
        for name in (None, "split_batch")
        for batch in (2, 4)
        for round_ in (0, 1)
    }
    assert visits(writer.path) == expected
    found = open_recording(writer.path).frame("experiments")
    assert set(found.duration_ns) == {1_000_000}
    assert found.cpu_time_ns.notna().all()
    assert factors_of(writer.meta, "term")["split_batch"] == all_facts("term")["split_batch"]
    assert progress[0].doing == "round 1, unmodified, batch 2"


def test_a_run_is_the_calls_of_a_step_in_its_order_and_as_often(writer):
    rows = [
        row(2, "aten::relu", [tensor(2, 8)], position=5, calls=2),
        row(2, LINEAR, linear(2), position=1),
        row(2, "aten::relu", [tensor(2, 8)], layer="fc.inner", position=2),
        row(2, "aten::tanh", [tensor(2, 8)], phase="backward", position=9),
    ]
    backend, ran = Backend(), []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.append(func.name())
            return func(*args, **(kwargs or {}))

    take = backend.timer.take

    def take_logged(*arguments):
        with Log():
            return take(*arguments)

    backend.timer.take = take_logged  # type: ignore[method-assign]
    run_term(record(writer, rows), experiment(batches=(2,)), writer, backend=backend)
    runs = len(backend.timer.taken)
    assert ran == ["aten::t", "aten::addmm", "aten::relu", "aten::relu"] * runs


def test_before_a_switch_larger_batch_sizes_run_in_pieces_with_the_smaller_ones_operators(writer):
    """Another kernel at 4: then 4 is twice the linear layer of 2, with inputs of their own and one
    weight.
    """
    kernels = {1: "small", 2: "small", 4: "large"}
    recording = record(writer, [row(b, LINEAR, linear(b), kernels=kernels[b]) for b in kernels])
    of_fc = term.read_term(recording, "fc", "forward", "cpu", math.inf)
    ran = {batch: of_fc.runnables("before_switch", batch, (2, 4)) for batch in (2, 4)}
    assert [one.call.label for one in ran[2]] == ["aten::linear 2x8, 16x8, 16"]
    assert [one.call.label for one in ran[4]] == 2 * ["aten::linear 2x8, 16x8, 16"]
    (first, weight, _), (second, same_weight, _) = (one.arguments for one in ran[4])
    assert first is not second
    assert weight is same_weight
    done = run_term(recording, experiment("before_switch"), writer, backend=Backend())
    assert (done.untested, done.changed_results) == ({}, {})


NO_SWITCH = {
    "before_switch": "no operator runs at all sizes alike, but for the kernel with the most time"
}


@pytest.mark.parametrize(
    "at_4",
    [
        [row(4, "aten::mm", [tensor(4, 8), tensor(8, 16)])],  # another operator
        [row(4, LINEAR, linear(4)), row(4, "aten::mm", [tensor(4, 8), tensor(8, 16)])],  # one more
        [row(4, LINEAR, linear(4), calls=2)],  # more often
        [row(4, LINEAR, linear(7))],  # padded
    ],
)
def test_pieces_that_would_leave_work_out_are_no_experiment(writer, at_4):
    at_2 = row(2, LINEAR, linear(2), kernels="a")
    rows = [at_2, *({**one, "kernels": "b"} for one in at_4)]
    done = run_term(record(writer, rows), experiment("before_switch"), writer, backend=Backend())
    assert done.untested == NO_SWITCH


@pytest.mark.parametrize(
    ("kernels", "untested"),
    [
        (("a | helper 2", "a | helper 4"), NO_SWITCH),
        (("a | helper", "b | helper"), {}),
        (("a | b", "b | a"), NO_SWITCH),  # both run at both sizes: one just takes longer
        (("a | b", "b"), {}),
    ],
)
def test_a_switch_is_another_kernel_with_the_most_time(writer, kernels, untested):
    rows = [
        row(b, LINEAR, linear(b), kernels=names) for b, names in zip((2, 4), kernels, strict=True)
    ]
    done = run_term(record(writer, rows), experiment("before_switch"), writer, backend=Backend())
    assert done.untested == untested


# The operands of linear(4) and linear(2): 128 and 64 bytes that follow the batch size, and 576 that
# do not.
@pytest.mark.parametrize(
    ("names", "cache_bytes", "flushes"),
    [
        ((), 100, 2 * 2 * 5),  # two batch sizes, two rounds, five runs a visit
        (("cold_caches",), 100, 2 * 2 * 2 * 5),
        ((), 1000, 0),  # all operands of a step fit the cache
        ((), 700, 0),  # those of the smaller step fit: no flush at one size and not at the other
        (("cold_caches",), 1000, 2 * 2 * 5),
    ],
)
def test_caches_are_flushed_before_each_run_unless_a_step_fits_them(
    writer, names, cache_bytes, flushes
):
    recording = linears(writer)
    backend = Backend(cache_bytes)
    run_term(recording, experiment(*names), writer, backend=backend)
    assert backend.flushes == flushes


def test_an_eviction_tests_nothing_where_equal_calls_follow_each_other(writer):
    """The first of them would bring the operands back for all others."""
    calls = [row(b, LINEAR, linear(b), calls=100) for b in (2, 4)]
    done = run_term(record(writer, calls), experiment("cold_caches"), writer, backend=Backend(100))
    why = "its equal calls find in the caches what the one before left there"
    assert done.untested == {"cold_caches": why}


@pytest.mark.parametrize(
    ("layers", "cache_bytes", "why"),
    [
        # Two layers of 640 bytes at batch 2: a step fits neither of the first two caches.
        (("fc", "fc2"), 1000, None),
        (("fc", "fc2"), 600, "the operands of the term do not fit the last-level cache"),
        (
            ("fc",),
            1000,
            "the operands of a whole step fit the cache, so they are there without a change",
        ),
    ],
)
def test_caches_stay_warm_only_with_the_operands_of_a_term_that_fit_them_and_of_a_step_that_do_not(
    layers, cache_bytes, why, writer
):
    recording = record(
        writer, [row(b, LINEAR, linear(b), layer=layer) for b in (2, 4) for layer in layers]
    )
    backend = Backend(cache_bytes)
    done = run_term(recording, experiment("warm_caches"), writer, backend=backend)
    assert done.untested == ({"warm_caches": why} if why else {})
    assert backend.flushes == (0 if why else 2 * 2 * 5)


def test_a_size_between_two_other_operators_is_left_out_and_the_operators_stay(writer):
    # at 4 another operator runs, so no rule says its shapes at 3, nor those of the first one there
    recording = record(writer, [row(2, LINEAR, linear(2)), row(4, "aten::relu", [tensor(4, 8)])])
    done = run_term(recording, experiment(batches=(2, 3, 4)), writer, backend=Backend())
    assert {batch for _, batch, _ in visits(writer.path)} == {2, 4}
    assert done.done
    assert not any("is left out" in note for note in done.notes)


def test_without_memory_to_keep_operands_every_visit_builds_them(writer, monkeypatch):
    built: list[int] = []

    def count(call, *arguments, **named):
        built.append(call.batch)
        return rebuild(call, *arguments, **named)

    monkeypatch.setattr(term, "rebuild", count)
    recording = linears(writer)
    names = ("split_batch", "other_layout")
    run_term(recording, experiment(*names), writer, backend=Backend())
    assert built == [2, 4]
    built.clear()
    monkeypatch.setattr(run, "available_bytes", lambda _: 0)
    again = replace(experiment(*names), number=1)
    assert run_term(recording, again, writer, backend=Backend()).changed_results == {}
    assert len(built) > 8
    assert len(visits(writer.path)) == 3 * 2 * 2


def test_operators_that_cannot_run_alone_are_left_out_with_their_share(writer):
    rows = [row(b, LINEAR, linear(b)) for b in (2, 4)]
    rows += [row(b, "mine::op", [tensor(b, 8)], duration_ns=3000, position=1) for b in (2, 4)]
    done = run_term(record(writer, rows), experiment("split_batch"), writer, backend=Backend())
    assert done.notes == (
        "mine::op 4x8 is left out (75% of the term's operators): it is no operator of torch's "
        "schemas.",
    )
    assert visits(writer.path)
    assert done.untested == {}


def test_a_term_without_operators_that_can_run_leaves_all_factors_untested(writer):
    recording = record(writer, [row(2, "mine::op", [tensor(2, 8)])])
    done = run_term(recording, experiment("split_batch"), writer, backend=Backend())
    assert done.untested == {"split_batch": "none of the term's operators can run in isolation"}
    assert done.done
    assert not visits(writer.path)


def test_a_term_that_the_recording_lacks_is_said(writer):
    recording = record(writer, [row(2, LINEAR, linear(2), layer="other")])
    done = run_term(recording, experiment(), writer, backend=Backend())
    assert done.notes == ("The recording has no operator calls of this term.",)


def test_a_factor_that_changes_results_is_said(writer):
    rows = [
        row(
            *(b, "aten::native_batch_norm"),
            [tensor(b, 4, 8, 8), *[tensor(4)] * 4, Value(True), Value(0.1), Value(1e-5)],
        )
        for b in (2, 4)
    ]
    done = run_term(
        record(writer, rows), experiment("split_batch", "one_thread"), writer, backend=Backend()
    )
    assert set(done.changed_results) == {"split_batch"}
    assert done.changed_results["split_batch"].startswith("aten::native_batch_norm 2x4x8x8")
    assert visits(writer.path)["split_batch", 4, 1]


def test_a_factor_that_torch_refuses_is_untested_with_the_reason(writer, monkeypatch):
    def refuse(runnable, _):
        if runnable.call.batch == 4:
            raise RuntimeError("could not create a primitive")
        return runnable

    split = FACTORS["split_batch"]
    assert split.term is not None
    monkeypatch.setitem(
        FACTORS, "split_batch", replace(split, term=replace(split.term, call=refuse))
    )
    done = run_term(linears(writer), experiment("split_batch"), writer, backend=Backend())
    assert done.untested == {"split_batch": "could not create a primitive"}
    assert set(visits(writer.path)) == {
        (None, batch, round_) for batch in (2, 4) for round_ in (0, 1)
    }


@pytest.mark.parametrize("name", [None, "split_batch"])
def test_what_does_not_fit_the_memory_ends_alone(name, writer, monkeypatch):
    visit = site.TermCalls.visit

    def run_out(self, batch):
        if (self._name, batch) == (name, 4):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.\nAnd more.")
        return visit(self, batch)

    monkeypatch.setattr(site.TermCalls, "visit", run_out)
    done = run_term(linears(writer), experiment("split_batch"), writer, backend=Backend())
    message = "atch size 4 does not fit the memory: CUDA out of memory. Tried to allocate 2 GiB"
    assert done.notes == ((f"B{message}.",) if name is None else ())
    assert done.untested == ({} if name is None else {"split_batch": f"b{message}"})
    ran = {(factor, batch) for factor, batch, _ in visits(writer.path)}
    assert ran == ({(None, 2), ("split_batch", 2)} if name is None else {(None, 2), (None, 4)})


@pytest.mark.parametrize("refused", [None, 6])
def test_the_sizes_of_a_wave_run_unmodified_and_one_that_cannot_costs_only_their_factor(
    refused, writer, monkeypatch
):
    built = term.ReplayedTerm.runnables

    def runnables(self, name, batch, batches):
        if batch == refused:
            raise CannotReplay("too large")
        return built(self, name, batch, batches)

    monkeypatch.setattr(term.ReplayedTerm, "runnables", runnables)
    recording = linears(writer)
    wanted = experiment("filled_wave", "split_batch", waves=(Wave(2, 3, 5, 6, 0.5),))
    done = run_term(recording, wanted, writer, backend=Backend())
    assert done.done
    assert experiments_of(writer.meta) == (done,)
    sizes = {None: {2, 3, 4, 5, 6} - {refused}, "split_batch": {2, 4}}
    assert {key[:2] for key in visits(writer.path)} == {
        (name, b) for name, of_name in sizes.items() for b in of_name
    }
    assert done.untested == ({"filled_wave": "too large"} if refused else {})
    verdicts = {
        one.factor: one.verdict for one in judge_all(measurements(open_recording(writer.path)))
    }
    assert (verdicts["filled_wave"] == Verdict.UNTESTED) == bool(refused)


def test_without_recorded_grids_no_wave_is_tested(writer, monkeypatch):
    done = run_term(linears(writer), experiment("filled_wave"), writer, backend=Backend())
    why = (
        "no recorded grid of a kernel, nor its times, say at which batch sizes its last wave or "
        "block is full"
    )
    assert done.untested == {"filled_wave": why}


def conv(batch):
    geometry = [Value((1, 1)), Value((1, 1)), Value((1, 1)), Value(1)]
    return [tensor(batch, 3, 8, 8), tensor(4, 3, 3, 3), tensor(4), *geometry]


@pytest.fixture
def on_gpu(monkeypatch):
    """The calls run on the CPU; everything around them does what it does for a GPU."""
    monkeypatch.setattr(run, "device_of", lambda _: "cuda:0")
    monkeypatch.setattr(run, "available_bytes", lambda _: 10**9)
    monkeypatch.setattr(term, "rebuild", lambda call, _, **others: rebuild(call, "cpu", **others))
    monkeypatch.setattr(torch.random, "fork_rng", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())


@pytest.mark.usefixtures("on_gpu")
def test_on_a_gpu_the_settings_of_a_factor_hold_while_its_runs_are_timed(writer, monkeypatch):
    backend = Backend()
    cudnn, found, take = (
        torch.backends.cudnn,
        Counter[tuple[bool, bool, bool]](),
        backend.timer.take,
    )

    tf32: set[bool] = set()

    def take_noted(*arguments):
        tf32.add(torch.backends.cuda.matmul.allow_tf32 and cudnn.allow_tf32)
        found[cudnn.enabled, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()] += 1
        return take(*arguments)

    monkeypatch.setattr(backend.timer, "take", take_noted)
    names = (
        "no_cudnn",
        "cudnn_benchmark",
        "deterministic",
        "cublaslt",
        "reused_memory",
        "one_thread",
        "onednn",
    )
    recording = record(writer, [row(b, "aten::conv2d", conv(b)) for b in (2, 4)])
    writer.update(precision="tf32")
    recording = open_recording(recording.path)
    done = run_term(recording, experiment(*names), writer, backend=backend)
    assert tf32 == {True}
    assert not torch.backends.cuda.matmul.allow_tf32
    assert set(done.untested) == {"cublaslt", "reused_memory", "one_thread", "onednn"}
    # two batch sizes and two rounds, one discarded run and five timed ones each
    runs = 2 * 2 * (1 + 5)
    assert found == {
        (True, False, False): runs,
        (False, False, False): runs,
        (True, True, False): runs,
        (True, False, True): runs,
    }


@pytest.mark.usefixtures("on_gpu")
def test_a_factor_that_leaves_the_kernels_of_a_gpu_as_they_are_is_untested(writer):
    recording = record(writer, [row(b, "aten::conv2d", conv(b)) for b in (2, 4)])
    names = ("no_cudnn", "cudnn_benchmark", "deterministic", "cold_caches")
    done = run_term(recording, experiment(*names), writer, backend=PlanCache(shared=True))
    assert done.untested == {"cudnn_benchmark": "the same kernels ran"}
    (untested,) = [
        one
        for one in judge_all(measurements(open_recording(writer.path)))
        if one.factor == "cudnn_benchmark"
    ]
    assert (untested.verdict, untested.reason) == (Verdict.UNTESTED, "the same kernels ran")


@pytest.mark.usefixtures("on_gpu")
def test_cudnn_times_its_algorithms_although_pytorch_keeps_the_plan_of_the_unmodified_call(writer):
    """PyTorch finds that plan in the cache of its thread, whatever `benchmark` says then: it did on
    an H100.
    """
    recording = record(writer, [row(b, "aten::conv2d", conv(b)) for b in (2, 4)])
    before = threading.active_count()
    done = run_term(recording, experiment("cudnn_benchmark"), writer, backend=PlanCache())
    assert done.untested == {}
    assert threading.active_count() == before


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "arguments", "others"),
    [
        (LINEAR, linear, {"no_cudnn", "cudnn_benchmark", "channels_last"}),
        ("aten::conv2d", conv, {"cublaslt", "cublaslt_list", "small_workspace", "other_layout"}),
    ],
)
def test_every_factor_of_a_gpu_runs_there(tmp_path, op, arguments, others):
    with RecordingWriter(tmp_path / "gpu", {"device": {"kind": "cuda"}}) as writer:
        recording = record(writer, [row(b, op, arguments(b)) for b in (2, 4)])
        done = run_term(recording, experiment(*names_of("term")), writer)
    # Those of a CPU, those of other operators, and those of what this recording does not have.
    of_cpu = {name for name in names_of("term") if FACTORS[name].refusal("cuda:0")}
    missing = {"filled_wave", "one_expert", "stored_operands", "usual_values", "warm_caches"}
    missing |= {"cublaslt_list"} if why_no_list() else set()
    # Which kernels run, the library decides.
    same = {name for name, why in done.untested.items() if why == "the same kernels ran"}
    assert set(done.untested) - same - {"before_switch"} == others | of_cpu | missing
    assert done.changed_results == {} or ON_VIRTUAL_CARD  # whose results are those of nothing
    assert {name for name, *_ in visits(writer.path)} == {None, *names_of("term")} - set(
        done.untested
    ) | same


def test_a_recording_of_a_gpu_needs_one(tmp_path):
    with RecordingWriter(tmp_path / "gpu", {"device": {"kind": "cuda"}}) as writer:
        recording = record(writer, [row(2, LINEAR, linear(2))])
        if torch.cuda.is_available():
            return
        with pytest.raises(CurvescopeError, match="CUDA"):
            run_term(recording, experiment(), writer)


@pytest.mark.parametrize(
    ("faults", "largest"),
    # The largest operand is the weights, 16 x 8 numbers of 4 bytes.
    [({2: 12, 4: 30}, 32 << 20), ({2: 12, 4: 5000}, 512), ({2: None, 4: None}, 512)],
    ids=["few", "many at one size", "not counted"],
)
def test_a_replay_keeps_memory_as_the_recorded_steps_did(writer, faults, largest):
    """Steps that take few page faults run in memory that their process kept, whatever the sizes of
    their operands.
    """
    steps = [
        {
            "step": b,
            "batch": b,
            "round": 0,
            "index": 0,
            "mode": "forward",
            "profiled": False,
            "page_faults": number,
        }
        | {"start_ns": b * 10**6, "duration_ns": 10**6}
        for b, number in faults.items()
    ]
    writer.write("steps", columns_of(steps))
    recording = linears(writer)
    of_fc = term.read_term(recording, "fc", "forward", "cpu", math.inf)
    assert max(of_fc.block_bytes) == largest
