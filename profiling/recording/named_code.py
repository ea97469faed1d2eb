"""Code that a recording or a plan names, and whether it may run here.

Curvescope can measure a recording's step again, and the step may be a function of the user's: the
recording names it. Whoever sends a recording can name any function. So a measurement signs the code
that it names, with a key that only this user can read; what has no such signature runs only where
the user asks for it. A signature holds for the same names, in the same files, on this user's
machines; that of a command also for the folder in which it ran. Built-in networks need none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ...base.user_folders import data_folder
from .hidden_commands import VALUES, restore_commands

SIGNATURE = "code_signature"  # entry of recording.json and of plans
# Entries of recording.json that say what runs again.
_ENTRIES = (
    "network",
    "input_shape",
    "sequence_length",
    "mode",
    "precision",
    "compiled",
    "graphed",
    "memory_limit_bytes",
    *("step", "step_module", "axis", "fixed", "torch_device"),
    *("program", "step_range", "step_line", "workdir", "assign", "runs_in"),
    "step_function",
)
_NAMING = ("step", "network", "source")  # whose values may name code, at any depth of a plan
_PROGRAM = "program"  # whose value is a command
_KEY_BYTES = 32
_WORLD_WRITABLE = 0o002
_OTHERS = 0o077

_signed_here: set[str] = set()  # what this process signed, for where it cannot keep a key


def describe_code(meta: Mapping[str, Any]) -> dict[str, Any]:
    """A recording's entries on the code that runs again."""
    return {name: meta[name] for name in _ENTRIES if meta.get(name) is not None}


def whole_code(where: object, meta: Mapping[str, Any]) -> dict[str, Any]:
    """The same with whole commands, see `restore_commands`."""
    return restore_commands(where, describe_code(meta), meta.get(VALUES))


def signature_entry(description: Mapping[str, Any]) -> dict[str, str]:
    """The entry with the signature of what this process measures; empty if it names no code, or
    there is no key.
    """
    if not list(_list_code(description)):
        return {}
    text = _compose_signed_text(description)
    _signed_here.add(text)
    with suppress(CurvescopeError, OSError):
        return {SIGNATURE: _sign(text, _read_key(make=True))}
    return {}


def check_recorded_code(where: object, meta: Mapping[str, Any], run_its_code: bool) -> None:
    """Refuse to run the code that a recording names, see `check_code`."""
    recorded = describe_code(meta)
    check_code(where, whole_code(where, meta), meta.get(SIGNATURE), run_its_code, recorded)


def check_code(
    where: object,
    description: Mapping[str, Any],
    signature: object,
    run_its_code: bool,
    recorded: Mapping[str, Any],
) -> None:
    """Refuse to run code that a recording or plan names, unless this user named it or asks for it.

    The message names code as it is `recorded`: an agent may read it.

    Raises:
        CurvescopeError: it names code, and has no signature of this user, or another one than it
            should.
    """
    named = list(_list_code(description))
    if run_its_code or not named:
        return
    text = _compose_signed_text(description)
    if text in _signed_here:
        return
    why = "it has no signature: somebody else measured it, or an older Curvescope"
    if isinstance(signature, str):
        try:
            right = hmac.compare_digest(
                signature.encode(errors="replace"), _sign(text, _read_key()).encode()
            )
        except FileNotFoundError:
            right = False
        except OSError as error:
            raise CurvescopeError(
                f"The key of your recordings cannot be read ({error})."
            ) from error
        if right:
            return
        why = (
            "its signature does not fit: it was measured by another user, elsewhere or by an older "
            "Curvescope, or changed since then"
        )
    shown = dict(zip(_list_code(recorded), named, strict=True))
    files = ", ".join(f"{spec} ({_name_files(whole)})" for spec, whole in shown.items())
    raise CurvescopeError(
        f"{where} names code that would run here as you: {files}. You did not name it: {why}. Read "
        "that code first; --run-its-code then runs it."
    )


