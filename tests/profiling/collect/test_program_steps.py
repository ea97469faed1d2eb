"""What marks the steps of a program, played in this process: no program is started."""

import functools
import json
import os
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from torch import nn

from curvescope.profiling.collect.startup import framework_marks, framework_windows, program_steps
from curvescope.profiling.collect.startup.program_steps import (
    CALL,
    KERAS,
    OPTIMIZER,
    PROFILER,
    Steps,
)
from curvescope.profiling.collect.startup.torch_windows import list_parts

from ...shared import load_script
from ...tables import ask_each

WANTED = {"discarded": 2, "steps": [2, 3], "visit_s": 0.0, "profiled": 0, "range": None}


class Played(Steps):
    """Steps on a clock that each snapshot advances by a millisecond."""

    def __init__(self, folder, **wanted):
        self.now_ns = 0
        usage = SimpleNamespace(read_host_use=lambda: None, host_use_between=lambda *_: {})
        frameworks = SimpleNamespace(
            list_used_frameworks=list,
            framework_versions=lambda: {"jax": "0.99"},
            own_profiler=lambda: None,
            accelerator_in_use=lambda: None,
        )
        loaded = {"_curvescope_host_usage": usage, "_curvescope_frameworks": frameworks}
        super().__init__({**WANTED, "folder": str(folder), **wanted}, lambda name, _: loaded[name])
        self._cuda = lambda: None  # whatever other tests of this process play

    def snapshot(self):
        self.now_ns += 1_000_000
        return self.now_ns, None, self._record_event()

    def found(self, folder):
        (path,) = folder.glob("*.steps")
        return json.loads(path.read_text())


def test_a_visit_is_complete_after_the_steps_that_were_wanted(tmp_path):
    steps = Played(tmp_path)
    for _ in range(3):
        steps.note_end(OPTIMIZER)
    assert not list(tmp_path.glob("*.steps"))
    steps.note_end(OPTIMIZER)
    found = steps.found(tmp_path)
    assert (found["complete"], found["source"], found["seen"]) == (True, OPTIMIZER, 4)
    assert [row["duration_ns"] for row in found["rows"]] == [1_000_000, 1_000_000]
    assert found["frameworks"] == {"jax": "0.99"}


SLOW_AT = [("a first discarded", 0), ("the last discarded", 1), ("the first timed", 2)]


@pytest.mark.parametrize("at", [at for _, at in SLOW_AT], ids=[name for name, _ in SLOW_AT])
def test_a_step_that_evaluates_takes_no_time_from_those_that_are_timed(tmp_path, at):
    """A step of 3 s left n = 1 of 84 steps, each 18 ms, that fill 1.5 s."""
    steps = Played(tmp_path, steps=[1, 1000], visit_s=1.5)
    for number in range(1000):
        steps.now_ns += (3_000 if number == at else 17) * 1_000_000
        steps.note_end(OPTIMIZER)
        if steps.is_written:
            break
    rows = steps.found(tmp_path)["rows"]
    assert 84 <= len(rows) <= 86
    ends = [row["start_ns"] + row["duration_ns"] for row in rows]
    assert [row["start_ns"] for row in rows[1:]] == ends[:-1]  # nothing lies between steps


@ask_each(
    ("durations_s", "under_way", "is_enough"),
    [
        ([0.5, 0.5, 0.5], 0, False),  # the longest counts for nothing
        ([0.5, 0.5, 0.5, 0.5], 0, True),
        ([9.0], 0, False),
        ([9.0, 9.0], 0, True),
        ([9.0, 0.5, 0.5], 2, True),
        ([9.0], 5, False),  # how long the others take is unknown
        ([0.01] * 9, 1, True),  # as many as are wanted at most
    ],
)
def test_a_visit_has_enough_steps_by_their_time_without_the_longest(
    durations_s, under_way, is_enough
):
    durations_ns = [seconds * 1e9 for seconds in durations_s]
    assert program_steps.are_enough(durations_ns, (1, 10), 1.5, under_way) is is_enough


