"""Names that phases of a step are commonly given."""

from __future__ import annotations

import re

PHASES = {
    "forward": re.compile(r"(?:fwd|forward)(?:[ _-]?(?:pass|prop|step))?(?:\(\))?", re.IGNORECASE),
    "backward": re.compile(
        r"(?:loss[ ._])?(?:bwd|backward|backprop)(?:[ _-]?(?:pass|prop|step))?(?:\(\))?",
        re.IGNORECASE,
    ),
    "optimizer": re.compile(
        r"(?:opt|optim|optimizer|optimiser)(?:[ "
        r"._]?(?:step|update))?(?:\(\))?|Optimizer\.step#.*|weight[ _]update",
        re.IGNORECASE,
    ),
}


def phase_named(name: str) -> str | None:
    """The phase that a name is commonly given to; None for other names."""
    return next((phase for phase, form in PHASES.items() if form.fullmatch(name)), None)
