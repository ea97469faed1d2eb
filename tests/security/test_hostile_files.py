"""Every hostile profile is read or refused, within limits of memory and time; see
`hostile_files` and `shared_references`.
"""

import sys
from pathlib import Path

import pytest

from benchmarks.evidence import read_tables

from ..shared import ROOT
from .hostile_files import LARGE_FILES, SMALL_FILES
from .read_hostile_files import FILES, READ_BY, read
from .shared_references import SHARED_FILES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Those that take seconds each; the quick test only imports the others.
LONG = ("XSpace: 5,000,000 empty events", "gzip: ncu, 1,000,000 equal rows", *LARGE_FILES)
SHORT = [name for name in FILES if name not in LONG]
# One in eighty, in the order of the page; CI reads all.
QUICK = SHORT[::80]
# Attacks that are no single profile.
OTHERS = Path(__file__).with_name("other_attacks.toml")


def judged(name, folder, commands):
    assert not [
        (words, spent.wrong) for words, spent in read(name, folder, commands) if spent.wrong
    ]


@pytest.mark.in_slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SHORT],
)
def test_a_hostile_file_is_read_or_refused_within_limits(name, tmp_path):
    judged(name, tmp_path, ())


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FILES)
def test_all_commands_read_what_a_hostile_file_left(name, tmp_path):
    judged(name, tmp_path, READ_BY)


def test_no_file_takes_the_name_of_another():
    assert len(FILES) == len(SMALL_FILES) + len(SHARED_FILES) + len(LARGE_FILES)


def test_the_kept_table_has_a_row_for_every_file():
    table = read_tables()["hostile_files"]
    kept = zip(table.column("format"), table.column("what the file does"), strict=True)
    assert not set(FILES) - {f"{kind}: {what}" for kind, what in kept}


def test_the_test_of_each_attack_is_there():
    listed = tomllib.loads(OTHERS.read_text())
    tests = [attack["test"] for attacks in listed.values() for attack in attacks]
    assert len(tests) > 15
    for path, _, name in (test.partition("::") for test in tests):
        assert f"def {name}(" in (ROOT / path).read_text(), name
