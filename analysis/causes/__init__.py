"""The causes of an anomaly's terms: competing causes, each scored by evidence in the recording.

Every cause is a module with `CAUSE`, `weigh(case) -> Claim | None` and `INTERVENTION`, the experiment that tests it. A
module may have `possible(case, amount) -> bool`: where that is False, no experiment confirms the cause for that amount.
"""

from .attribution import attribute, claims_of_steps, judge
from .case import Case, Claim, Evidence, Intervention
from .catalogue import (
    CAUSES,
    LAST_OF_CONFIRMED,
    NOT_SIGNIFICANT,
    UNEXPLAINED,
    Weighed,
    claimed,
    factors,
    interventions,
    interventions_with,
    weigh_causes,
)
from .quantisation import fillings
from .totals import Attribution, CauseTotal, TermCause

__all__ = ["CAUSES", "LAST_OF_CONFIRMED", "NOT_SIGNIFICANT", "UNEXPLAINED", "Attribution", "Case", "CauseTotal",
           "Claim", "Evidence", "Intervention", "TermCause", "Weighed", "attribute", "claimed", "claims_of_steps",
           "factors", "fillings", "interventions", "interventions_with", "judge",
           "weigh_causes"]  # fmt: skip
