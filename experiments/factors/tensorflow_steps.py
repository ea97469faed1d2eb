"""Factors of TensorFlow: XLA for its functions or none, and threads."""

from __future__ import annotations

from functools import wraps
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.workload.steps import ChangedSteps
from ..factor import ON_GPU, Factor, StepChange, Target, change_environment

_TENSORFLOW = ("tensorflow",)
_CHANGED: list[bool] = []  # for each function of this process, whether its compilation was another


def _compile_by_xla(compiles: bool) -> None:
    """Let `tf.function` compile by XLA, or not, whatever a program asks for, from now on."""
    import tensorflow as tf

    usual: Any = tf.function

    @wraps(usual)
    def compile_otherwise(*arguments: Any, **settings: Any) -> Any:
        _CHANGED.append(bool(settings.get("jit_compile")) != compiles)
        return usual(*arguments, **{**settings, "jit_compile": compiles})

    tf.function = compile_otherwise


class _Recompiled(ChangedSteps):
    """Steps that are refused if the change changed none of their functions; Keras makes its own at
    the first step.
    """

    def submit(self) -> object:
        result = super().submit()
        if not any(_CHANGED):
            raise CurvescopeError("no tf.function of the step compiles in another way")
        return result


def _change(workload: Any, _: Target) -> Any:
    return _Recompiled(workload)


def _xla(name: str, what: str, remedy: str, compiles: bool, common: int) -> Factor:
    """A factor that lets XLA compile every `tf.function`, or none."""
    asked = f"jit_compile={compiles}"
    return Factor(
        name=name,
        what=what,
        remedy=remedy,
        step=StepChange(
            how=f"tf.function(…, {asked}); in Keras model.compile(…, {asked})",
            common=common,
            prepare=lambda _: _compile_by_xla(compiles),
            change=_change,
        ),
        frameworks=_TENSORFLOW,
        sets="xla",
    )


TENSORFLOW_XLA = _xla(
    "tensorflow_xla",
    what="XLA compiles every tf.function",
    remedy="let XLA compile {where}",
    compiles=True,
    common=26,
)
TENSORFLOW_WITHOUT_XLA = _xla(
    "tensorflow_without_xla",
    what="XLA compiles no tf.function",
    remedy="run {where} without XLA",
    compiles=False,
    common=27,
)
TENSORFLOW_ONE_THREAD = Factor(
    name="tensorflow_one_thread",
    what="each operator of TensorFlow runs on one thread",
    remedy="run {where} on one thread",
    refuses=ON_GPU,
    step=change_environment({"TF_NUM_INTRAOP_THREADS": "1"}, common=28),
    frameworks=_TENSORFLOW,
    sets="threads",
)
