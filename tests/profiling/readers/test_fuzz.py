"""No damage to a profile ends in anything but a refusal or a reading whose columns hold."""

import pytest

from curvescope.profiling.readers import READERS

from .fuzzing import feed


@pytest.mark.parametrize(
    "numbers",
    [
        range(40),
        pytest.param(range(40, 110), marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
@pytest.mark.parametrize("reader", READERS)
def test_damaged_profiles_are_read_or_refused(reader, numbers, tmp_path):
    """A sample: whoever changes a reader feeds it a hundred thousand by `fuzzing`."""
    read = sum(feed(reader, number, tmp_path / "profile") for number in numbers)
    assert 0 < read < len(numbers)  # the damage leaves some readable, and breaks some
