"""What marks the steps of a program, played in this process: no program is started."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from curvescope.profiling.collect.startup import framework_windows, program_steps
from curvescope.profiling.collect.startup.program_steps import (
    CALL,
    KERAS,
    OPTIMIZER,
    PROFILER,
    Steps,
)

from ...shared import load_script

WANTED = {"discarded": 2, "steps": [2, 3], "visit_s": 0.0, "profiled": 0, "range": None}


class Played(Steps):
    """Steps on a clock that each snapshot advances by a millisecond."""

    def __init__(self, folder, **wanted):
        self.now_ns = 0
        usage = SimpleNamespace(read_host_use=lambda: None, host_use_between=lambda *_: {})
        frameworks = SimpleNamespace(
            used_frameworks=list,
            framework_versions=lambda: {"jax": "0.99"},
            own_profiler=lambda: None,
            accelerator_in_use=lambda: None,
        )
        loaded = {"_curvescope_host_usage": usage, "_curvescope_frameworks": frameworks}
        super().__init__({**WANTED, "folder": str(folder), **wanted}, lambda name, _: loaded[name])
        self._cuda = lambda: None  # whatever other tests of this process play

    def snapshot(self):
        self.now_ns += 1_000_000
        return self.now_ns, None

    def found(self, folder):
        (path,) = folder.glob("*.steps")
        return json.loads(path.read_text())


def test_a_visit_is_complete_after_the_steps_that_were_wanted(tmp_path):
    steps = Played(tmp_path)
    for _ in range(3):
        steps.ended(OPTIMIZER)
    assert not list(tmp_path.iterdir())
    steps.ended(OPTIMIZER)
    found = steps.found(tmp_path)
    assert (found["complete"], found["source"], found["seen"]) == (True, OPTIMIZER, 4)
    assert [row["duration_ns"] for row in found["rows"]] == [1_000_000, 1_000_000]
    assert found["frameworks"] == {"jax": "0.99"}


def test_a_better_mark_replaces_one_and_begins_anew(tmp_path):
    """A model that is called before an optimizer steps, e.g. to try it, marks no step of a
    training.
    """
    steps = Played(tmp_path)
    for _ in range(3):
        steps.ended(CALL)
    for _ in range(3):
        steps.ended(PROFILER)
    steps.ended(OPTIMIZER)
    steps.ended(PROFILER)  # of lower rank
    assert not list(tmp_path.iterdir())
    for _ in range(3):
        steps.ended(OPTIMIZER)
    assert steps.found(tmp_path)["seen"] == 4


def test_the_first_optimizer_marks_the_steps(tmp_path):
    class Optimizer:
        pass

    steps, first, second = Played(tmp_path), Optimizer(), Optimizer()
    for _ in range(4):
        steps.ended(OPTIMIZER, steps._first(first))
        steps.ended(OPTIMIZER, steps._first(second))
    found = steps.found(tmp_path)
    assert (found["seen"], found["mark"]) == (4, "Optimizer")


def test_a_program_that_ends_early_tells_what_it_has(tmp_path):
    steps = Played(tmp_path)
    for _ in range(3):
        steps.ended(KERAS)
    steps.write()
    found = steps.found(tmp_path)
    assert (found["complete"], found["seen"], len(found["rows"])) == (False, 3, 1)


class Range:
    """A context like torch's record_function."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.mark.parametrize("name", ["step", "train_step", "Iteration 7", "batch: 3"])
def test_ranges_that_are_named_like_a_step_mark_steps_from_end_to_end(tmp_path, name):
    module, steps = SimpleNamespace(Range=Range), Played(tmp_path)
    steps._follow_contexts(module, "Range", lambda context: context.name)
    for _ in range(4):
        with module.Range(name):
            pass
    found = steps.found(tmp_path)
    assert found["source"] == program_steps.STEP_NAME
    assert {row["duration_ns"] for row in found["rows"]} == {2_000_000}  # a snapshot at each border


