"""Every hostile profile is read or refused, within limits of memory and time; see
`hostile_files`.
"""

import pytest

from .hostile_files import LARGE_FILES, SMALL_FILES
from .read_hostile_files import READ_BY, read

# Those that take seconds each; the quick test only imports the others.
LONG = ("XSpace: 5,000,000 empty events", "gzip: ncu, 1,000,000 equal rows", *LARGE_FILES)


def judged(name, folder, commands):
    assert not [
        (words, spent.wrong) for words, spent in read(name, folder, commands) if spent.wrong
    ]


@pytest.mark.in_slow
@pytest.mark.parametrize("name", [name for name in SMALL_FILES if name not in LONG])
def test_a_hostile_file_is_read_or_refused_within_limits(name, tmp_path):
    judged(name, tmp_path, ())


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*SMALL_FILES, *LARGE_FILES])
def test_all_commands_read_what_a_hostile_file_left(name, tmp_path):
    judged(name, tmp_path, READ_BY)


def test_there_are_ninety():
    assert len(SMALL_FILES) + len(LARGE_FILES) >= 90
