"""The list of all documents of `--json`, and their JSON Schema."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect

from curvescope.analysis import step_table
from curvescope.analysis.render import (
    advice,
    breakdown,
    choices,
    compare,
    energy,
    explained,
    history,
    memory,
    ranks,
    roofline,
    series,
    server_log,
    show_scaling,
    show_sizes,
)
from curvescope.analysis.render.documents import kind_of
from curvescope.commands import doctor, export, runs
from curvescope.commands.bench import documents as bench
from curvescope.commands.doctor import devices, networks
from curvescope.profiling import readers

_MODULES = (
    advice,
    explained,
    breakdown,
    choices,
    compare,
    roofline,
    ranks,
    show_scaling,
    energy,
    history,
    memory,
    series,
    server_log,
    show_sizes,
    devices,
    doctor,
    export,
    networks,
    readers,
    runs,
    step_table,
    bench,
)
_TYPES = {name: one for module in _MODULES for name, one in vars(module).items()}
DOCUMENTS = tuple(one for name, one in _TYPES.items() if name.endswith("Document"))
_FIELD = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
# A field with a comment at its end or in the lines above it.
_COMMENTED = re.compile(r"^((?:    # .+\n)*)    (\w+): [^#\n]+(?:  # (.+))?$", re.MULTILINE)


def document_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of all documents; `$defs` has one definition per type."""
    references, types = msgspec.json.schema_components(DOCUMENTS, ref_template="#/$defs/{name}")
    classes: dict[str, type] = {}
    _find_classes(msgspec.inspect.multi_type_info(DOCUMENTS), classes)
    for name, definition in types.items():
        del definition["title"]
        properties = definition.get("properties")
        if properties is None:  # words, e.g. of verdicts
            definition["description"] = _sentence(definition.get("description", ""))
            continue
        # A field with a default is in every document too, but for those that may be unset.
        definition["required"] += [
            field for field, one in properties.items() if one.pop("default", ...) is not ...
        ]
        for base in reversed(classes[name].__mro__):
            summary, _, attributes = inspect.cleandoc(base.__doc__ or "").partition(
                "\n\nAttributes:"
            )
            definition["description"] = _sentence(summary)
            for field, said in [*_FIELD.findall(attributes), *_commented(base)]:
                if field in properties:
                    properties[field] = {"description": _sentence(said), **properties[field]}
    for name in ("Estimate", "Change"):  # an infinite end of an interval is null: unknown
        for field in ("low", "high", "p"):
            if end := types[name]["properties"].get(field):
                end["anyOf"] = [{"type": end.pop("type")}, {"type": "null"}]
    for document in DOCUMENTS:
        definition = types[document.__name__]
        marked = {"description": "Kind and version of the document.", "const": kind_of(document)}
        definition["properties"] = {"schema": marked, **definition["properties"]}
        definition["required"].insert(0, "schema")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of curvescope --json",
        "oneOf": list(references),
        "$defs": types,
    }


def _find_classes(node: Any, found: dict[str, type]) -> None:
    """Collect the classes in type information by name."""
    if isinstance(node, (list, tuple)):
        for one in node:
            _find_classes(one, found)
    elif isinstance(node, (msgspec.inspect.Type, msgspec.inspect.Field)):
        kind = getattr(node, "cls", None)
        if kind is None or kind.__name__ not in found:
            if kind is not None:
                found[kind.__name__] = kind
            _find_classes(
                [getattr(node, name) for name in node.__struct_fields__ if name != "cls"], found
            )


def _commented(kind: type) -> list[tuple[str, str]]:
    """The fields of a class with what the comments beside them say."""
    if not dataclasses.is_dataclass(kind):
        return []
    fields = _COMMENTED.findall(_sources(kind.__module__)[kind.__name__])
    said = [
        (name, " ".join(above.replace("    # ", " ").split()) or beside)
        for above, name, beside in fields
    ]
    return [
        (name, text if text.endswith((".", "…")) else f"{text}.") for name, text in said if text
    ]


@cache
def _sources(module: str) -> dict[str, str]:
    """The source of each class of a module; `inspect.getsource` parses the module for every one."""
    source = inspect.getsource(sys.modules[module])
    lines = source.splitlines(keepends=True)
    return {
        node.name: "".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }


def _sentence(text: str) -> str:
    """Text of a docstring or comment on one line, with JSON's word for a missing value."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))
