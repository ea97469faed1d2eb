"""The causes of an anomaly's terms: competing causes, each with its evidence in the recording.

Every cause is a `Cause`, beside its kin, and listed in `catalogue`: to add one, write its `weigh`
and its `Intervention`, and put it into the list, at its place among rivals.
"""

from .attribution import Judged, attribute, judge
from .case import Anomaly, Case, Cause, Intervention, WeighedTerm
from .catalogue import (
    CAUSES,
    LAST_OF_CONFIRMED,
    NOT_SIGNIFICANT,
    UNEXPLAINED,
    factors,
    interventions,
    interventions_with,
    sum_claims,
    weigh_term,
)
from .evidence import Claim, Evidence, Strength
from .kernel_choice import fillings
from .padding import find_filled_blocks
from .totals import CauseTotal, TermCause

__all__ = [
    "CAUSES",
    "LAST_OF_CONFIRMED",
    "NOT_SIGNIFICANT",
    "UNEXPLAINED",
    "Anomaly",
    "Case",
    "Cause",
    "CauseTotal",
    "Claim",
    "Evidence",
    "Intervention",
    "Judged",
    "Strength",
    "TermCause",
    "WeighedTerm",
    "attribute",
    "factors",
    "fillings",
    "find_filled_blocks",
    "interventions",
    "interventions_with",
    "judge",
    "sum_claims",
    "weigh_term",
]  # fmt: skip
