"""Builds runnable calls from recorded ones: the overload by the kinds of arguments, and tensors
like the recorded ones.

A replayed call records no gradient: its tensors do not require one. It runs the same kernels as in
training where the operator itself does not ask for gradients. Operators that do, e.g. an LSTM on a
CPU, may choose another algorithm, which the names of the kernels then show. A forward call in
training also keeps its results until the backward pass. Alone, each result is freed at once, so
that its memory is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from ...base.torch_runtime import import_torch
from ...profiling.recording.operators import (
    Argument,
    TensorArgument,
    TensorList,
    Value,
    find_written_arguments,
)
from .recorded_call import CannotReplay, RecordedCall, tensors_of
from .values import Values, dtype_of, storage_elements

# c10::MemoryFormat and c10::Layout, by number.
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_LAYOUTS = ("strided",)
# c10::ScalarType by number; quantized types and those of bits have no place in a step.
_SCALAR_TYPES = {
    **dict(
        enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))
    ),
    **dict(enumerate(("complex32", "complex64", "complex128", "bool"), 8)),
    15: "bfloat16",
    **dict(enumerate(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"), 23)),
    **dict(enumerate(("uint16", "uint32", "uint64"), 27)),
}
# positions along the dimensions of a tensor, of `index` and its kin
_POSITIONS = "List[Optional[Tensor]]"
_NUMBERS = ("number", "Scalar", "complex")
_INTEGERS = ("int", "SymInt", "ScalarType", "Layout", "MemoryFormat", *_NUMBERS)
_SCALARS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (bool, ("bool", "SymBool", *_NUMBERS)),
    (int, _INTEGERS),
    (float, ("float", "SymFloat", *_NUMBERS)),
    (str, ("str",)),
)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A call that can run."""

    call: RecordedCall
    overload: Any  # torch's operator, an `OpOverload`
    arguments: tuple[Any, ...]  # values in the order of the schema; tensors for tensors
    # runs the operator once and returns its results; on a GPU the work is only queued
    run: Callable[[], Any]
    notes: tuple[str, ...] = ()  # assumptions, one clause each


def bind(overload: Any, arguments: Sequence[Any]) -> Callable[[], Any]:
    """A function that runs an operator on these arguments."""
    positional, named = [], {}
    for argument, value in zip(overload._schema.arguments, arguments, strict=True):
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return partial(overload, *positional, **named)


def rebuild(
    call: RecordedCall,
    device: str = "cpu",
    seed: int = 0,
    try_run: bool = True,
    operands: Mapping[int, Any] = MappingProxyType({}),
) -> Replayed:
    """Build a call that can run, with new tensors like the recorded ones, or with `operands` by
    index of the argument.

    `try_run` runs it once: what cannot be built or run raises CannotReplay.
    """
    torch = import_torch()
    overload = _find_overload(torch, call)
    schema = overload._schema.arguments
    # An argument that only receives results needs no values.
    written = find_written_arguments(overload._schema)
    mutated = frozenset(index for index in written if not schema[index].is_out)
    names = [argument.name for argument in schema]
    values = Values(torch, call, names, mutated, device, seed)
    notes: list[str] = []
    recorded = (*call.arguments, *[_Default] * (len(schema) - len(call.arguments)))
    arguments = []
    try:
        for index, (kind, argument) in enumerate(zip(schema, recorded, strict=True)):
            if index in operands:
                value = operands[index]
            else:
                value = _argument(torch, values, index, kind, argument, device, notes)
            arguments.append(value)
        values.finish(arguments)
        run = bind(overload, arguments)
        if try_run:
            run()
    except CannotReplay:
        raise
    except (
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
        NotImplementedError,
        MemoryError,
    ) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CannotReplay(f"torch refuses it: {first_line}") from error
    return Replayed(
        call=call, overload=overload, arguments=tuple(arguments), run=run, notes=tuple(notes)
    )


def _find_overload(torch: Any, call: RecordedCall) -> Any:
    """The operator whose schema fits the recorded arguments best; of equal ones the first."""
    namespace, _, name = call.op.partition("::")
    schemas = torch._C._jit_get_schemas_for_operator(call.op) if name else []
    if not schemas:
        raise CannotReplay("it is no operator of torch's schemas")
    if namespace in ("c10d", "_c10d_functional"):
        raise CannotReplay("it needs the other ranks")
    scores = [(_score(call.arguments, schema.arguments), schema) for schema in schemas]
    packet = getattr(getattr(torch.ops, namespace), name, None)
    for score, schema in sorted(scores, reverse=True, key=lambda entry: entry[0]):
        overload = getattr(packet, schema.overload_name or "default", None)
        if score and overload is not None:
            return overload
    raise CannotReplay("none of its schemas has such arguments")