def test_a_range_of_the_given_name_is_the_step_itself_and_nothing_else_is(tmp_path):
    module, steps = (
        SimpleNamespace(push=lambda _: None, pop=lambda: None),
        Played(tmp_path, range="mine"),
    )
    steps._follow_push_pop(module, "push", "pop")
    for _ in range(5):
        steps.ended(OPTIMIZER)
        module.push("mine")
        module.push("step")
        module.pop()
        module.pop()
    found = steps.found(tmp_path)
    assert found["source"] == program_steps.RANGE
    assert {row["duration_ns"] for row in found["rows"]} == {1_000_000}


def played_jax(steps):
    jax = ModuleType("jax")
    jax.jit = lambda function=None, **_: function if function is not None else (lambda inner: inner)
    jax.profiler = SimpleNamespace(TraceAnnotation=Range, StepTraceAnnotation=Range)
    steps.follow_jax(jax)
    return jax


def test_the_compiled_function_that_a_program_calls_again_and_again_marks_its_steps(tmp_path):
    steps = Played(tmp_path)
    jax = played_jax(steps)

    @jax.jit
    def evaluate(x):
        return -x

    @jax.jit
    def train(x):
        """Add one."""
        return x + 1

    assert evaluate(1) == -1
    assert [train(number) for number in range(6)] == [1, 2, 3, 4, 5, 6]
    found = steps.found(tmp_path)
    assert found["source"] == program_steps.JITTED
    assert found["mark"].endswith("train")
    assert train.__doc__ == "Add one."


def test_a_compiled_method_keeps_its_object(tmp_path):
    jax = played_jax(Played(tmp_path))

    class Model:
        bias = 2

        @jax.jit
        def apply(self, x):
            return x + self.bias

    assert Model().apply(1) == 3


def test_the_startup_file_follows_packages_only_for_a_program(monkeypatch, tmp_path):
    monkeypatch.setenv("CURVESCOPE_PROGRAM", json.dumps({**WANTED, "folder": str(tmp_path)}))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr("atexit.register", lambda *_: None)
    for name in (
        "sitecustomize",
        *sys.modules,
    ):  # the script runs the program's own, and loads files by these names
        if name == "sitecustomize" or name.startswith("_curvescope_"):
            monkeypatch.delitem(sys.modules, name, raising=False)
    before = list(sys.meta_path)
    load_script("profiling/collect/startup/sitecustomize.py")
    (finder,) = [one for one in sys.meta_path if one not in before]
    assert set(finder._loaded) >= {"torch", "jax", "nvtx"}


def test_jax_profiles_each_step_in_a_range_of_its_own(tmp_path):
    log = []

    class Step(Range):
        def __init__(self, name, step_num):
            super().__init__(name)
            self.number = step_num

        def __enter__(self):
            log.append(("begin", self.number))

        def __exit__(self, *_):
            log.append(("end", self.number))

    profiler = SimpleNamespace(
        start_trace=lambda folder: log.append(("start", folder)),
        stop_trace=lambda: log.append(("stop", None)),
    )
    recorder = framework_windows.of_jax(profiler, Step, str(tmp_path))
    recorder.open_window()
    recorder.end_step()
    recorder.close_window()
    steps = [("begin", 0), ("end", 0), ("begin", 1), ("end", 1)]
    assert log == [("start", str(tmp_path / "framework")), *steps, ("stop", None)]


def test_tensorflow_profiles_each_step_in_a_range_of_its_own(tmp_path):
    log = []

    class Trace(Range):
        def __init__(self, name, step_num, _r):
            super().__init__(name)
            self.number, self.is_root = step_num, _r

        def __enter__(self):
            log.append((self.number, self.is_root))

        def __exit__(self, *_):
            log.append("end")

    profiler = SimpleNamespace(start=log.append, stop=lambda: log.append("stop"), Trace=Trace)
    recorder = framework_windows.of_tensorflow(profiler, str(tmp_path))
    recorder.open_window()
    recorder.end_step()
    recorder.close_window()
    assert log == [str(tmp_path / "framework"), (0, 1), "end", (1, 1), "end", "stop"]
