"""The causes of an anomaly's terms: competing causes, each with its evidence in the recording.

Every cause is a `Cause`, beside its kin, and listed in `catalogue`: to add one, write its `weigh`
and its `Intervention`, and put it into the list, at its place among rivals.
"""

from .attribution import attribute, claims_of_steps, judge
from .case import Case, Cause, Intervention
from .catalogue import (
    CAUSES,
    LAST_OF_CONFIRMED,
    NOT_SIGNIFICANT,
    UNEXPLAINED,
    claimed,
    factors,
    interventions,
    interventions_with,
    weigh_causes,
)
from .evidence import Claim, Evidence, Strength
from .kernel_choice import fillings
from .padding import filled_blocks
from .totals import CauseTotal, TermCause

__all__ = ["CAUSES", "LAST_OF_CONFIRMED", "NOT_SIGNIFICANT", "UNEXPLAINED",
           "Case", "Cause", "CauseTotal", "Claim", "Evidence", "Intervention", "Strength",
           "TermCause", "attribute", "claimed", "claims_of_steps", "factors", "filled_blocks",
           "fillings", "interventions", "interventions_with", "judge", "weigh_causes"]  # fmt: skip
