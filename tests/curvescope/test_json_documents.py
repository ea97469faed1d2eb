"""What `--json` prints: every command with the option is listed here, and its document fits the
written schema.

A fixture of all tests (tests/conftest.py) holds every other document that a command prints to its
schema too.
"""

import pytest

from curvescope.analysis.render.documents import kind_of
from curvescope.cli import COMMANDS, main
from curvescope.commands.bench import BENCHES
from curvescope.commands.scale import PARTS as SCALE
from tests.conftest import document_validator

from ..shared import load_script

jsonschema = pytest.importorskip("jsonschema")
schema_script = load_script("docs/document_schema.py")
DOCUMENTS, document_schema = schema_script.DOCUMENTS, schema_script.document_schema

# The kinds of documents that each command prints; None: it prints none.
KINDS = {
    "diagnose": {"explain", "energy", "memory"},
    "explain": {"explain", "advice", "energy", "memory", "times", "scaling", "serverlog"},
    "confirm": {"explain"},
    "measure": {"scaling"},
    "read": {"ranks"},
    "compare": {"compare", "table", "maps"},
    "doctor": {"doctor", "devices", "networks"},
    "sweep": {"table"},
    "runs": {"runs", "history"},
    "replay": {"replay"},
    "ceilings": {"ceilings"},
    "gemm": {"bench", "candidates", "map"},
    "conv": {"bench", "candidates", "map"},
    **{
        name: {"bench"}
        for name in (
            "attention",
            "experts",
            "operators",
            "memory",
            "roof",
            "latency",
            "launch",
            "transfer",
            "peak",
            "all",
        )
    },
}


def with_json():
    """Commands with the option --json."""
    for name, command in {**COMMANDS, **BENCHES, **SCALE}.items():
        if "--json" in command.build()[0]._option_string_actions:
            yield name


def test_every_command_with_json_has_documents_and_no_document_is_without_a_command():
    printed = [KINDS.get(command, {command}) for command in with_json()]
    assert {f"curvescope.{kind}/1" for kind in set().union(*printed)} == set(
        map(kind_of, DOCUMENTS)
    )


@pytest.mark.first_rows(5)  # a fixture holds what other tests print to the schema too
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("explain", "RUN"), "explain"),
        (("breakdown", "RUN"), "breakdown"),
        (("compare", "RUN", "RUN"), "compare"),
        (("roofline", "RUN"), "roofline"),
        (("compare", "--steps", "RUN", "--published"), "table"),
        (("runs", "."), "runs"),
        (("export", "RUN", "--csv", "-o", "tables"), "export"),
        (("doctor", "--card", "gtx1080"), "devices"),
        (("doctor", "--list", "networks"), "networks"),
        (("doctor",), "doctor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_document_names_its_kind_and_fits_the_schema(
    modelled, arguments, kind, monkeypatch, document_of
):
    monkeypatch.chdir(modelled)
    # all take seconds
    monkeypatch.setattr("curvescope.profiling.workload.networks.names", lambda: ["alexnet"])
    document = document_of(*arguments)
    assert document["schema"] == f"curvescope.{kind}/1"
    jsonschema.Draft202012Validator(document_schema()).validate(document)
    with pytest.raises(jsonschema.ValidationError):
        document_validator(document["schema"]).validate({**document, "unknown": 1})


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """A folder with one recording, RUN, of a modelled GPU."""
    folder = tmp_path_factory.mktemp("modelled")
    options = ["--card", "gtx1080", "--batch", "16..64"]
    assert main(["diagnose", "vgg_a", *options, "-o", str(folder / "RUN"), "--json"]) == 0
    return folder


def test_the_schema_is_one_and_every_field_that_is_ours_has_a_description():
    schema = document_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    bare = [
        f"{name}.{field}"
        for name, definition in schema["$defs"].items()
        for field, one in definition.get("properties", {}).items()
        if "description" not in one
    ]
    assert sorted(bare) == []
