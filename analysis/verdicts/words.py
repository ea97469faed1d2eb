"""Words of verdicts, as documents have them."""

from __future__ import annotations

from ...base.words import Word


class Verdict(Word):
    """Verdicts on a cause, or on a factor; in the order of lists."""

    CONFIRMED = "confirmed"
    FROM_SHAPES = "from shapes"  # exact: no experiment can tell more
    UNDECIDED = "undecided"
    REFUTED = "refuted"
    UNTESTED = "untested"  # no experiment was made; a reason says why

    @property
    def rank(self) -> int:
        """Position in lists."""
        return list(Verdict).index(self)


class Reproduction(Word):
    """Results of running a term in isolation."""

    REPRODUCES = "reproduces"
    PARTLY = "partly"
    NOT = "does not"
    UNDECIDED = "undecided"
