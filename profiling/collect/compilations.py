"""What torch.compile did in this process, by torch's own counters."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

# How torch's counter of what it could not compile begins where a function has too many versions
# (2.6 to 2.14).
_TOO_MANY = "Dynamo recompile limit exceeded"
_LONGEST_REASON = 80  # characters of a reason; its first line names no code of the user

# What a step runs of torch.compile's code, in the column `compiled_code` of the table `steps`.
OWN = "own"  # compiled when this size ran first
SHARED = "shared"  # compiled when another size ran, so for any size: its shapes are dynamic
NONE = "none"  # nothing: a function had as many versions as torch allows


class Compilations(NamedTuple):
    """Counts since the process began."""

    compiled: int  # number of functions that were compiled, each for some shapes
    # number of functions that run uncompiled, because they have as many versions as torch allows
    refused: int
    limit: int  # versions of one function that torch allows
    breaks: Mapping[str, int] = {}  # places at which torch divided a graph, by its reason


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
    breaks: dict[str, int] = {}
    for text, count in counters["graph_break"].items():
        reason = str(text).strip().partition("\n")[0][:_LONGEST_REASON]
        if not reason.startswith(_TOO_MANY):
            breaks[reason] = breaks.get(reason, 0) + int(count)
    return Compilations(compiled, refused, int(limit), breaks) if compiled else None


def code_of(before: Compilations | None, after: Compilations | None) -> str | None:
    """The code that a size runs: `OWN`, `SHARED` or `NONE`; None where nothing is compiled.

    Args:
        before: counts before the size ran first.
        after: counts after that.
    """
    if after is None:
        return None
    if after.compiled > (0 if before is None else before.compiled):
        return OWN
    return NONE if after.refused else SHARED


def compiled_functions() -> int:
    """Number of functions that torch.compile has compiled in this process, by whatever backend."""
    counts = read_compilations()
    return 0 if counts is None else counts.compiled
