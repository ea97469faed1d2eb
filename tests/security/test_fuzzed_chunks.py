"""No damage to chunk files ends in anything but an answer or a refusal, within limits of memory and
time.
"""

import pytest

from .fuzzed_chunks import read_apart

QUICK, SLOW = range(8), range(8, 60)


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(QUICK, id="few"),
        pytest.param(SLOW, id="all", marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_damaged_chunk_files_are_read_or_refused(numbers):
    """Whoever changes what reads chunk files feeds it hundreds by `fuzzed_chunks`."""
    wrong = {
        number: failed for number in numbers if (failed := read_apart(number).wrong) is not None
    }
    assert not wrong, next(iter(wrong.items()))
