"""What torch.compile did in this process, by torch's own counters."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# How torch's counter of what it could not compile begins where a function has too many versions
# (2.6 to 2.14).
_TOO_MANY = "Dynamo recompile limit exceeded"
_LONGEST_REASON = 80  # characters of a reason; its first line names no code of the user
# How torch names the code behind a break: the function, and the line of the break.
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
# Every optimizer of torch divides the graph around its step, in one of these functions.
_OF_OPTIMIZERS = ("wrapper", "_use_grad")
_ON_PURPOSE = "Call to `torch._dynamo.graph_break()`"

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
    # how often torch divided a graph, by its reason: once at each place for each shape that is
    # compiled, beside what its own optimizers do
    breaks: Mapping[str, int] = {}
    places: frozenset[str] = frozenset()  # at which it did so

    def breaks_since(self, before: Compilations | None) -> tuple[Mapping[str, int], int]:
        """How often graphs were divided since some counts, by reason, and at how many places."""
        if before is None:
            return self.breaks, max(len(self.places), len(self.breaks))
        counts = {reason: n - before.breaks.get(reason, 0) for reason, n in self.breaks.items()}
        breaks = {reason: n for reason, n in counts.items() if n > 0}
        return breaks, max(len(self.places - before.places), len(breaks))


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
    resumed = {str(name): int(count) for name, count in counters["resumes"].items()}
    of_torch = set(_of_optimizers(resumed))
    own = sum(resumed[name] for name in of_torch)
    breaks[_ON_PURPOSE] = breaks.get(_ON_PURPOSE, 0) - own
    breaks = {reason: count for reason, count in breaks.items() if count > 0}
    places = frozenset(resumed) - of_torch if breaks else frozenset()
    return Compilations(compiled, refused, int(limit), breaks, places) if compiled else None


def _of_optimizers(resumed: Mapping[str, int]) -> Iterator[str]:
    """The names of code behind a break that a torch optimizer makes on purpose."""
    file = getattr(sys.modules.get("torch.optim.optimizer"), "__file__", None)
    for name in resumed:
        match = _RESUMED.fullmatch(name)
        if file is None or match is None or match[1] not in _OF_OPTIMIZERS:
            continue
        line = linecache.getline(file, int(match[2]))
        if "func(" in line or "graph_break()" in line:
            yield name


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


def count_compiled_functions() -> int:
    """Number of functions that torch.compile has compiled in this process, by whatever backend."""
    counts = read_compilations()
    return 0 if counts is None else counts.compiled
