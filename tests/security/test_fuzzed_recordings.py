"""No damage to a recording ends in anything but an answer or a refusal, within limits of memory and
time.
"""

import os

import pytest

from .fuzzed_recordings import read_apart

# Inputs that found something: kernel times that no sum of floats holds, and a name of 70,000
# characters in a message.
FOUND = (209, 236, 39)
# Each takes a second or two; `CURVESCOPE_FUZZED=2000` in the environment runs as many.
QUICK, SLOW = range(2), range(2, int(os.environ.get("CURVESCOPE_FUZZED", "42")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((*FOUND, *QUICK), id="few"),
        pytest.param(SLOW, id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_damaged_recordings_are_read_or_refused(numbers):
    """Whoever changes what reads recordings feeds it thousands by `fuzzed_recordings`."""
    wrong = {
        number: failed for number in numbers if (failed := read_apart(number).wrong) is not None
    }
    assert not wrong, next(iter(wrong.items()))
