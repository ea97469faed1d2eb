"""JSON Schema of types with fields, with what their docstrings say of each field."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ..analysis.decompose.statistics import Estimate
from ..analysis.render.documents import documented

_SIMPLE = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
OPTIONAL = {"optional": True}  # metadata of a field that a document may leave out
_FIELD = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
# An infinite end of an interval is null in JSON: unknown.
_NULLABLE = {Estimate: {"low", "high", "p"}}


class Definitions:
    """JSON Schemas of types with fields, each under its own name.

    Attributes:
        schemas: definitions by name, for the entry `$defs` of a schema.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}
        self._names: dict[Any, str] = {}

    def schema_of(self, kind: Any) -> dict[str, Any]:
        """The JSON Schema of a type; that of a type with fields is a reference to its definition.

        Args:
            kind: a simple type, a union, a sequence or a mapping of such types, or a type with fields.

        Raises:
            TypeError: JSON cannot hold the type.
        """
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any:
            return {}
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [word.value for word in kind]}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.schema_of(one) for one in arguments]}
        if origin is tuple and arguments[-1] is not Ellipsis:
            items = [self.schema_of(one) for one in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1])}
        if origin and issubclass(origin, Sequence):
            return {"type": "array", "items": self.schema_of(arguments[0])}
        if not (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
            raise TypeError(f"{kind} has no JSON Schema.")
        if kind not in self._names:
            name = kind.__name__
            if name in self._names.values():  # two modules have a type of this name
                name += kind.__module__.rpartition(".")[2].capitalize()
            self._names[kind] = name  # before its fields: a type can hold itself
            self.schemas[name] = self._of_fields(kind)
        return {"$ref": f"#/$defs/{self._names[kind]}"}

    def _of_fields(self, kind: Any) -> dict[str, Any]:
        summary = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
        described = _described(kind)
        properties = {}
        for name, hint in fields_of(kind).items():
            shown = self.schema_of(hint | None if name in _NULLABLE.get(kind, ()) else hint)
            properties[name] = {"description": described[name], **shown} if name in described else shown
        return {
            "description": _sentence(summary),
            "type": "object",
            "properties": properties,
            "required": sorted(properties.keys() - _optional(kind)),
        }


def fields_of(kind: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass or a named tuple, by name."""
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in documented(kind)}
    return {name: hints[name] for name in kind._fields}


def _optional(kind: Any) -> set[str]:
    """Names of the fields that a document may leave out."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name for field in fields if "optional" in field.metadata}


def _described(kind: type) -> dict[str, str]:
    """What the docstrings of a type and of its bases say of each field."""
    said: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        attributes = inspect.cleandoc(base.__doc__ or "").partition("\n\nAttributes:")[2]
        said |= {name: _sentence(text) for name, text in _FIELD.findall(attributes)}
    return said


def _sentence(text: str) -> str:
    """Text of a docstring on one line, with JSON's word for a missing value."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))
