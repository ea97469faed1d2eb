"""Steps of a user's own: what make_step may return, what is recorded of it, and what an error
costs.
"""

import sys

import pytest
import torch
from torch import nn

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.collect import inductor
from curvescope.profiling.measure.configuration import Configuration, configuration_of
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visit import time_marked_steps
from curvescope.profiling.recording.axis import Axis, axis_of
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network
from curvescope.profiling.workload.own_step import OwnStep, load_make_step, spec_of

from ...tables import ask_each

SHORT = Protocol("short", (2, 2), 1, (2, 2), 0.0, 1, None)
NOTHING_PROFILED = Protocol("short", (3, 3), 1, (2, 2), 0.0, 0, None)


def make_step(batch):
    """A training step with everything that a user writes."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = torch.randn(batch, 8), torch.randint(4, (batch,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    step.module = model
    return step


def measure(path, function, batches=(1, 2, 4), protocol=NOTHING_PROFILED, **options):
    run_sweep(Here(OwnStep(function, **options)), batches, protocol, path)
    return open_recording(path)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("own") / "r", make_step, (2, 4), SHORT)


def test_a_step_has_marks_also_where_another_step_was_compiled_before(monkeypatch):
    """Graphs that were compiled for another step of this process have nothing to do
    with this one.
    """
    monkeypatch.setattr(inductor, "COMPILED", {"of another step": ()})
    workload = OwnStep(make_step, name="made")
    workload.load(2)
    _, (marked,) = time_marked_steps(workload, 1)
    assert {"0", "2"} <= {row["layer"] for row in marked}
    inductor.COMPILED["of this step"] = ()
    _, (marked,) = time_marked_steps(workload, 1)
    assert {row["layer"] for row in marked} == {None}


def test_a_second_step_is_searched_in_its_own_folder(tmp_path, monkeypatch):
    """Python goes on to search a relative folder where it was when a module was first searched in
    it.
    """
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.path_importer_cache, ".", raising=False)
    for folder, value in (("first", 1), ("second", 2)):
        (tmp_path / folder).mkdir()
        step = "import step_beside\ndef make_step(batch): return lambda: None\n"
        (tmp_path / folder / f"step_in_{folder}.py").write_text(step)
        (tmp_path / folder / "step_beside.py").touch()
        (tmp_path / folder / "step_in_both.py").write_text(
            f"def make_step(batch): return {value}\n"
        )
    monkeypatch.chdir(tmp_path / "first")
    load_make_step("step_in_first.py:make_step")
    monkeypatch.chdir(tmp_path / "second")
    assert load_make_step("step_in_both:make_step")(1) == 2
    for name in ("step_in_first", "step_beside", "step_in_both"):
        sys.modules.pop(name)


def test_kernels_have_the_layers_and_phases_of_the_users_step(recorded):
    kernels = recorded.frame("kernels")
    placed = set(kernels[["layer", "phase"]].dropna().itertuples(index=False, name=None))
    assert {("0", "forward"), ("0", "backward"), ("2", "forward"), ("2", "backward")} <= placed
    optimizer = kernels[kernels["phase"] == "optimizer"]
    assert len(optimizer) > 0
    assert optimizer["layer"].isna().all()
    assert set(recorded.frame("steps")["mode"]) == {"own"}
    assert recorded.meta["layer_classes"] == {"0": "Linear", "1": "ReLU", "2": "Linear"}


@pytest.mark.slow
def test_without_a_module_kernels_have_operators_and_phases_but_no_layer(tmp_path):
    def bare(batch):
        step = make_step(batch)
        return lambda: step()

    kernels = measure(tmp_path / "r", bare, (2, 4), SHORT).frame("kernels")
    assert kernels["layer"].isna().all()
    assert {"backward", "optimizer"} <= set(kernels["phase"].dropna())
    assert kernels["op"].notna().any()


def test_a_recording_says_how_to_build_its_step_again(recorded):
    found = configuration_of(recorded.meta)
    assert found == Configuration.of_step(f"{__name__}:make_step", "cpu")
    workload = found.build()
    workload.try_step(2)
    assert workload.layer_classes() == recorded.meta["layer_classes"]


SHARED = nn.Sequential(nn.Linear(8, 4))


def make_forward(batch):
    """A step that does not name its module, which is a variable of this file."""
    inputs = torch.randn(batch, 8)
    return lambda: SHARED(inputs).sum()


def test_a_step_has_the_name_of_its_function_wherever_it_is_defined():
    def make_step(batch):
        raise AssertionError

    assert OwnStep(make_step).name == "make_step"
    assert OwnStep(make_step, name="mine").name == "mine"


@ask_each(("module", "name"), [(SHARED, "SHARED"), (nn.Linear(8, 4), None), (None, None)])
def test_other_processes_know_a_given_module_by_its_variable(module, name):
    workload = OwnStep(make_forward, "cpu", module=module)
    found = configuration_of(workload.spec)
    assert found.step_module == name
    there = found.build()  # as another process does, which imports this file
    there.load(2)
    assert there.model is (SHARED if name else None)


@pytest.mark.slow
def test_a_recording_of_a_network_says_how_to_build_it_again():
    workload = Workload(get_network("bert_base", 16), mode="forward", precision="bf16")
    found = configuration_of(workload.spec)
    assert found == Configuration("bert_base", None, 16, "cpu", "forward", "bf16")
    assert configuration_of(found.entry) == found


def test_a_step_that_another_process_cannot_import_is_said_to_be_one(tmp_path):
    def inner(batch):
        return lambda: None

    meta = measure(tmp_path / "r", inner).meta
    where = "the function test_a_step_that_another_process_cannot_import_is_said_to_be_one"
    with pytest.raises(
        CurvescopeError,
        match=f"cannot be run again by another process: it is defined inside {where}",
    ):
        configuration_of(meta)
    assert spec_of(lambda batch: print) == (None, "it is a lambda")
    assert spec_of(make_step) == (f"{__name__}:make_step", None)


def make_batches():
    yield 1


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"returned nothing \(None\): return a function"),
        (3, r"\(batch=1\) returned an int: return a function"),
        (iter(()), "returned a tuple_iterator"),
        (make_batches, "is a generator function: calling it runs nothing"),
    ],
)
def test_what_is_no_step_is_refused_before_anything_is_recorded(tmp_path, returned, message):
    with pytest.raises(CurvescopeError, match=message):
        measure(tmp_path / "r", lambda batch: returned)
    assert not (tmp_path / "r").exists()


def test_a_batch_size_that_fails_has_a_reason_and_the_others_are_measured(tmp_path):
    """In the function that makes the step, or only in its third call."""

    def make(batch):
        calls = []
        if batch == 2:
            raise ValueError("no such bucket\nand more")

        def step():
            calls.append(batch)
            if batch == 4 and len(calls) == 3:
                raise KeyError("worn out")

        return step

    recording = measure(tmp_path / "r", make, (1, 2, 4, 8))
    made, called = recording.meta["unmeasured"]
    assert (made["batch"], made["why"], called["batch"]) == (2, "failed", 4)
    assert made["detail"].startswith(
        "make_step raised ValueError: no such bucket (test_own_step.py, line "
    )
    assert called["detail"].startswith("call 3 of the step raised KeyError: 'worn out'")
    assert recording.frame("steps").groupby("batch").size().to_dict() == {1: 6, 8: 6}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda batch: lambda: undefined,  # noqa: F821
            r"batch 1: failed \(call 1 of the step raised NameError.*, line \d+\)",
        ),
        (
            lambda: print,
            r"\(batch=1\) cannot be called: too many positional arguments\. Name a function",
        ),
    ],
)
def test_a_step_that_fails_everywhere_is_an_error_that_names_its_line(tmp_path, function, message):
    with pytest.raises(CurvescopeError, match=message):
        measure(tmp_path / "r", function)


def test_steps_are_made_once_unless_they_can_be_closed(tmp_path):
    made, closed = [], []

    class Closing:
        def __init__(self, batch):
            made.append(batch)
            self.batch = batch

        def __call__(self):
            assert self.batch not in closed[-1:]

        def close(self):
            closed.append(self.batch)

    kept = []
    measure(tmp_path / "kept", lambda batch: kept.append(batch) or (lambda: None))
    assert kept == [1, 2, 4]
    measure(tmp_path / "closing", Closing, (1, 2))
    assert sorted(made) == [1] * (made.count(1)) + [2] * made.count(2)
    assert len(made) >= 4
    assert closed == made


def test_memory_that_other_batch_sizes_hold_is_freed_before_a_batch_size_is_given_up(tmp_path):
    alive = set()

    class Large:
        def __init__(self, batch):
            self.batch = batch
            if len(alive) == 2:
                raise MemoryError
            alive.add(batch)

        def __call__(self):
            pass

        def __del__(self):
            alive.discard(self.batch)

    recording = measure(tmp_path / "r", Large)
    assert recording.meta["unmeasured"] == []
    assert set(recording.frame("steps")["batch"]) == {1, 2, 4}


def test_any_axis_is_passed_by_name(tmp_path):
    asked = []

    def own(**values):
        asked.append(values)
        return lambda: None

    recording = measure(tmp_path / "r", own, (128, 256), axis=Axis("tokens"), fixed={"batch": 2})
    assert asked == [{"batch": 2, "tokens": 128}, {"batch": 2, "tokens": 256}]
    assert recording.meta["axis"] == {"name": "tokens", "unit": "tokens"}
    assert axis_of(recording.meta).one == "token"
    assert axis_of({}) == Axis()
    with pytest.raises(CurvescopeError, match="is no name of an axis"):
        Axis("a b")


@pytest.mark.slow
def test_the_number_of_tokens_of_a_network_can_be_the_axis():
    configuration = Configuration(
        "bert_base_encoder", mode="forward", axis="tokens", fixed=(("batch", 3),)
    )
    workload = configuration.build()
    workload.load(16)
    assert workload._batch[1][0].shape == (3, 16)
    assert configuration_of(workload.spec) == configuration
    with pytest.raises(CurvescopeError, match="the axes of alexnet are batch; others need a step"):
        Configuration("alexnet", axis="tokens").check()


class OnCuda(nn.Module):
    """A module whose parameter lies on a CUDA device, as far as it says."""

    def parameters(self, recurse=True):
        return iter([type("Parameter", (), {"is_cuda": True})])


@pytest.mark.parametrize(
    ("device", "allocated", "module", "expected"),
    [
        (None, 512, None, "cuda:1"),
        (None, 0, None, "cpu"),
        ("cpu", 512, nn.ReLU(), "cpu"),
        ("cpu", 512, OnCuda(), "uses a CUDA device: measure it with --device cuda"),
        ("cuda:1", 512, None, "cuda:1"),
        ("cuda:1", 0, None, "does not use cuda:1: measure it with --device cpu"),
    ],
)
def test_the_device_is_the_one_that_the_step_uses(monkeypatch, device, allocated, module, expected):
    """CUDA is played: what its allocator gave tells whether the step used it."""
    synchronised = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: allocated)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronised.append)
    monkeypatch.setattr(
        "curvescope.profiling.workload.own_step.memory_is_short", lambda device: False
    )
    workload = OwnStep(lambda batch: lambda: None, device, module=module)
    if " " in expected:
        with pytest.raises(CurvescopeError, match=expected):
            workload.try_step(1)
        return
    workload.try_step(1)
    assert workload.device == expected
    synchronised.clear()
    workload.time_step()
    assert len(synchronised) == 2  # before and after, even if the device was to be a CPU
