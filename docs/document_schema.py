"""The list of all documents of `--json`, and their JSON Schema."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

import msgspec

from curvescope import documents as here
from curvescope.analysis.render import documents, energy, memory, series
from curvescope.analysis.render.documents import kind_of

_TYPES = {name: one for module in (documents, energy, memory, series, here) for name, one in vars(module).items()}
DOCUMENTS = tuple(one for name, one in _TYPES.items() if name.endswith("Document"))
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_COMMENTED = re.compile(r"((?:^    # .+\n)*)^    (\w+): [^#\n]+(?:  # (.+))?$", re.MULTILINE)


def document_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of all documents; `$defs` has one definition per type."""
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
        said = {}
        for text in map(inspect.cleandoc, summaries):
            summary, _, attributes = text.partition("\n\nAttributes:")
            definition["description"] = _sentence(summary)
            said |= dict(_ATTRIBUTE.findall(attributes))
        for base in filter(is_dataclass, kind.__mro__ if kind else ()):
            for above, field, beside in _COMMENTED.findall(inspect.getsource(base)):
                if comment := (above.replace("#", "") + beside).strip():
                    said[field] = f"{comment}."
        for field in properties.keys() & said:
            properties[field] = {"description": _sentence(said[field]), **properties[field]}
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
    """Text of a docstring or comment on one line, with JSON's word for a missing value."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))
