"""Commands of programs in recordings and plans: without the values that may be secrets.

A recording is shared; what its command has beyond `without_secrets` stays in a file of this user
alone, whose name the recording has. So `confirm` and `--resume` run the whole command for this
user, and nobody else learns it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ...base.errors import CurvescopeError
from ...base.harmless import HIDDEN, mask_path
from ...base.masking import without_secrets
from ...base.user_folders import data_folder

VALUES = "command_values"  # entry of recording.json and of plans: the name of that file
_COMMAND, _FOLDER = "program", "workdir"  # entries that are kept so, at any depth
_NAME = re.compile(r"[0-9a-f]{32}")
_MOST_BYTES = 16 << 20  # a system's longest command line has 2 MiB

# What this process hid, for where it cannot keep a file: each value, and as it is recorded.
_kept_here: dict[str, list[Any]] = {}


def hide_commands(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description as it is recorded: what may be a secret in its commands is kept elsewhere."""
    pairs: list[Any] = []

    def hide(value: Any) -> Any:
        whole = value if isinstance(value, str) else list(value)
        shown = mask_path(value) if isinstance(value, str) else without_secrets(value)
        pairs.append([whole, shown])
        return shown

    hidden: dict[str, Any] = _change(description, hide)
    if all(whole == shown for whole, shown in pairs):
        return hidden
    return {**hidden, VALUES: _keep(pairs)}


def restore_commands(where: object, description: Mapping[str, Any], name: object) -> dict[str, Any]:
    """A recorded description with its whole commands; `name` is the file with the values.

    Raises:
        CurvescopeError: values are hidden, and this user did not measure it on this machine.
    """
    pairs = iter(_read(name))

    def restore(value: Any) -> Any:
        recorded = value if isinstance(value, str) else list(value)
        whole, shown = next(pairs, (None, None))
        if whole is not None and recorded == shown:
            return whole
        if HIDDEN in str(recorded):
            raise CurvescopeError(
                f"{where} has {HIDDEN} for values of its command; only who measured it has these, "
                f"in {data_folder()}. Give the command again: curvescope diagnose … -- COMMAND."
            )
        return value

    restored: dict[str, Any] = _change(description, restore)
    return restored


def _change(value: Any, change: Callable[[Any], Any], name: str = "") -> Any:
    """A description whose commands, and the folders in which they ran, are changed."""
    if isinstance(value, Mapping):
        return {key: _change(item, change, str(key)) for key, item in value.items()}
    is_command = name == _COMMAND and isinstance(value, (list, tuple))
    if is_command or (name == _FOLDER and isinstance(value, str)):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_change(item, change, name) for item in value]
    return value


def _keep(pairs: list[Any]) -> str:
    """Keep values for this user alone; returns the name of their file."""
    for name, kept in _kept_here.items():
        if kept == pairs:
            return name
    name = secrets.token_hex(16)
    _kept_here[name] = pairs
    path = data_folder() / "commands" / f"{name}.json"
    with suppress(OSError):  # without a file, this process alone can run it again
        data_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w") as opened:
            json.dump(pairs, opened)
    return name


def _read(name: object) -> list[Any]:
    """The values that a file of this user has; none where there is no such file."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return []
    if name in _kept_here:
        return _kept_here[name]
    path = data_folder() / "commands" / f"{name}.json"
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(file, "rb") as opened:
            return msgspec.json.decode(opened.read(_MOST_BYTES), type=list[tuple[Any, Any]])
    except (OSError, msgspec.MsgspecError):
        return []
