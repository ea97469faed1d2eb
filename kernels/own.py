"""A function of one's own as a problem: `bench FILE.py:FUNCTION --axis n=1..4096`.

The function takes the values of the axes by name, makes its operands, and returns the call to time:
a function without arguments, of torch, Triton, CuPy or numba. Or it returns a dictionary:

    run         the call to time
    reference   a call that gives the right result; without one nothing is verified
    result      a call that gives the result, where `run` returns none
    tolerance   the largest error, as a share of the largest value of the reference
    flops       FLOPs of one run
    bytes       bytes of one run, each operand once
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import precision_of
from ..profiling.workload.networks import load_function
from .backends import Prepared
from .problem import Array, Error, Labelled, compare
from .sweeps import Sweep, parse_axis, single, span

_KEYS = ("run", "reference", "result", "tolerance", "flops", "bytes")
_GIVEN = ("device", "precision")  # parameters that have other options than --axis
# Roundoff of the types of results, by the end of their names; other types are exact.
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class OwnProblem(Labelled):
    """A call that a function of the user's makes; its fields are the axes, and the precision."""

    make: ClassVar[Callable[..., Any]]  # the function
    precision: str  # of the peak that its FLOPs are compared with

    @property
    def work(self) -> Work:
        """FLOPs and bytes, once the call was made; a function may tell none."""
        told: Work = self.__dict__.get("told_work", Work(None, None))
        return told

    def operands(self, _generator: np.random.Generator) -> tuple[Array, ...]:
        """None: the function makes its own."""
        return ()

    def prepare(self, device: str) -> Prepared:
        """Make the call for a device."""
        given = {**vars(self), "device": device}
        wanted = inspect.signature(type(self).make).parameters
        made = type(self).make(**{name: given[name] for name in wanted if name in given})
        made = made if isinstance(made, Mapping) else {"run": made}
        _check(made)
        self.__dict__["told_work"] = Work(made.get("flops"), made.get("bytes"))
        self.__dict__["told_tolerance"] = made.get("tolerance")
        return Prepared(made["run"], lambda: self._results(made), type(self).make.__name__)

    def error(self, _operands: tuple[Array, ...], result: Array) -> Error:
        """Error of the result, the first of two arrays, against the reference."""
        computed, reference = result
        tolerance: float = self.__dict__["told_tolerance"]
        sizes = np.abs(reference[np.isfinite(reference)])
        return compare(computed, reference, tolerance * float(sizes.max(initial=0.0)))

    def _results(self, made: Mapping[str, Any]) -> Array | None:
        """The result and the reference; None without a reference."""
        if "reference" not in made:
            return None
        returned = made["run"]()
        computed = made["result"]() if "result" in made else returned
        if self.__dict__["told_tolerance"] is None:
            self.__dict__["told_tolerance"] = _usual_tolerance(computed)
        both = _to_host(computed), _to_host(made["reference"]())
        if both[0].shape != both[1].shape:
            return np.array([[np.nan], [0.0]])  # whose error is none
        return np.stack(both)


def own_sweeps(spec: str, axes: Sequence[str], precisions: str) -> list[Sweep]:
    """The sweeps of a function, `FILE.py:FUNCTION`, over all combinations of its axes.

    CurvescopeError: it cannot be loaded, or an axis is none of its parameters, or one is missing.
    """
    make = load_function("bench", spec, "FILE.py:FUNCTION")
    parameters = inspect.signature(make).parameters
    values = dict(map(parse_axis, axes))
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name in _GIVEN:
            continue
        if name in values:
            fields[name] = _parse(values[name][0])
        elif parameter.default is not parameter.empty:
            fields[name] = parameter.default
        else:
            raise CurvescopeError(f"{spec} needs a value of {name}: add --axis {name}=VALUES.")
    for precision in precisions.split(","):
        precision_of(precision)
    fields["precision"] = precisions.split(",")[0]
    template = " ".join([make.__name__, *(f"{name}={{{name}}}" for name in fields)])
    typed = [
        (name, type(value), dataclasses.field(default=value)) for name, value in fields.items()
    ]
    own = dataclasses.make_dataclass(
        make.__name__,
        typed,
        bases=(OwnProblem,),
        namespace={"make": staticmethod(make), "template": template},
        frozen=True,
    )
    numeric = [name for name in (*values, *fields) if isinstance(fields.get(name), int)]
    if not numeric and values:
        raise CurvescopeError(f"{spec} needs a parameter that is a whole number, to sweep along.")
    return span(own(), axes, precisions, numeric[0]) if numeric else [single(own())]


def _parse(value: str) -> int | str:
    return int(value) if value.isdecimal() else value


def _check(made: Mapping[str, Any]) -> None:
    """Refuse what a function may not return."""
    unknown = [str(key) for key in made if key not in _KEYS]
    if unknown:
        raise CurvescopeError(f"it returned {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    if not callable(made.get("run")):
        raise CurvescopeError("it has to return a function without arguments, or one as `run`")


def _usual_tolerance(computed: Any) -> float:
    """The square root of the type's roundoff, which sums of any usual length stay within."""
    name = str(getattr(computed, "dtype", "float64")).rpartition(".")[2]
    return math.sqrt(_ROUNDOFF.get(name, 0.0))


def _to_host(values: Any) -> Array:
    """An array of torch, CuPy, numba or NumPy in float64 on the host."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    elif hasattr(values, "copy_to_host"):
        values = values.copy_to_host()
    elif hasattr(values, "get"):
        values = values.get()
    return np.asarray(values, np.float64)
