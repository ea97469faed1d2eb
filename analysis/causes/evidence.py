"""What speaks for a cause: facts of a recording, and the claim on a term that they support."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...base.words import Word


@dataclass(frozen=True)
class Evidence:
    """One fact from the recording."""

    what: str  # description
    before: float | str | None  # value at the smaller batch size; None if unknown
    after: float | str | None  # value at the larger batch size; None if unknown
    unit: str  # unit of both
    table: str  # table and column that it comes from


def cite(what: str, sides: Iterable[float | str | None], unit: str, table: str) -> Evidence:
    """Evidence from two values: at the smaller and at the larger batch size."""
    before, after = sides
    return Evidence(what, before, after, unit, table)


class Strength(Word):
    """How strongly the evidence of a claim speaks for its cause, the strongest first."""

    FACT = "fact"  # the recording counts the cause, or times it
    SIGN = "sign"  # its model or its pattern fits what was recorded
    HINT = "hint"  # the time fits it, as it may fit others


@dataclass(frozen=True)
class Claim:
    """The claim of one cause on one term."""

    cause: str  # name of the cause
    # explained amount of the term, in the functional's unit, with the sign of the term
    amount: float
    strength: Strength  # of the evidence: a fact, a sign or a hint
    evidence: tuple[Evidence, ...]  # facts that support the claim; never empty
    refuted_by: str  # observation that would refute the claim
    # what the evidence adds to the cause's name, e.g. "from sgemm to winograd"; None if nothing
    detail: str | None = None
