"""What marks the steps of a program, one function for each package that it may load.

The program's own Python loads this file by path, so it needs only the standard library. Each
function takes the `Steps` of the process, the module `program_steps`, and the module to follow,
which was just loaded.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

_ATTRIBUTES = ("__name__", "__qualname__", "__doc__", "__module__")
_CALLS = 3  # of one function, before it may mark steps
# What of JAX makes a function that computes a gradient, and what computes one at once.
_GRADIENTS = ("grad", "value_and_grad")
_DIFFERENTIATE = ("vjp", "linearize")
_OF_PACKAGES = "site-packages"  # in the path of code that is not the program's
_HLO_GRADIENT = "transpose(jvp("  # how the text of a compiled function names a backward pass


def follow_torch(steps: Any, program: Any, torch: Any) -> None:
    """Hook optimizers, torch's profiler, its ranges, and the calls of a model that no optimizer
    trains; and make the changes that are wanted.
    """
    from torch.optim import optimizer as optimizers

    kind: Any = optimizers.Optimizer
    steps.torch = torch
    trains = []

    def note_optimizer(optimizer: Any, *_: Any) -> None:
        steps.note_end(program.OPTIMIZER, steps.first(optimizer))

    optimizers.register_optimizer_step_post_hook(note_optimizer)
    build = kind.__init__

    def built(self_: Any, *arguments: Any, **named: Any) -> None:
        trains.append(True)
        build(self_, *arguments, **named)

    kind.__init__ = built
    if wanted := steps.wanted.get("changes"):
        changes = steps.load("_curvescope_program_changes", "collect/startup/program_changes.py")
        changes.apply(torch, wanted, steps.refuse, steps.note_change)
    _follow_model(steps, program, torch, trains)
    profiled = sys.modules.get("torch.profiler.profiler")
    if profiled is not None:
        step = profiled.profile.step

        def note_step(self_: Any) -> None:
            step(self_)
            steps.profiles_itself = True
            steps.note_end(program.PROFILER)

        profiled.profile.step = note_step
    steps.follow_contexts(torch.autograd.profiler, "record_function", lambda context: context.name)
    steps.follow_push_pop(torch.cuda.nvtx, "range_push", "range_pop")


def _follow_model(steps: Any, program: Any, torch: Any, trains: Any) -> None:
    from torch.nn.modules import module as modules

    def note_call(module: Any, _: Any) -> None:
        if not trains and not torch.compiler.is_compiling():
            # the first module is the model: no other call costs anything from now on
            handle.remove()
            module.register_forward_pre_hook(
                lambda module, _: None if trains else steps.note_end(program.CALL, type(module))
            )
        elif trains:
            handle.remove()

    handle = modules.register_module_forward_pre_hook(note_call)


def follow_nvtx(steps: Any, program: Any, nvtx: Any) -> None:
    """Hook ranges of NVIDIA's package nvtx."""
    steps.follow_contexts(nvtx, "annotate", program.read_given_name)
    steps.follow_push_pop(nvtx, "push_range", "pop_range")


class Calls:
    """Calls of functions, one of which marks the steps: `--step-function` names it, or else it is
    the first that is called three times, until another computes a gradient, or is called more than
    twice as often.
    """

    def __init__(self, steps: Any, name_of: Any, source: Any, leaves: Any = list) -> None:
        """Prepare; `leaves` gives the arrays and numbers in arguments."""
        self._steps = steps
        self._name_of = name_of
        self._source = source
        self._leaves = leaves
        self._numbers: dict[Any, int] = {}
        self._shapes: dict[Any, str] = {}  # of the arguments of each, of one call
        # Functions of the program whose code computes a gradient, called or not.
        self.of_training = weakref.WeakSet[Any]()
        self.with_gradient: set[Any] = set()  # that did compute one

    def note(self, function: Any, arguments: Any = ()) -> None:
        """Note a call that the program itself made."""
        steps = self._steps
        if steps.is_written:
            return
        self._numbers[function] = number = self._numbers.get(function, 0) + 1
        if number == _CALLS:
            self._describe(function, arguments)
        chosen = steps.find_mark(self._source)
        if steps.function is not None:
            if self._has_name(function):
                steps.note_end(self._source, function)
        elif chosen is function or (chosen is None and number >= _CALLS):
            steps.note_end(self._source, function)
        elif chosen is not None and number >= _CALLS and self._is_better(function, chosen):
            steps.forget_mark()
            steps.note_end(self._source, function)

    def awaits_gradient(self, mark: Any) -> bool:
        """Whether the mark computes no gradient, and a function that does was not called often
        enough to be one.
        """
        if mark in self.with_gradient:
            return False
        return any(self._numbers.get(other, 0) < _CALLS for other in self.of_training)

    def _describe(self, function: Any, arguments: Any) -> None:
        """Note the shapes of arguments, and the gradient of a function that was compiled ahead."""
        with suppress(Exception):  # what is not understood is not told
            self._shapes[function] = " ".join(sorted(map(_shape_of, self._leaves(arguments))))
        with suppress(Exception):
            if _HLO_GRADIENT in function.as_text():
                self.with_gradient.add(function)

    def _has_name(self, function: Any) -> bool:
        name = str(self._name_of(function))
        return self._steps.function in (name, name.rpartition(".")[2])

    def _is_better(self, function: Any, chosen: Any) -> bool:
        has_gradient = function in self.with_gradient
        if has_gradient != (chosen in self.with_gradient):
            return has_gradient
        number = self._numbers[function]
        most = max(
            calls
            for other, calls in self._numbers.items()
            if (other in self.with_gradient) == has_gradient
        )
        return number == most and number > 2 * self._numbers[chosen]

    @property
    def description(self) -> list[dict[str, Any]]:
        """The facts on each function that was called, and of each that was not and computes a
        gradient.
        """
        uncalled = [function for function in self.of_training if function not in self._numbers]
        return [
            {
                "name": self._name_of(function),
                "calls": self._numbers.get(function, 0),
                "shapes": self._shapes.get(function),
                "has_gradient": function in self.with_gradient or function in uncalled,
            }
            for function in [*self._numbers, *uncalled]
        ]