def test_a_better_mark_replaces_one_and_begins_anew(tmp_path):
    """A model that is called before an optimizer steps, e.g. to try it, marks no step of a
    training.
    """
    steps = Played(tmp_path)
    for _ in range(3):
        steps.note_end(CALL)
    for _ in range(3):
        steps.note_end(PROFILER)
    steps.note_end(OPTIMIZER)
    steps.note_end(PROFILER)  # of lower rank
    assert not list(tmp_path.glob("*.steps"))
    for _ in range(3):
        steps.note_end(OPTIMIZER)
    assert steps.found(tmp_path)["seen"] == 4


def test_the_first_optimizer_marks_the_steps(tmp_path):
    class Optimizer:
        pass

    steps, first, second = Played(tmp_path), Optimizer(), Optimizer()
    for _ in range(4):
        steps.note_end(OPTIMIZER, steps.first(first))
        steps.note_end(OPTIMIZER, steps.first(second))
    found = steps.found(tmp_path)
    assert (found["seen"], found["mark"]) == (4, "Optimizer")


def test_a_program_that_ends_early_tells_what_it_has(tmp_path):
    steps = Played(tmp_path)
    for _ in range(3):
        steps.note_end(KERAS)
    steps.write()
    found = steps.found(tmp_path)
    assert (found["complete"], found["seen"], len(found["rows"])) == (False, 3, 1)


class Device:
    """torch.cuda of a device whose steps take 250 ms, and which is two steps behind the host."""

    captures = False

    def __init__(self):
        device, self.ends = self, 0

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.number, device.ends = device.ends, device.ends + 1

            def query(self):
                assert not device.captures, "it would end the capture"
                return self.number < device.ends - 2

            def elapsed_time(self, later):
                return 250.0 * (later.number - self.number)

        self.Event = Event

    def is_current_stream_capturing(self):
        return self.captures

    def max_memory_allocated(self):
        return 4096

    def memory_stats(self):
        return {"allocated_bytes.all.peak": 4096}

    def current_device(self):
        return 0

    def synchronize(self):
        pass

    def reset_peak_memory_stats(self):
        pass


def test_on_a_gpu_the_steps_are_as_many_as_it_ends_in_the_time_and_not_as_the_host_does(tmp_path):
    """The host launches a step in a millisecond, so it would launch a hundred in a tenth of a
    second: a visit of 1.5 s took 25.
    """
    steps = Played(tmp_path, steps=[1, 100], visit_s=1.5)
    device = Device()
    steps._cuda = lambda: device
    while not steps.is_written:
        steps.note_end(OPTIMIZER)
    found = steps.found(tmp_path)
    assert [row["duration_ns"] for row in found["rows"]] == [250_000_000] * 7
    assert found["device"] == "cuda:0"


def test_a_range_that_is_the_step_is_timed_from_its_own_border_on_a_gpu_too(tmp_path):
    """What runs between two ranges was part of the second."""
    module = SimpleNamespace(push=lambda _: None, pop=lambda: None)
    steps, device = Played(tmp_path, range="mine", steps=[2, 2]), Device()
    steps._cuda = lambda: device
    steps.follow_push_pop(module, "push", "pop")
    for _ in range(5):
        module.push("mine")
        module.pop()
    rows = steps.found(tmp_path)["rows"]
    assert [row["duration_ns"] for row in rows] == [250_000_000] * 2
    assert rows[1]["start_ns"] - rows[0]["start_ns"] == 500_000_000


def test_a_step_that_a_graph_captures_does_not_run_and_is_none(tmp_path):
    steps, device = Played(tmp_path), Device()
    steps._cuda = lambda: device
    steps.note_end(OPTIMIZER)
    steps.note_end(OPTIMIZER)
    steps.note_end(OPTIMIZER)
    device.captures = True
    steps.note_end(OPTIMIZER)
    steps.write()
    assert steps.found(tmp_path)["seen"] == 3


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
    steps.follow_contexts(module, "Range", lambda context: context.name)
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
    steps.follow_push_pop(module, "push", "pop")
    for _ in range(5):
        steps.note_end(OPTIMIZER)
        module.push("mine")
        module.push("step")
        module.pop()
        module.pop()
    found = steps.found(tmp_path)
    assert found["source"] == program_steps.RANGE
    assert {row["duration_ns"] for row in found["rows"]} == {1_000_000}


