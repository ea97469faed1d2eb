"""Defaults of options that a project keeps in `[tool.curvescope]` of its pyproject.toml.

A key is the name of an option without its dashes, e.g. `time-limit`, and its value reads as on the
command line. Options on the command line win.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from .base.errors import CurvescopeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE, TABLE = "pyproject.toml", "[tool.curvescope]"
KEYS = (
    *("step", "batch", "device", "protocol", "time-limit", "until", "probe", "experiments"),
    "fail-over",
)
_NUMBERS = ("time-limit",)
_OF_STEPS = ("step", "device")  # a program brings its own
_OF_PROTOCOLS = ("time-limit", "until", "experiments")  # another protocol has others


def read_project(folder: Path) -> dict[str, str]:
    """The table of the project in a folder, each value as on the command line; empty without one.

    Raises:
        CurvescopeError: the file is no TOML, or a key or a value has no meaning.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CurvescopeError(f"{path} is no TOML ({error}): correct it.") from None
    values = table.get("curvescope", {}) if isinstance(table, dict) else {}
    if not isinstance(values, dict):
        raise CurvescopeError(f"{FILE}: write {TABLE} as a table.")
    if unknown := values.keys() - set(KEYS):
        raise CurvescopeError(
            f"{FILE}, {TABLE}: there is no key {', '.join(sorted(unknown))}. Its keys are "
            f"{', '.join(KEYS)}."
        )
    return {key: _as_text(key, value) for key, value in values.items()}


def _as_text(key: str, value: object) -> str:
    """A value as on the command line; a list of sizes has commas."""
    if _is_number(value) or (isinstance(value, str) and key not in _NUMBERS):
        return str(value)
    if key in _NUMBERS:
        raise CurvescopeError(f"{FILE}, {TABLE}: write {key} as a number.")
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return ",".join(map(str, value))
    raise CurvescopeError(f"{FILE}, {TABLE}: write {key} as a text, a number or a list of numbers.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def defaults_of_diagnose(args: argparse.Namespace) -> dict[str, str]:
    """The defaults for `diagnose`; a network, a program and a protocol leave some of them out."""
    left_out: tuple[str, ...] = ()
    if args.network is not None or args.card is not None:
        left_out += ("step",)
    if args.program:
        left_out += _OF_STEPS
    if "--protocol" in args.given:
        left_out += _OF_PROTOCOLS
    return _without(read_project(Path()), left_out)


def defaults_of_versions(args: argparse.Namespace) -> dict[str, str]:
    """The defaults for `compare --measure`; recordings that are compared have none."""
    if not args.measure:
        return {}
    from .profiling.measure.versions import Version

    programs = [text for text in args.measure if Version.parse(text).program is not None]
    return _without(read_project(Path()), _OF_STEPS if programs else ())


def _without(values: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in keys}


def describe(defaults: Mapping[str, str]) -> str:
    """The defaults that count, in one line."""
    return f"From {FILE}: {', '.join(f'{key} {value}' for key, value in defaults.items())}."
