"""The list of all documents of `--json`, and their JSON Schema."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from . import documents as here
from .analysis.render import documents, energy, memory, series
from .analysis.render.documents import kind_of

_TYPES = {name: one for module in (documents, energy, memory, series, here) for name, one in vars(module).items()}
DOCUMENTS = tuple(one for name, one in _TYPES.items() if name.endswith("Document"))
_FIELD = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def document_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of all documents; `$defs` has one definition per type, with its docstrings."""
    references, types = msgspec.json.schema_components(DOCUMENTS, ref_template="#/$defs/{name}")
    for name, definition in types.items():
        del definition["title"]
        properties = definition.get("properties")
        if properties is None:  # words, e.g. of verdicts
            definition["description"] = _sentence(definition.get("description", ""))
            continue
        # A field with a default is in every document too, but for those that may be unset.
        definition["required"] += [field for field, one in properties.items() if one.pop("default", ...) is not ...]
        kind = _TYPES.get(name)
        summaries = [base.__doc__ or "" for base in reversed(kind.__mro__)] if kind else [definition["description"]]
        for text in map(inspect.cleandoc, summaries):
            summary, _, attributes = text.partition("\n\nAttributes:")
            definition["description"] = _sentence(summary)
            for field, said in _FIELD.findall(attributes):
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


def _sentence(text: str) -> str:
    """Text of a docstring on one line, with JSON's word for a missing value."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))