def played_jax(steps, **others):
    jax = ModuleType("jax")
    jax.jit = lambda function=None, **_: function if function is not None else (lambda inner: inner)
    vars(jax).update(others)
    jax.profiler = SimpleNamespace(TraceAnnotation=Range, StepTraceAnnotation=Range)
    framework_marks.follow_jax(steps, program_steps, jax)
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


@pytest.fixture
def tracing(monkeypatch):
    """What JAX has that traces its functions, as they run."""
    traced = []
    monkeypatch.setattr(framework_marks, "is_eager", lambda: not traced)

    def jit(function):
        def run(*arguments):
            traced.append(function)
            result = function(*arguments)
            traced.pop()
            return result

        return functools.wraps(function)(run)

    return {"jit": jit, "grad": lambda function: function}


def played_agent(jax):
    """A network that is called ten times for each training step."""

    @jax.jit
    def act(x):
        return -x

    @jax.jit
    def update(x):
        return jax.grad(lambda weight: weight + x)(1)

    return act, update


def play(act, update, steps=5):
    for _ in range(steps):
        for _ in range(10):
            act(1)
        update(2)


def test_a_function_with_a_gradient_is_the_step_though_another_is_called_more_often(
    tmp_path, tracing
):
    steps = Played(tmp_path, steps=[9, 100], visit_s=1.0)
    play(*played_agent(played_jax(steps, **tracing)))
    steps.write()
    found = steps.found(tmp_path)
    assert found["mark"].endswith("update")
    assert found["seen"] == 3  # from its third call on


def test_the_named_function_is_the_step_from_its_first_call_on_and_nothing_else_is(
    tmp_path, tracing
):
    steps = Played(tmp_path, steps=[9, 100], visit_s=1.0, function="update")
    act, update = played_agent(played_jax(steps, **tracing))
    steps.note_end(OPTIMIZER)
    play(act, update)
    steps.write()
    found = steps.found(tmp_path)
    assert (found["source"], found["seen"]) == (program_steps.JITTED, 5)
    assert found["mark"].endswith("update")


def test_a_function_that_calls_one_with_a_gradient_computes_it_too(tmp_path, tracing):
    """JAX traces the inner one once."""
    steps = Played(tmp_path, steps=[9, 100], visit_s=1.0)
    jax = played_jax(steps, **tracing)
    traced = []

    def inner(x):
        if not traced:
            traced.append(True)
            jax.grad(lambda weight: weight)(x)

    inner = jax.jit(inner)
    outer = jax.jit(lambda x: inner(x))
    inner(1)
    outer(1)
    assert len(steps.calls.with_gradient) == 3  # and the loss


def test_it_tells_of_each_function_its_calls_shapes_and_gradient_and_of_one_never_called(
    tmp_path, tracing
):
    steps = Played(tmp_path)
    leaves = SimpleNamespace(tree_leaves=lambda given: list(given[0]))
    jax = played_jax(steps, tree_util=leaves, **tracing)
    act, _kept = played_agent(jax)
    for _ in range(3):
        act(np.ones((8, 4)))
    steps.write()
    told = {of["name"].rpartition(".")[2]: of for of in steps.found(tmp_path)["functions"]}
    assert {name: (of["calls"], of["shapes"], of["has_gradient"]) for name, of in told.items()} == {
        "act": (3, "(8, 4)", False),
        "update": (0, None, True),
    }


@pytest.mark.parametrize(("gradient_s", "mark"), [(0.0, "act"), (0.02, "act"), (0.2, "update")])
def test_a_run_waits_a_while_for_a_function_with_a_gradient_that_comes_late(
    tmp_path, tracing, gradient_s, mark
):
    """An agent acts before it learns, with enough calls for a visit."""
    steps = Played(tmp_path, gradient_s=gradient_s)
    act, update = played_agent(played_jax(steps, **tracing))
    for _ in range(50):
        act(1)
    play(act, update, steps=6)
    found = steps.found(tmp_path)
    assert found["mark"].endswith(mark)
    assert len(found["rows"]) == 2


