"""One version of everything that make and .ci/run install: constraints.txt has it."""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path

import pytest

from .shared import load_script
from .tables import ask_each

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PINS = [
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def needed() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    listed = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *chain.from_iterable(extras),
    ]
    for words in re.findall(
        r"^\t\$\(PIP\) ([\w -]+?)(?: &&.*)?$", (ROOT / "Makefile").read_text(), re.MULTILINE
    ):
        listed += [word for word in words.split() if not word.startswith("-")]
    return {name_of(requirement) for requirement in listed}


def test_every_dependency_has_one_version():
    assert {
        "numpy",
        "torch",
        "mypy",
        "scikit-build-core",
        "auditwheel",
        "pip-audit",
        "uv",
        "codespell",
    } <= needed()
    assert needed() <= {name_of(pin) for pin in PINS}


def test_every_extra_of_users_is_audited():
    audit = load_script(".ci/audit.py")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra, requirements in extras.items():
        if extra not in (*audit.EXTRAS, "dev", "docs", "release"):
            assert {name_of(requirement) for requirement in requirements} <= set(audit.ASKED_ABOUT)
    assert {name_of(pin) for pin in audit.pins(audit.ASKED_ABOUT)} == set(audit.ASKED_ABOUT)


@ask_each("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_no_python_is_given_two_versions_of_one_package(python):
    packaging = pytest.importorskip("packaging.requirements")
    environment = {"python_version": python, "python_full_version": f"{python}.6", "extra": ""}
    found = {}
    for pin in map(packaging.Requirement, PINS):
        if pin.marker is None or pin.marker.evaluate(environment):
            assert found.setdefault(name_of(pin.name), pin.specifier) == pin.specifier
            assert re.fullmatch(r"==[\w.+!-]+", str(pin.specifier)), pin
    assert {"numpy", "pandas", "torch"} <= set(found)
