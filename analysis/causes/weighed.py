"""What the causes claim of each term of an anomaly, by the evidence of the recording."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .case import Case, Claim
from .catalogue import weighing


@dataclass(frozen=True)
class Weighed:
    """One term with what the causes claim of it, by cause, which experiments do not change."""

    label: str
    case: Case
    claims: Mapping[str, Claim]


def weigh_causes(label: str, case: Case) -> Weighed:
    """Ask every cause what it claims of a term."""
    claims = filter(None, (weigh(case) for weigh in weighing()))
    return Weighed(label, case, {claim.cause: claim for claim in claims})


def claimed(weighed: Iterable[Weighed], cause: str, value: float) -> float:
    """What a cause claims of all terms in the direction of an anomaly, up to its value, whatever other causes claim."""
    amounts = [
        math.copysign(min(abs(term.claims[cause].amount), abs(share)), share)
        for term in weighed
        if cause in term.claims and term.claims[cause].amount * (share := term.case.share.value.value) > 0
    ]
    amount = math.fsum(amounts)
    return math.copysign(min(abs(amount), abs(value)), value) if amount * value > 0 else 0.0
