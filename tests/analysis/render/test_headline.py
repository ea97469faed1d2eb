"""Lines about a recording: whether its clocks were locked."""

from __future__ import annotations

import pytest

from curvescope.analysis.render.headline import clock_line


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"device": {"kind": "cuda"}, "locked_sm_clock_hz": 1_500_000_000}, "SM clock locked at 1500 MHz"),
        ({"device": {"kind": "cuda"}, "locked_sm_clock_hz": None}, "clocks not locked"),
        ({"device": {"kind": "cuda"}}, None),  # an import: unknown
        ({"device": {"kind": "cpu"}, "locked_sm_clock_hz": None}, None),
    ],
)
def test_a_recording_of_a_gpu_says_whether_its_clock_was_locked(meta, said):
    assert clock_line(meta) == said