def test_a_gradient_that_is_not_compiled_and_a_function_compiled_ahead_are_marks(tmp_path):
    class Compiled:
        def __call__(self, x):
            return x

        def as_text(self):
            return 'op_name="jit(train)/transpose(jvp(layer))/dot_general"'

    for name in ("grad", "ahead"):
        steps = Played(tmp_path / name)
        (tmp_path / name).mkdir()
        stages = SimpleNamespace(Compiled=Compiled)
        jax = played_jax(steps, grad=lambda function: function, stages=stages)

        def loss(x):
            return 2 * x

        ahead = Compiled()

        def run(x, jax=jax, loss=loss, ahead=ahead):
            return jax.grad(loss)(x) if jax.is_used else ahead(x)

        jax.is_used = name == "grad"
        assert [run(number) for number in range(1, 7)][-1] == (12 if name == "grad" else 6)
        mark = steps.found(tmp_path / name)["mark"]
        assert mark.rpartition(".")[2] == ("loss" if name == "grad" else "Compiled")
        assert len(steps.calls.with_gradient) == 1


def test_a_function_of_tensorflow_is_a_mark_and_what_it_traces_is_none(monkeypatch, tmp_path):
    class Function:
        def __init__(self, function):
            self._python_function = function

        def __call__(self, x):
            return self._python_function(x)

    context = SimpleNamespace(executing_eagerly=lambda: not tracing)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", context)
    steps, tracing = Played(tmp_path), True
    module = SimpleNamespace(Function=Function)
    framework_marks.follow_tensorflow(steps, program_steps, module)

    def train(x):
        return x + 1

    made = [module.Function(train), module.Function(train)]  # of two objects, as of a method
    assert [made[0](number) for number in range(9)] == list(range(1, 10))
    tracing = False
    assert not list(tmp_path.glob("*.steps"))
    for number in range(6):
        made[number % 2](number)
    found = steps.found(tmp_path)
    assert (found["source"], found["seen"]) == (program_steps.JITTED, 4)
    assert found["mark"].endswith("train")


def test_batches_that_keras_trains_on_come_before_those_of_a_validation(tmp_path):
    class CallbackList:
        def on_train_batch_end(self, batch): ...

        def on_predict_batch_end(self, batch): ...

        def on_test_batch_end(self, batch): ...

    steps, calls = Played(tmp_path), CallbackList()
    framework_marks.follow_keras(steps, program_steps, SimpleNamespace(CallbackList=CallbackList))
    for batch in range(3):
        calls.on_test_batch_end(batch)  # before the training, e.g. to try the data
    for batch in range(4):
        calls.on_train_batch_end(batch)
        calls.on_test_batch_end(batch)
    found = steps.found(tmp_path)
    assert (found["source"], found["seen"]) == (KERAS, 4)


def test_the_first_optimizer_of_keras_marks_the_steps_of_an_own_loop(tmp_path):
    class Optimizer:
        def apply(self, slopes): ...

    steps, module = Played(tmp_path), SimpleNamespace(BaseOptimizer=Optimizer)
    framework_marks.follow_keras_optimizers(steps, program_steps, module)
    first, second = Optimizer(), Optimizer()
    for _ in range(4):
        first.apply([])
        second.apply([])
    found = steps.found(tmp_path)
    assert (found["source"], found["mark"]) == (program_steps.KERAS_OPTIMIZER, "Optimizer")


def test_the_first_model_of_keras_that_is_called_marks_steps(tmp_path):
    class Layer:
        def __call__(self, x):
            return x

    class Model(Layer):
        pass

    steps, module = Played(tmp_path), SimpleNamespace(Model=Model)
    framework_marks.follow_keras_models(steps, program_steps, module)
    first, second = Model(), Model()
    assert [(first(n), second(n), Layer()(n)) for n in range(4)][-1] == (3, 3, 3)
    found = steps.found(tmp_path)
    assert (found["source"], found["mark"], found["seen"]) == (CALL, "Model", 4)