def _score(recorded: Sequence[Argument], schema: Sequence[Any]) -> int:
    """How well recorded arguments fit a schema, at least 1; 0 if they do not."""
    missing = schema[len(recorded) :]
    if len(recorded) > len(schema) or not all(kind.has_default_value() for kind in missing):
        return 0
    total = 1 + (not missing)
    for argument, kind in zip(recorded, schema, strict=False):
        fits = _fit(argument, str(kind.real_type))
        if not fits:
            return 0
        total += fits
    return total


def _fit(argument: Argument, kind: str) -> int:
    """How well one argument fits a type: 0 not at all, 1 possibly, 2 exactly."""
    inner = _without_optional(kind)
    if (
        argument is None
    ):  # None, or a value that profilers do not record: a text, a device, indices of `index`
        unrecorded = ("str", "Device", "Generator", "Stream", "Tensor", _POSITIONS, "Layout")
        return int(inner in unrecorded) if inner == kind else 2
    if isinstance(argument, TensorArgument):
        return 2 * (inner == "Tensor")
    if isinstance(argument, TensorList):
        return 2 * (inner in ("List[Tensor]", _POSITIONS))
    return _fit_value(argument.value, inner)


def _without_optional(kind: str) -> str:
    """The type inside `Optional[…]`; another one as it is."""
    inner = kind.removeprefix("Optional[")
    return kind if inner == kind else inner.removesuffix("]")


def _fit_value(value: Any, kind: str) -> int:
    if isinstance(value, tuple):
        if not kind.startswith("List["):
            return 0
        inner = kind.removeprefix("List[").removesuffix("]")
        fits = [_fit_value(entry, inner) for entry in value]
        return min(fits, default=int("Tensor" not in inner))
    for python_type, kinds in _SCALARS:
        if isinstance(value, python_type):
            return 2 if kind == kinds[0] else int(kind in kinds)
    return 0


class _Default:
    """Stands for an argument that keeps the default of the schema."""


def _argument(
    torch: Any, values: Values, index: int, kind: Any, recorded: Any, device: str, notes: list[str]
) -> Any:
    declared = str(kind.real_type)
    inner = _without_optional(declared)
    if inner == "Device":
        return torch.device(device)
    if recorded is _Default:
        return kind.default_value
    if isinstance(recorded, TensorArgument):
        return values.tensor(recorded, index)
    if isinstance(recorded, TensorList) and _POSITIONS in inner:
        notes.append(f"the values of {kind.name} are not recorded, assumed random within range")
        return [values.positions(tensor, index, at) for at, tensor in enumerate(recorded.tensors)]
    if isinstance(recorded, TensorList):
        return [values.tensor(tensor, index) for tensor in recorded.tensors]
    if isinstance(recorded, Value):
        value = list(recorded.value) if isinstance(recorded.value, tuple) else recorded.value
        return _find_constant(torch, inner, value)
    if inner == "str":
        if kind.has_default_value():
            notes.append(f"{kind.name} is not recorded, assumed {kind.default_value}")
            return kind.default_value
        if inner == declared:
            raise CannotReplay(f"its text argument {kind.name} is not recorded")
    if _POSITIONS in declared and inner == declared:
        raise CannotReplay(f"its tensors {kind.name} are not recorded")
    return None


def _find_constant(torch: Any, kind: str, value: Any) -> Any:
    if not isinstance(value, int):
        return value
    if kind == "ScalarType":
        if value not in _SCALAR_TYPES:
            raise CannotReplay(f"element type {value} is not known")
        return getattr(torch, _SCALAR_TYPES[value])
    for name, constants in (("MemoryFormat", _MEMORY_FORMATS), ("Layout", _LAYOUTS)):
        if kind == name:
            if not 0 <= value < len(constants):
                raise CannotReplay(f"{name} {value} is not known")
            return getattr(torch, constants[value])
    return value


def memory_bytes(call: RecordedCall) -> int:
    """Memory of the tensors that `rebuild` creates for a call.

    CannotReplay: the type of one is not known.
    """
    torch = import_torch()
    total = 0
    for tensor in tensors_of(call.arguments):
        item_bytes = int(dtype_of(torch, tensor.dtype).itemsize)
        total += storage_elements(tensor) * item_bytes
    return total
