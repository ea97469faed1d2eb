"""What torch.compile did in this process, by torch's own counters."""

from __future__ import annotations

import sys
from typing import NamedTuple

# How torch's counter of what it could not compile begins where a function has too many versions
# (2.6 to 2.14).
_TOO_MANY = "Dynamo recompile limit exceeded"


class Compilations(NamedTuple):
    """Counts since the process began."""

    compiled: int  # number of functions that were compiled, each for some shapes
    # number of functions that run uncompiled, because they have as many versions as torch allows
    refused: int
    limit: int  # versions of one function that torch allows


def read_compilations() -> Compilations | None:
    """The counts; None where nothing was compiled, or this version of torch does not count it."""
    utils, config = (sys.modules.get(f"torch._dynamo.{name}") for name in ("utils", "config"))
    counters = getattr(utils, "counters", None)
    limit = getattr(config, "recompile_limit", None)
    if counters is None or limit is None:
        return None
    compiled = int(counters["frames"]["ok"])
    refused = sum(
        int(count)
        for reason, count in counters["unimplemented"].items()
        if str(reason).startswith(_TOO_MANY)
    )
    return Compilations(compiled, refused, int(limit)) if compiled else None


def compiled_functions() -> int:
    """Number of functions that torch.compile has compiled in this process, by whatever backend."""
    counts = read_compilations()
    return 0 if counts is None else counts.compiled
