"""What marks the steps of a program of JAX, TensorFlow or Keras.

The program's own Python loads this file by path, so it needs only the standard library. Each
function takes the `Steps` of the process, the module `program_steps`, and the module to follow,
which was just loaded.
"""

from __future__ import annotations

import functools
import sys
import weakref
from contextlib import suppress
from typing import Any

_ATTRIBUTES = ("__name__", "__qualname__", "__doc__", "__module__")


def follow_jax(steps: Any, program: Any, jax: Any) -> None:
    """Wrap what jax.jit, jax.pmap and jax.grad make, and JAX's ranges."""
    steps.profiler_of_jax = jax.profiler, jax.profiler.StepTraceAnnotation
    seen: dict[Any, int] = {}

    def called(function: Any) -> None:
        # While one function is traced, calls of others in it are no steps.
        if not steps.is_written and is_eager():
            steps.called_again(function, seen)

    class Jitted:
        """A function that JAX compiled, whose calls count."""

        def __init__(self, function: Any) -> None:
            self.__wrapped__ = function
            for name in _ATTRIBUTES:
                with suppress(AttributeError):
                    setattr(self, name, getattr(function, name))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["__wrapped__"], name)

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return (
                self if instance is None else lambda *args, **named: self(instance, *args, **named)
            )

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            result = self.__wrapped__(*arguments, **named)
            called(self)
            return result

    def counting(jit: Any) -> Any:
        def compiling(*arguments: Any, **named: Any) -> Any:
            made = jit(*arguments, **named)
            return Jitted(made) if arguments else lambda function: Jitted(made(function))

        return compiling

    for name in ("jit", "pmap"):
        if hasattr(jax, name):
            setattr(jax, name, counting(getattr(jax, name)))
    for name in ("grad", "value_and_grad"):
        if hasattr(jax, name):
            setattr(jax, name, _made_by(getattr(jax, name), called))
    with suppress(AttributeError):
        _after(jax.stages.Compiled, "__call__", called)
    steps.follow_contexts(jax.profiler, "TraceAnnotation", program.given_name)
    steps.follow_contexts(jax.profiler, "StepTraceAnnotation", program.given_name, names_steps=True)


def follow_tensorflow(steps: Any, _: Any, module: Any) -> None:
    """Count the calls of each tf.function that the program itself makes."""
    seen: dict[Any, int] = {}

    def called(function: Any) -> None:
        if not steps.is_written and is_eager():
            steps.called_again(_python_function(function), seen)

    _after(module.Function, "__call__", called)


def follow_keras(steps: Any, program: Any, callbacks: Any) -> None:
    """Hook the end of each batch of `fit`, `predict` and `evaluate`."""
    kinds = {"train": program.KERAS, "predict": program.PREDICTED, "test": program.PREDICTED}
    for kind, source in kinds.items():
        _after(
            callbacks.CallbackList,
            f"on_{kind}_batch_end",
            lambda _, source=source: steps.ended(source),
        )


def follow_keras_optimizers(steps: Any, program: Any, module: Any) -> None:
    """Hook the optimizers of Keras where the program's own loop steps them."""

    def stepped(optimizer: Any) -> None:
        if is_eager():
            steps.ended(program.KERAS_OPTIMIZER, steps.first(optimizer, program.KERAS_OPTIMIZER))

    _after(module.BaseOptimizer, "apply", stepped)


def follow_keras_models(steps: Any, program: Any, module: Any) -> None:
    """Hook the calls of the first model of Keras that the program itself calls."""
    first: list[Any] = []

    def called(model: Any) -> None:
        if is_eager():
            if not first:
                first.append(weakref.ref(model))
            if first[0]() is model:
                steps.ended(program.CALL, first[0])

    _after(module.Model, "__call__", called)


def _made_by(make: Any, call: Any) -> Any:
    """A function like `make`: after what it made ran, `call` gets the code that `make` was given,
    which stays the same where a program makes it anew for each step.
    """

    @functools.wraps(make)
    def making(*arguments: Any, **named: Any) -> Any:
        made = make(*arguments, **named)
        given = arguments[0] if arguments else made
        code = getattr(given, "__code__", given)

        @functools.wraps(made)
        def running(*arguments: Any, **named: Any) -> Any:
            result = made(*arguments, **named)
            call(code)
            return result

        return running

    return making


def _after(kind: Any, method: str, call: Any) -> None:
    """Call a function with the object after each call of a method."""
    run = getattr(kind, method)

    @functools.wraps(run)
    def running(self_: Any, *arguments: Any, **named: Any) -> Any:
        result = run(self_, *arguments, **named)
        call(self_)
        return result

    setattr(kind, method, running)


def is_eager() -> bool:
    """Whether neither TensorFlow nor JAX traces a function now: what it calls runs later."""
    context = sys.modules.get("tensorflow.python.eager.context")
    clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", lambda: True)
    return clean() and (context is None or context.executing_eagerly())


def _python_function(function: Any) -> Any:
    """The function that tf.function was given; what it made if that is not told."""
    return getattr(function, "_python_function", function)
