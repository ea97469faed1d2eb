"""Frameworks other than PyTorch, played: none of them is needed here."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling import frameworks
from curvescope.profiling.frameworks.jax import Jax
from curvescope.profiling.workload import own_step
from curvescope.profiling.workload.own_step import OwnStep

from ...tables import ask_each


class Array:
    """An array of the played JAX, ready once somebody waited for it."""

    def __init__(self, *, deleted=False):
        self.deleted, self.ready = deleted, False

    def is_deleted(self):
        return self.deleted


class Number(Array):
    """An array on a device, and what was computed with it."""

    def __add__(self, other):
        self.sum = Array()
        return self.sum


@pytest.fixture
def jax(monkeypatch):
    """JAX with one array that a step kept for itself, and one that a computation wrote over."""
    module, bridge = ModuleType("jax"), ModuleType("bridge")
    module.__version__, bridge._backends = "0.99", {"cpu": object()}
    module.kept, module.gone = Array(), Array(deleted=True)
    module.live_arrays = lambda: [module.kept, module.gone]
    module.devices = lambda: [SimpleNamespace(platform="cpu")]
    module.local_devices = lambda: ["cpu"]
    module.device_put = lambda number, device: Number()

    def block_until_ready(value):
        for array in value if isinstance(value, list) else [value]:
            assert not array.deleted
            array.ready = True

    module.block_until_ready = block_until_ready
    monkeypatch.setitem(sys.modules, "jax", module)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)  # of a test before
    return module


def test_a_jax_step_is_waited_for_whatever_it_returns(jax):
    result = Array()
    frameworks.wait_for(result, "cpu")
    assert result.ready
    assert jax.kept.ready
    assert not jax.gone.ready
    assert frameworks.framework_versions() == {"jax": "0.99"}


def test_work_of_jax_whose_results_are_gone_is_waited_for(jax, monkeypatch):
    """A step that dropped what it computed took 0.02 ms, of 80."""
    number, adapter = Number(), Jax()
    monkeypatch.setattr(jax, "device_put", lambda *of: number)
    for _ in range(2):
        adapter.wait(Array(), "cpu")
        assert number.sum.ready


def test_jax_that_has_begun_nothing_is_left_alone(jax, monkeypatch):
    """Asking it for its arrays would begin a backend, which takes most of the memory of a GPU."""
    sys.modules["jax._src.xla_bridge"]._backends.clear()
    monkeypatch.setattr(jax, "live_arrays", lambda: pytest.fail("JAX was asked"))
    frameworks.wait_for(None, "cpu")
    assert frameworks.framework_versions() == {}


def test_the_time_of_a_step_contains_the_work_that_it_did_not_wait_for(jax, monkeypatch):
    now_ns = [0]

    def wait(value):
        now_ns[0] += 5_000_000

    monkeypatch.setattr(jax, "block_until_ready", wait)
    workload = OwnStep(lambda batch: Array, clock_ns=lambda: now_ns[0])
    workload.load(4)
    assert workload.time_step()[1] == 15_000_000  # its result, what it kept, and what is gone


def test_the_device_of_a_recording_is_the_one_that_jax_works_on(jax):
    """Else a step on a GPU would be recorded as one of the CPU."""
    workload = OwnStep(lambda batch: Array, name="mine")
    entry = {
        "device": {"kind": "cpu", "name": "a CPU", "threads": 2},
        "ceilings": {"cpu": 1},
        "host": {},
    }
    assert workload.machine_entry(entry) == entry
    jax.devices = lambda: [SimpleNamespace(platform="gpu", device_kind="NVIDIA H100 80GB HBM3")]
    on_gpu = {
        "device": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"},
        "ceilings": None,
        "host": {},
    }
    assert workload.machine_entry(entry) == on_gpu


@ask_each(
    ("kind", "message", "expected"),
    [
        (
            "XlaRuntimeError",
            "RESOURCE_EXHAUSTED: Out of memory allocating 34359738368 bytes.",
            True,
        ),
        ("XlaRuntimeError", "INVALID_ARGUMENT: Incompatible shapes", False),
        ("ResourceExhaustedError", "OOM when allocating tensor with shape[1024,1024]", True),
        (
            "RuntimeException",
            "Failed to allocate memory for requested buffer of size 4294967296",
            True,
        ),
        ("ValueError", "out of memory is a phrase", False),
    ],
)
def test_memory_that_ran_out_is_known_in_every_framework(kind, message, expected):
    base = (
        ValueError
        if kind == "ValueError"
        else RuntimeError
        if kind == "XlaRuntimeError"
        else Exception
    )
    error = type(kind, (base,), {})(message)
    assert frameworks.memory_ran_out(error) is expected


@pytest.fixture
def played_time(monkeypatch):
    """Time of `own_step` that a test advances, and how long its process computes on after a step,
    in ms.
    """
    played = SimpleNamespace(now_ns=0, used_ns=0, works_on_ms=0.0, waits_ms=0.0)

    def wait_until_quiet(longest_s):
        worked_ns = int(1e6 * min(played.works_on_ms, 1e3 * longest_s))
        played.used_ns += worked_ns
        played.now_ns += worked_ns + int(1e6 * played.waits_ms)
        return True

    clocks = {"monotonic_ns": lambda: played.now_ns, "process_time_ns": lambda: played.used_ns}
    monkeypatch.setattr(own_step, "time", SimpleNamespace(**clocks))
    monkeypatch.setattr(own_step, "wait_until_quiet", wait_until_quiet)
    for name in ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    return played


def test_a_step_whose_work_goes_on_after_it_returned_is_refused(played_time):
    played_time.works_on_ms = 900
    with pytest.raises(
        CurvescopeError, match=r"does not wait for its work: its process computed for 800 ms"
    ):
        OwnStep(lambda batch: lambda: None, name="mine").try_step(4)


def test_the_refusal_names_the_line_that_waits(jax, played_time):
    played_time.works_on_ms = 900
    with pytest.raises(CurvescopeError, match=r"`return jax.block_until_ready\(result\)` in jax"):
        OwnStep(lambda batch: Array, name="mine").try_step(4)


def test_a_little_work_that_each_step_leaves_is_refused_too(played_time):
    """5 ms after one step are as those of threads that spin; of 256 steps they are not."""

    def step():
        played_time.works_on_ms += 5

    with pytest.raises(CurvescopeError, match="after 256 steps had returned"):
        OwnStep(lambda batch: step, name="mine").try_step(4)


@pytest.mark.parametrize("works_on_ms", [0, 350])
def test_a_step_that_waits_is_not_refused_nor_threads_that_spin_after_it(played_time, works_on_ms):
    played_time.works_on_ms = works_on_ms
    OwnStep(lambda batch: lambda: None, name="mine").try_step(4)


def test_a_process_that_has_no_core_for_a_while_is_not_refused(played_time):
    played_time.works_on_ms, played_time.waits_ms = 2, 900
    OwnStep(lambda batch: lambda: None, name="mine").try_step(4)


def test_a_step_may_say_that_it_waits(played_time):
    def make_step(batch):
        def step():
            pass

        step.waits = True
        return step

    played_time.works_on_ms = 900
    OwnStep(make_step, name="mine").try_step(4)


def test_a_module_of_another_framework_is_refused_with_what_names_its_layers(played_time):
    model = type("Model", (), {"__module__": "flax.linen.module"})()
    with pytest.raises(CurvescopeError, match=r"jax\.profiler\.trace"):
        OwnStep(
            lambda batch: lambda: None, name="mine", module=model, errors_are_results=False
        ).try_step(4)


def test_keras_names_the_layers_of_every_batch_size_alike(monkeypatch):
    """It numbers the layers that it names: `dense` of one model was `dense_1` of the next."""
    called = []
    naming = SimpleNamespace(reset_uids=lambda: called.append("names"))
    monkeypatch.setitem(sys.modules, "keras.src.utils.naming", naming)
    steps = OwnStep(lambda batch: called.append(batch) or (lambda: None), "cpu")
    for batch in (2, 4):
        steps.load(batch)
    assert called == ["names", 2, "names", 4]