def _shape_of(leaf: Any) -> str:
    if hasattr(leaf, "shape"):
        return str(tuple(leaf.shape))
    return str(leaf) if isinstance(leaf, int) else type(leaf).__name__


def _names_gradient(function: Any) -> bool:
    """Whether the code of a function of the program names one of JAX that computes gradients."""
    codes = [getattr(inspect.unwrap(function), "__code__", None)]
    if _OF_PACKAGES in getattr(codes[0], "co_filename", ""):
        return False
    for code in codes:
        if set(getattr(code, "co_names", ())) & {*_GRADIENTS, *_DIFFERENTIATE}:
            return True
        codes += [value for value in getattr(code, "co_consts", ()) if hasattr(value, "co_names")]
    return False


def follow_jax(steps: Any, program: Any, jax: Any) -> None:
    """Wrap what jax.jit, jax.pmap and jax.grad make, and JAX's ranges."""
    steps.profiler_of_jax = jax.profiler, jax.profiler.StepTraceAnnotation

    def leaves(arguments: Any) -> Any:
        return jax.tree_util.tree_leaves(arguments)

    steps.calls = calls = Calls(steps, program.name_of, program.JITTED, leaves)
    running = _Running()

    def note_call(function: Any, arguments: Any) -> None:
        # While one function is traced, calls of others in it are no steps.
        if not steps.is_written and is_eager():
            calls.note(function, arguments)

    class Jitted:
        """A function that JAX compiled, whose calls count."""

        def __init__(self, function: Any) -> None:
            self.__wrapped__ = function
            for name in _ATTRIBUTES:
                with suppress(AttributeError):
                    setattr(self, name, getattr(function, name))
            if _names_gradient(function):
                calls.of_training.add(self)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["__wrapped__"], name)

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            return lambda *args, **named: self(instance, *args, **named)

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            running.functions.append(self)
            try:
                result = self.__wrapped__(*arguments, **named)
            finally:
                running.functions.pop()
            if self in calls.with_gradient:  # JAX traces it once for all functions that call it
                calls.with_gradient.update(running.functions)
            note_call(self, (arguments, named))
            return result

    def counting(jit: Any) -> Any:
        def compiling(*arguments: Any, **named: Any) -> Any:
            made = jit(*arguments, **named)
            return Jitted(made) if arguments else lambda function: Jitted(made(function))

        return compiling

    for name in ("jit", "pmap"):
        if hasattr(jax, name):
            setattr(jax, name, counting(getattr(jax, name)))

    def computes_gradient(*code: Any) -> None:
        calls.with_gradient.update(running.functions, code)

    for name in _GRADIENTS:
        if hasattr(jax, name):
            setattr(jax, name, _wrap_maker(getattr(jax, name), computes_gradient, note_call))
    for name in _DIFFERENTIATE:
        if hasattr(jax, name):
            setattr(jax, name, _before(getattr(jax, name), computes_gradient))
    with suppress(AttributeError):
        _after(jax.stages.Compiled, "__call__", note_call)
    steps.follow_contexts(jax.profiler, "TraceAnnotation", program.read_given_name)
    steps.follow_contexts(
        jax.profiler, "StepTraceAnnotation", program.read_given_name, names_steps=True
    )