def test_the_first_session_of_onnx_runtime_that_runs_marks_steps(tmp_path):
    class Session:
        def run(self, outputs, inputs):
            return [outputs, inputs]

        def run_with_iobinding(self, binding): ...

    class InferenceSession(Session):
        pass

    steps, module = Played(tmp_path), SimpleNamespace(Session=Session)
    framework_marks.follow_onnxruntime(steps, program_steps, module)
    first, second = InferenceSession(), InferenceSession()
    for _ in range(2):
        assert first.run(None, {"x": 1}) == [None, {"x": 1}]
        second.run(None, {})
        second.run(None, {})
        first.run_with_iobinding(None)
    found = steps.found(tmp_path)
    assert (found["source"], found["mark"], found["seen"]) == (CALL, "InferenceSession", 4)


def test_the_line_that_calls_eval_of_mlx_most_often_marks_steps(tmp_path):
    evaluated = []
    steps, core = Played(tmp_path), SimpleNamespace(eval=lambda *arrays: evaluated.append(arrays))
    framework_marks.follow_mlx(steps, program_steps, core)

    def validate():
        core.eval("accuracy")

    for _ in range(6):
        core.eval("loss", "weights")
        validate()
    found = steps.found(tmp_path)
    assert evaluated[:2] == [("loss", "weights"), ("accuracy",)]
    assert (found["source"], found["seen"]) == (program_steps.EVALUATED, 4)
    assert found["mark"].startswith("test_the_line_that_calls_eval")


def test_a_program_that_profiles_itself_keeps_its_profiler(tmp_path):
    steps = Played(tmp_path, profiled=2)
    steps.torch = SimpleNamespace()  # nothing of it is touched
    steps.profiles_itself = True
    for _ in range(4):
        steps.note_end(OPTIMIZER)
    found = steps.found(tmp_path)
    assert (found["complete"], len(found["rows"])) == (True, 2)


def test_a_forked_process_begins_anew_and_writes_where_it_leaves_at_once(monkeypatch, tmp_path):
    left, children = [], []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(
        os, "register_at_fork", lambda after_in_child: children.append(after_in_child)
    )
    steps = Played(tmp_path)
    steps.follow_processes()
    for _ in range(3):
        steps.note_end(OPTIMIZER)
    children[0]()
    os._exit(1)  # it saw no step: a loader of data
    assert not list(tmp_path.glob("*.steps"))
    steps.note_end(OPTIMIZER)
    os._exit(0)
    assert left == [1, 0]
    assert steps.found(tmp_path)["seen"] == 1


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
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(os, "_exit", os._exit)
    for name in (
        "sitecustomize",
        *sys.modules,
    ):  # the script runs the program's own, and loads files by these names
        if name == "sitecustomize" or name.startswith("_curvescope_"):
            monkeypatch.delitem(sys.modules, name, raising=False)
    before = list(sys.meta_path)
    load_script("profiling/collect/startup/sitecustomize.py")
    (finder,) = [one for one in sys.meta_path if one not in before]
    assert set(finder._loaded) >= {"torch", "jax", "nvtx", "mlx.core"}


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
    recorder.close_window(lambda: log.append("closed"))
    steps = [("begin", 0), ("end", 0), ("begin", 1), ("end", 1)]
    assert log == [("start", str(tmp_path / "framework")), *steps, ("stop", None), "closed"]


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
    recorder.close_window(lambda: log.append("closed"))
    assert log == [str(tmp_path / "framework"), (0, 1), "end", (1, 1), "end", "stop", "closed"]


def test_layers_that_keras_keeps_in_a_list_are_parts_of_its_model_on_torch():
    inner, outer = nn.Linear(1, 1), nn.Linear(1, 1)
    inner.path, outer.path = "sequential/block/inner", "sequential/outer"
    model = nn.Module()
    model.own = nn.Linear(1, 1)
    model.own.path = "sequential/own"
    model._flatten_layers = lambda **_: [model.own, inner, outer, nn.Identity()]
    paths = [path for path, _ in list_parts(model)]
    assert paths == ["", "own", "block.inner", "outer"]
