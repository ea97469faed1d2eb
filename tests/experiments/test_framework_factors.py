"""Factors of JAX and TensorFlow: what they change, with fakes, and in processes of the real
frameworks.
"""

import sys
from types import SimpleNamespace

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.experiments.factor import Target
from curvescope.experiments.factors import FACTORS, jax_steps, tensorflow_steps
from curvescope.experiments.step_worker import StepWorker
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.measure.visits import Empty

TARGET = Target(Configuration.of_step("step.py:make_step", "cpu"), (2,))


class Steps:
    """Steps that call something when they are loaded, and something else when they run."""

    device, model = "cpu", None

    def __init__(self, load=lambda: None, run=lambda: None):
        self._load, self._run = load, run

    def load(self, batch):
        self._load()

    def submit(self):
        return self._run()


@pytest.fixture
def fake(monkeypatch):
    """Stands for both frameworks: their compiling functions note with which settings they are
    called.
    """
    settings = []

    def compiling(function, **given):
        settings.append(given)
        return function

    made = SimpleNamespace(jit=compiling, function=compiling, settings=settings)
    monkeypatch.setitem(sys.modules, "jax", made)
    monkeypatch.setitem(sys.modules, "tensorflow", made)
    monkeypatch.setattr(jax_steps, "_DONATED", [])
    monkeypatch.setattr(tensorflow_steps, "_CHANGED", [])
    return made


def test_without_donation_jit_has_its_other_settings(fake):
    change = FACTORS["jax_without_donation"].step
    change.prepare(TARGET)
    load = lambda: fake.jit(len, donate_argnums=(0, 1), static_argnums=2)  # noqa: E731
    change.change(Steps(load), TARGET).load(2)
    assert fake.settings == [{"static_argnums": 2}]


def test_a_step_that_donates_nothing_is_refused(fake):
    change = FACTORS["jax_without_donation"].step
    change.prepare(TARGET)
    with pytest.raises(CurvescopeError, match="donated"):
        change.change(Steps(lambda: fake.jit(len)), TARGET).load(2)


@pytest.mark.parametrize(
    ("name", "compiles"), [("tensorflow_xla", True), ("tensorflow_without_xla", False)]
)
def test_every_function_of_tensorflow_is_compiled_as_the_factor_says(fake, name, compiles):
    change = FACTORS[name].step
    change.prepare(TARGET)
    run = lambda: fake.function(len, jit_compile=not compiles, reduce_retracing=True)  # noqa: E731
    change.change(Steps(run=run), TARGET).submit()
    assert fake.settings == [{"jit_compile": compiles, "reduce_retracing": True}]


def test_a_step_without_a_function_that_changes_is_refused(fake):
    change = FACTORS["tensorflow_without_xla"].step
    change.prepare(TARGET)
    with pytest.raises(CurvescopeError, match=r"no tf\.function"):
        change.change(Steps(run=lambda: fake.function(len)), TARGET).submit()


def test_a_flag_of_xla_goes_beside_those_that_are_set(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--one=1")
    assert jax_steps._with_flag("--two=2") == {"XLA_FLAGS": "--one=1 --two=2"}


JAX_STEP = """
import os
import jax, jax.numpy as jnp
from curvescope.profiling.frameworks import framework_threads

def make_step(batch):
    kept = [jnp.ones((256, 256))]
    train = jax.jit(lambda state, inputs: state - 1e-3 * inputs.T @ inputs, donate_argnums=0)
    inputs = jnp.ones((batch, 256))

    def step():
        before = kept[0]
        kept[0] = train(before, inputs)
        return {
            "jax_one_thread": framework_threads()["jax"],
            "jax_without_donation": before.is_deleted(),
            "jax_without_jit": jax.config.jax_disable_jit,
            "jax_fast_math": "fast_math" in os.environ.get("XLA_FLAGS", ""),
        }[ASKED]

    return step
"""
TENSORFLOW_STEP = """
import tensorflow as tf
from curvescope.profiling.frameworks import framework_threads

def make_step(batch):
    inputs = tf.ones((batch, 64))
    train = tf.function(lambda x: tf.reduce_sum(tf.tanh(x) ** 2))

    def step():
        train(inputs)
        return {"tensorflow_xla": bool(train._jit_compile)}[ASKED]

    return step
"""


def result_of(tmp_path, text, name, asked):
    """What a step returns in a process with a factor, or why it does not run."""
    # Not by the environment: processes of steps begin as copies of one that has begun before.
    (tmp_path / "step.py").write_text(text.replace("ASKED", repr(asked)))
    made = Configuration.of_step(f"{tmp_path / 'step.py'}:make_step", "cpu")
    worker = StepWorker(Target(made, (2,)), name)
    ready = worker.warm_up()
    worker.end()
    assert not isinstance(ready, Empty), ready
    ((value, _),) = ready.results[2]
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("jax_one_thread", 1),
        ("jax_without_donation", 0),
        ("jax_without_jit", 1),
        ("jax_fast_math", 1),
    ],
)
def test_a_factor_changes_what_jax_runs(name, changed, tmp_path, monkeypatch):
    pytest.importorskip("jax")
    for variable in ("NPROC", "XLA_FLAGS", "JAX_DISABLE_JIT"):
        monkeypatch.delenv(variable, raising=False)
    assert result_of(tmp_path, JAX_STEP, name, name) == changed


@pytest.mark.slow
def test_a_factor_lets_xla_compile_what_tensorflow_runs(tmp_path):
    pytest.importorskip("tensorflow")
    found = result_of(tmp_path, TENSORFLOW_STEP, "tensorflow_xla", "tensorflow_xla")
    assert found == 1
