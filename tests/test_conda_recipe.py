"""The recipe for conda-forge: valid by its schema, and the needs of the package are its own."""

import re
import sys

import pytest

import curvescope

from .shared import ROOT, load_script

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

RECIPE = ROOT / ".ci" / "conda" / "recipe.yaml"
TEXTS = {"type": "array", "minItems": 1, "items": {"type": "string"}}
NEEDS = {"type": "array", "items": {"type": ["string", "object"], "required": ["if", "then"]}}
# The parts of rattler-build's schema of recipes that this one has.
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema_version", "package", "source", "build", "requirements", "tests", "about"],
    "properties": {
        "schema_version": {"const": 1},
        "context": {"type": "object", "additionalProperties": {"type": "string"}},
        "package": {"type": "object", "required": ["name", "version"]},
        "source": {
            "type": "object",
            "oneOf": [{"required": ["path"]}, {"required": ["url", "sha256"]}],
        },
        "build": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"number": {"type": "integer"}, "skip": TEXTS, "script": TEXTS},
        },
        "requirements": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"build": NEEDS, "host": NEEDS, "run": NEEDS},
        },
        "tests": {
            "type": "array",
            "items": {"oneOf": [{"required": ["python"]}, {"required": ["script"]}]},
        },
        "about": {"type": "object", "required": ["summary", "license", "license_file"]},
    },
}


@pytest.fixture(scope="module")
def recipe():
    return yaml.safe_load(RECIPE.read_text())


def test_it_is_valid_and_a_damaged_one_is_not(recipe):
    jsonschema.validate(recipe, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**recipe, "source": {"url": "x"}}, SCHEMA)


def test_it_needs_what_the_wheel_needs(recipe):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {f"python {project['requires-python']}"}
    for requirement in project["dependencies"]:
        name, bounds = re.match(r"([\w-]+)([^;]*)", requirement).groups()
        wanted.add(f"{name} {bounds}")
    listed = recipe["requirements"]["run"]
    assert {need if isinstance(need, str) else need["then"] for need in listed} == wanted


def test_it_has_the_version_summary_and_licence_of_the_package(recipe):
    assert recipe["context"]["version"] == curvescope.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (
        project["description"],
        project["license"],
    )
    assert (ROOT / recipe["about"]["license_file"]).exists()
    (script,) = recipe["build"]["script"]
    (option,) = re.findall(r"-Ccmake\.define\.(\w+)=", script)
    assert f"set({option} " in (ROOT / "native" / "CMakeLists.txt").read_text()


def test_a_release_writes_its_version():
    pattern, line = load_script(".ci/release.py").PLACES[".ci/conda/recipe.yaml"]
    written, count = re.subn(
        pattern, line.format(version="1.2.3"), RECIPE.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    assert yaml.safe_load(written)["context"]["version"] == "1.2.3"
