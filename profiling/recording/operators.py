"""Arguments of recorded operator calls: the JSON text in the column `operators.arguments`.

The text is a list with one entry per argument of the operator's schema, in order:

- null: the argument was None or left out,
- {"shape": [8, 9216], "strides": [9216, 1], "dtype": "float"}: a tensor; `strides` is null if
  unknown,
- {"tensors": [...]}: a list of tensors,
- {"value": 1}: a scalar, a list of scalars, or a string,
- {"float": "-inf"}: a floating-point scalar that JSON cannot write.

Types are PyTorch's names as its profiler writes them, e.g. float, c10::BFloat16 or long int.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

# torch's types by the names that its profiler writes.
TORCH_DTYPES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
}
TORCH_DTYPES |= {
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
}
TORCH_DTYPES |= {"signed char": "int8", "unsigned char": "uint8", "bool": "bool"}
TORCH_DTYPES |= {
    f"c10::complex<{part}>": name
    for part, name in (("double", "complex128"), ("float", "complex64"), ("c10::Half", "complex32"))
}
TORCH_DTYPES |= {f"c10::Float8_{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e5m2")}
TORCH_DTYPES |= {
    "short unsigned int": "uint16",
    "unsigned int": "uint32",
    "long unsigned int": "uint64",
}


# Products of matrices, without `aten::`.
PRODUCTS = frozenset({"linear", "addmm", "mm", "bmm", "baddbmm", "matmul"})
# Products of groups of rows, each with a matrix of its own.
GROUPED = frozenset({"aten::_grouped_mm", "aten::_scaled_grouped_mm"})
PROFILER_DTYPES = {dtype: name for name, dtype in reversed(TORCH_DTYPES.items())}


@dataclass(frozen=True)
class TensorArgument:
    """A tensor argument."""

    shape: tuple[int, ...]  # extents; empty for a tensor of one number
    # type of an element, as PyTorch's profiler names it; empty for tensors of a list of unknown
    # type
    dtype: str
    # elements between neighbours, by dimension; None: taken as contiguous
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True)
class TensorList:
    """A list of tensors."""

    tensors: tuple[TensorArgument, ...]


@dataclass(frozen=True)
class Value:
    """A scalar, a list of scalars (as a tuple), or a string."""

    value: Any


Argument: TypeAlias = TensorArgument | TensorList | Value | None


# Arguments that an operator writes though its schema does not say so: those of batch normalisation.
_WRITTEN_UNSAID = ("running_mean", "running_var")


def find_written_arguments(schema: Any) -> frozenset[int]:
    """Indices of the arguments that an operator writes, by its `FunctionSchema`, also those for
    results only.
    """
    indices = set()
    for index, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if argument.name in _WRITTEN_UNSAID or (alias is not None and alias.is_write):
            indices.add(index)
    return frozenset(indices)


def encode_arguments(arguments: Sequence[Argument]) -> str:
    """The arguments as JSON text; equal arguments have equal texts."""
    return msgspec.json.encode([_entry(argument) for argument in arguments]).decode()


def decode_arguments(text: str) -> tuple[Argument, ...]:
    """The arguments from their JSON text; ValueError: the text is damaged."""
    try:
        return tuple(_argument(entry) for entry in msgspec.json.decode(text))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no operator arguments: {text[:80]}") from error


def _entry(argument: Argument) -> Any:
    if argument is None:
        return None
    if isinstance(argument, TensorList):
        return {"tensors": [_entry(tensor) for tensor in argument.tensors]}
    if isinstance(argument, Value):
        finite = not isinstance(argument.value, float) or math.isfinite(argument.value)
        return {"value": argument.value} if finite else {"float": str(argument.value)}
    return {"shape": argument.shape, "strides": argument.strides, "dtype": argument.dtype}


def _argument(entry: Any) -> Argument:
    if entry is None:
        return None
    if "tensors" in entry:
        return TensorList(tuple(_tensor(tensor) for tensor in entry["tensors"]))
    if "float" in entry:
        return Value(float(entry["float"]))
    return Value(_freeze(entry["value"])) if "value" in entry else _tensor(entry)


def _tensor(entry: Any) -> TensorArgument:
    strides = entry["strides"]
    return TensorArgument(
        tuple(entry["shape"]), entry["dtype"], None if strides is None else tuple(strides)
    )


def _freeze(value: Any) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value
