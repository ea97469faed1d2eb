"""Which steps of an inference server make the curve."""

from __future__ import annotations

import pandas as pd

from curvescope.analysis.served_steps import select_served


def test_a_trace_of_a_single_prefill_step_has_its_steps_on_the_axis_of_tokens():
    """No mode has three steps of one size: the mode that has steps counts, not the first of the modes."""
    steps = pd.DataFrame({"mode": ["prefill"], "batch": [1], "tokens": [888], "context_tokens": [None]})
    found = select_served(steps)
    assert found.axis.name == "tokens"
    assert found.steps["batch"].tolist() == [888]