def _list_code(description: Any, name: str = "") -> Iterator[str]:
    """The code that a description names, at any depth: of a step, of a network or of its input."""
    if isinstance(description, Mapping):
        for key, value in description.items():
            yield from _list_code(value, str(key))
    elif isinstance(description, (list, tuple)) and name == _PROGRAM:
        yield f"{_PROGRAM} {shlex.join(map(str, description))}"
    elif isinstance(description, (list, tuple)):
        for value in description:
            yield from _list_code(value, name)
    elif (
        isinstance(description, str) and name in _NAMING and (name == "step" or ":" in description)
    ):
        yield description


def _compose_signed_text(description: Mapping[str, Any]) -> str:
    """The signed content: all of the description, and the files in which its code is found from
    here.
    """
    files = {spec: _places_of(spec) for spec in _list_code(description)}
    return json.dumps([description, files], sort_keys=True)


def _name_files(spec: str) -> str:
    """The files of code, as a message names them: a word of a command may be none."""
    files = [place for place in _places_of(spec) if place.endswith(".py") or os.path.isfile(place)]
    return ", ".join(files) or "no such file here"


def _places_of(spec: str) -> list[str]:
    """Where the code of a specification is looked for from here; nothing is imported.

    A command has its working folder, and a path for each word: a file that the command writes later
    changes none of them.
    """
    if spec.startswith(f"{_PROGRAM} "):
        return [os.path.realpath("."), *_places_of_command(shlex.split(spec)[1:])]
    module = spec.rpartition(":")[0]
    if module.endswith(".py"):
        return [str(Path(module).expanduser().resolve())]
    return _places_of_module(module, [os.getcwd(), *sys.path])


def _places_of_command(words: list[str]) -> Iterator[str]:
    """The path of each word that may be a file, and of modules behind `-m` that the working folder
    or PYTHONPATH has.
    """
    folders = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    for word, following in pairwise([*words, ""]):
        if not word.startswith("-"):
            yield _place_of_word(word)
        elif word.startswith("-m"):
            yield from _places_of_module(word[2:] or following, folders)


def _place_of_word(word: str) -> str:
    """The path of a word; its folder alone is followed through links, as a program may
    point its own links elsewhere.
    """
    folder, name = os.path.split(word)
    with suppress(ValueError):  # no path has a NUL
        folder = os.path.realpath(folder)
    return os.path.join(folder, name)


def _places_of_module(module: str, folders: list[str]) -> list[str]:
    """The file of a module, or of the innermost package around it that is there."""
    places: list[str] = []
    for part in module.split("."):
        location = None
        with suppress(ImportError, ValueError):
            location = PathFinder.find_spec(part, folders)
        if location is None:
            break
        folders = [*(location.submodule_search_locations or ())]
        places = [location.origin] if location.origin else folders[:1]
    return [str(Path(place).resolve()) for place in places]


def _sign(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _read_key(make: bool = False) -> bytes:
    """This user's key, made if there is none; CurvescopeError if others can read or replace it,
    else OSError.
    """
    path = data_folder() / "key"
    if make and not path.exists():
        _make_key(path)
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        about = os.fstat(file)
        around = path.parent.stat()
        key = os.read(file, _KEY_BYTES + 1)
    finally:
        os.close(file)
    owned = not hasattr(os, "geteuid") or about.st_uid == os.geteuid()
    private = sys.platform == "win32" or not (
        about.st_mode & _OTHERS or around.st_mode & _WORLD_WRITABLE
    )
    if not (stat.S_ISREG(about.st_mode) and owned and private and len(key) == _KEY_BYTES):
        raise CurvescopeError(
            f"{path} is no key that only you can read: others could name code that runs as you. "
            "Remove it; the next measurement makes another, and earlier recordings of your own "
            "steps then need --run-its-code."
        )
    return key


def _make_key(path: Path) -> None:
    """Make the key under a name of its own: another process may make it at the same time, and the
    first one counts.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f"key.{os.getpid()}.{secrets.token_hex(4)}")
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        made.unlink()
