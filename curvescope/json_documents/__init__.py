"""The documents that `--json` prints, as types; their JSON Schema and its page are generated from them.

No instance of these types is made: the commands print dictionaries, and tests hold every one to its schema. Fields in
`_s`, `_ms`, `_ns` are times, in `_bytes` sizes, in `_per_s` rates; a share is a fraction of 1.
"""

from __future__ import annotations

from typing import Any

from ..analysis.render.documents import DOCUMENT_VERSION
from . import benches, diagnoses, views
from .json_schema import Definitions

DOCUMENTS: dict[str, type] = {
    "explain": diagnoses.ExplainDocument,
    "energy": diagnoses.EnergyDocument,
    "times": diagnoses.TimesDocument,
    "scaling": diagnoses.ScalingDocument,
    "table": views.TableDocument,
    "breakdown": views.BreakdownDocument,
    "compare": views.CompareDocument,
    "roofline": views.RooflineDocument,
    "ranks": views.RanksDocument,
    "runs": views.RunsDocument,
    "networks": views.NetworksDocument,
    "devices": views.DevicesDocument,
    "doctor": views.DoctorDocument,
    "import": views.ImportDocument,
    "export": views.ExportDocument,
    "bench": benches.BenchDocument,
    "replay": benches.ReplayDocument,
    "ceilings": benches.CeilingsDocument,
    "compile": benches.CompileDocument,
}


def document_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of all documents; `$defs` holds one definition per type."""
    definitions = Definitions()
    kinds = []
    for kind, document in DOCUMENTS.items():
        reference = definitions.schema_of(document)
        name = reference["$ref"].rpartition("/")[2]
        schema = definitions.schemas[name]
        marked = {"description": "Kind and version of the document.", "const": f"curvescope.{kind}/{DOCUMENT_VERSION}"}
        schema["properties"] = {"schema": marked, **schema["properties"]}
        schema["required"] = ["schema", *schema["required"]]
        kinds.append(reference)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of curvescope --json",
        "oneOf": kinds,
        "$defs": definitions.schemas,
    }
