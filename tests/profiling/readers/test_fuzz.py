"""No damage to a profile ends in anything but a refusal or a reading whose columns hold."""

import pytest

from curvescope.profiling.readers import READERS

from ...tables import grade
from .fuzzing import feed
from .sharing import FORMATS, feed_apart


@pytest.mark.parametrize(
    "numbers",
    [
        range(10),
        pytest.param(range(10, 110), marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
@pytest.mark.parametrize("reader", grade([*READERS], quick=[*READERS][::2], in_ci=READERS))
def test_damaged_profiles_are_read_or_refused(reader, numbers, tmp_path):
    """A sample: whoever changes a reader feeds it a hundred thousand by `fuzzing`."""
    read = sum(feed(reader, number, tmp_path / "profile") for number in numbers)
    assert read < len(numbers)  # the damage breaks some, and of the first ones leaves some readable
    assert read > 0 or numbers.start > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        range(20),
        pytest.param(range(20, 100), marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
@pytest.mark.parametrize("name", FORMATS)
def test_profiles_whose_values_share_each_other_are_read_or_refused(name, numbers):
    """Twenty in one process take no more than one profile may."""
    for first in numbers[::20]:
        spent = feed_apart(name, range(first, first + 20))
        assert spent.wrong is None
        assert int(spent.answer) or first > 0  # the first damage leaves some readable
