"""Second stage of a diagnosis: the cost curve, and the terms that its times split into."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..causes.context import Recorded
from ..decompose.curve import Curve, cost_curve
from ..decompose.slow_sizes import set_bar
from ..decompose.terms import Terms, estimate_terms


class Estimates(NamedTuple):
    """A recording's evidence on T over batch sizes."""

    curve: Curve
    terms: Terms | None  # None if no step was profiled


def estimate(recorded: Recorded) -> Estimates:
    """Estimate T and its terms from the recorded steps.

    If every step was profiled, e.g. in imported profiles, the curve is theirs, and the overhead is
    unknown.
    """
    steps, kernel_times, statistic = recorded.steps, recorded.kernel_times, recorded.statistic
    terms = None
    if not kernel_times.empty:
        terms = estimate_terms(kernel_times, steps, statistic=statistic, sampled=recorded.sampled)
    if terms is not None and steps["profiled"].astype(bool).all():
        curve = terms.curve(steps)
    else:
        curve = cost_curve(steps, statistic)
    # A size that a sweep found may have got no step before its time was up.
    jumps = tuple(place for place in recorded.jumps if {*place} <= {*curve.conditions})
    placed = recorded.in_one_process and recorded.hardware.kind == "cpu"
    barred = curve.with_bar(set_bar(in_one_process=placed))
    return Estimates(replace(barred, unit=recorded.unit, jumps=jumps), terms)
