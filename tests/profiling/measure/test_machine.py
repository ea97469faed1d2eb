"""Facts of two machines that differ, in words."""

from __future__ import annotations

from curvescope.profiling.measure.machine import different_facts


def test_facts_that_differ_are_said_with_both_values_and_a_missing_one_is_none():
    recorded = {"allow_tf32": False, "threads": 2, "cudnn": "9.1"}
    here = {"allow_tf32": True, "threads": 2}
    assert different_facts(recorded, here) == {
        "allow_tf32": "allow_tf32: False there, True here",
        "cudnn": "cudnn: 9.1 there, none here",
    }
