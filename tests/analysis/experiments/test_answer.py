"""Which cause an answer names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from curvescope.analysis.causes import NOT_SIGNIFICANT, Attribution, CauseTotal
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.experiments.answer import _leading
from curvescope.analysis.experiments.outcome import Verdict


@pytest.mark.parametrize(
    ("amounts", "leading"),
    [
        ({"page faults": 3.0, "idle threads": 7.0}, "idle threads"),
        ({"page faults confirmed": 2.0, "idle threads": 8.0}, "page faults"),
        ({"page faults confirmed": 0.9, "idle threads": 9.1}, "idle threads"),
        ({"page faults": -3.0, "idle threads": 1.5, NOT_SIGNIFICANT: 11.5}, "idle threads"),
        # most of it is not significant: a tenth of it is no answer
        ({"page faults": 0.9, NOT_SIGNIFICANT: 9.1}, None),
    ],
)
def test_a_confirmed_cause_leads_then_the_largest_if_it_makes_a_tenth(amounts, leading):
    """Of an excess of 10 ms."""
    totals = tuple(
        CauseTotal(name.removesuffix(" confirmed"), amount, (), verdict=verdict)
        for name, amount in amounts.items()
        for verdict in [Verdict.CONFIRMED if name.endswith("confirmed") else Verdict.UNTESTED]
    )
    value = Estimate(10.0, 9.0, 11.0, 0.0)
    found = _leading(SimpleNamespace(value=value, attribution=Attribution(excess(4, 8), 10.0, False, totals)))
    assert (found and found.cause) == leading
