"""Masks secrets in command lines before they are recorded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

HIDDEN = "***"
_SECRET = re.compile(
    r"password|passwd|passphrase|secret|(?<![a-z])token(?![a-z])|credential|(api|access)[-_]?key", re.IGNORECASE
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_LEAST_LENGTH = 6  # characters: shorter environment values occur in words by chance


def without_secrets(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Replace secrets in a command line by `***`.

    Masked are values of options and settings named like a secret (`--token X`, `API_KEY=X`), values of environment
    variables with such names wherever they occur, and users in URLs. Other secrets are not recognised.
    """
    values = [value for name, value in environment.items() if _SECRET.search(name) and len(value) >= _LEAST_LENGTH]
    return list(_masked(command, sorted(values, key=len, reverse=True)))


def _masked(command: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    follows = False
    for argument in command:
        if follows and not argument.startswith("-"):
            follows = False
            yield HIDDEN
            continue
        name, equals, _ = argument.partition("=")
        secret = _SECRET.search(name) is not None
        follows = secret and not equals and argument.startswith("-")
        for value in values:
            argument = argument.replace(value, HIDDEN)
        yield f"{name}={HIDDEN}" if secret and equals else _USER_IN_URL.sub(HIDDEN, argument)