class _Running(threading.local):
    """The functions that a thread runs, each called by the one before it."""

    def __init__(self) -> None:
        self.functions: list[Any] = []


def follow_tensorflow(steps: Any, program: Any, module: Any) -> None:
    """Count the calls of each tf.function that the program itself makes."""

    def leaves(arguments: Any) -> Any:
        return sys.modules["tensorflow"].nest.flatten(arguments)

    steps.calls = calls = Calls(steps, program.name_of, program.JITTED, leaves)

    def note_call(function: Any, arguments: Any) -> None:
        if not steps.is_written and is_eager():
            calls.note(_python_function(function), arguments)

    _after(module.Function, "__call__", note_call)


def follow_onnxruntime(steps: Any, program: Any, module: Any) -> None:
    """Hook the runs of the first session that runs."""

    def ran(session: Any, _: Any) -> None:
        steps.note_end(program.CALL, steps.first(session, program.CALL))

    for name in ("run", "run_with_iobinding", "run_with_ort_values"):
        if hasattr(module.Session, name):
            _after(module.Session, name, ran)


def follow_mlx(steps: Any, program: Any, core: Any) -> None:
    """Count the calls of `mlx.core.eval` by the line that makes them."""
    calls = Calls(steps, program.name_of, program.EVALUATED)
    evaluate = core.eval
    lines: dict[Any, Any] = {}  # the object of each line, which the mark is

    def evaluating(*arguments: Any) -> None:
        evaluate(*arguments)
        frame = sys._getframe(1)
        line = frame.f_code, frame.f_lineno
        calls.note(lines.setdefault(line, line))

    core.eval = evaluating


def follow_keras(steps: Any, program: Any, callbacks: Any) -> None:
    """Hook the end of each batch of `fit`, `predict` and `evaluate`."""
    kinds = {"train": program.KERAS, "predict": program.PREDICTED, "test": program.PREDICTED}
    for kind, source in kinds.items():
        _after(
            callbacks.CallbackList,
            f"on_{kind}_batch_end",
            lambda _, __, source=source: steps.note_end(source),
        )


def follow_keras_optimizers(steps: Any, program: Any, module: Any) -> None:
    """Hook the optimizers of Keras where the program's own loop steps them."""

    def note_step(optimizer: Any, _: Any) -> None:
        if is_eager():
            steps.note_end(program.KERAS_OPTIMIZER, steps.first(optimizer, program.KERAS_OPTIMIZER))

    _after(module.BaseOptimizer, "apply", note_step)


def follow_keras_models(steps: Any, program: Any, module: Any) -> None:
    """Hook the calls of the first model of Keras that the program itself calls."""

    def note_call(model: Any, _: Any) -> None:
        if is_eager():
            steps.note_end(program.CALL, steps.first(model, program.CALL))

    _after(module.Model, "__call__", note_call)


def _wrap_maker(make: Any, begin: Any, call: Any) -> Any:
    """A function like `make`: before its result runs, `begin` gets the code that `make` was given,
    which stays the same where a program makes it anew for each step, and afterwards `call` gets it
    with the arguments.
    """

    @functools.wraps(make)
    def making(*arguments: Any, **named: Any) -> Any:
        made = make(*arguments, **named)
        function = arguments[0] if arguments else made
        code = getattr(function, "__code__", function)

        @functools.wraps(made)
        def running(*arguments: Any, **named: Any) -> Any:
            begin(code)
            result = made(*arguments, **named)
            call(code, (arguments, named))
            return result

        return running

    return making


def _before(run: Any, call: Any) -> Any:
    """A function like `run`, before which another is called."""

    @functools.wraps(run)
    def running(*arguments: Any, **named: Any) -> Any:
        call()
        return run(*arguments, **named)

    return running


def _after(kind: Any, method: str, call: Any) -> None:
    """Call a function with the object and the arguments after each call of a method."""
    run = getattr(kind, method)

    @functools.wraps(run)
    def running(self_: Any, *arguments: Any, **named: Any) -> Any:
        result = run(self_, *arguments, **named)
        call(self_, (arguments, named))
        return result

    setattr(kind, method, running)


def is_eager() -> bool:
    """Whether neither TensorFlow nor JAX traces a function now: its calls run later."""
    context = sys.modules.get("tensorflow.python.eager.context")
    clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", lambda: True)
    return clean() and (context is None or context.executing_eagerly())


def _python_function(function: Any) -> Any:
    """The function that tf.function was given; its result if that is unknown."""
    return getattr(function, "_python_function", function)
