"""No damage to a profile ends in anything but a refusal or a reading whose columns hold."""

from __future__ import annotations

import pytest

from curvescope.profiling.readers import READERS

from .fuzzing import feed


@pytest.mark.parametrize("reader", READERS)
def test_damaged_profiles_are_read_or_refused(reader, tmp_path):
    read = sum(feed(reader, number, tmp_path / "profile") for number in range(100))
    assert 5 < read < 100  # the damage leaves some readable, and breaks some
