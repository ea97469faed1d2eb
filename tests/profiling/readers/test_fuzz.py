"""No damage to a profile ends in anything but a refusal or a reading whose columns hold."""

from __future__ import annotations

import pytest

from curvescope.profiling.readers import READERS

from .fuzzing import feed


@pytest.mark.parametrize("reader", READERS)
def test_damaged_profiles_are_read_or_refused(reader, tmp_path):
    read = sum(feed(reader, number, tmp_path / "profile") for number in range(40))
    assert 0 < read < 40  # the damage leaves some readable, and breaks some


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_profiles_damaged_in_further_ways_are_read_or_refused(reader, tmp_path):
    """A sample: whoever changes a reader feeds it a hundred thousand by `fuzzing`."""
    assert 0 < sum(feed(reader, number, tmp_path / "profile") for number in range(40, 110)) < 70
