"""Defaults of a project, in `[tool.curvescope]` of its pyproject.toml."""

import pytest

from curvescope.cli import main
from curvescope.commands import compare, diagnose
from curvescope.project import KEYS

from ..tables import ask_each

TABLE = """
[tool.curvescope]
step = "step.py:make_step"
batch = "8..64"
time-limit = 30
fail-over = "4%"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(TABLE)
    return tmp_path / "pyproject.toml"


@pytest.fixture
def asked(monkeypatch):
    """The arguments of each measurement, none of which runs."""
    arguments = []
    monkeypatch.setattr(diagnose, "_diagnose", arguments.append)
    monkeypatch.setattr(compare, "_compare", lambda args: arguments.append(args) or 0)
    return arguments


@ask_each(
    ("line", "expected", "first"),
    [
        (
            "",
            ("step.py:make_step", "8..64", 30.0),
            "From pyproject.toml: step step.py:make_step, batch 8..64, time-limit 30.",
        ),
        (
            "--step other.py:f --batch 1,2 --time-limit 9",
            ("other.py:f", "1,2", 9.0),
            None,
        ),
        ("alexnet", (None, "8..64", 30.0), "From pyproject.toml: batch 8..64, time-limit 30."),
        ("--quick", ("step.py:make_step", "8..64", None), None),
        (
            "-- python train.py {batch}",
            (None, "8..64", 30.0),
            "From pyproject.toml: batch 8..64, time-limit 30.",
        ),
    ],
)
def test_diagnose_takes_them_where_the_command_line_says_nothing(
    line, expected, first, project, asked, capsys
):
    assert main(["diagnose", *line.split()]) == 0
    args = asked.pop()
    assert (args.step, args.batch, args.time_limit) == expected
    printed = capsys.readouterr().out.splitlines()
    if first is not None:
        assert printed[0] == first


def test_what_the_command_line_replaces_is_not_said_to_come_from_there(project, asked, capsys):
    assert main(["diagnose", "--step", "a.py:f", "--batch", "1,2", "--time-limit", "9"]) == 0
    assert capsys.readouterr().out == ""


def test_a_document_is_alone_on_standard_output(project, asked, capsys):
    assert main(["diagnose", "--json"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err[:20]) == ("", "From pyproject.toml:")


@ask_each(
    ("line", "expected"),
    [
        ("--measure a=. b=.", ("step.py:make_step", "8..64", 30.0, "4%")),
        ("--measure a=. b=. --fail-over 1%", ("step.py:make_step", "8..64", 30.0, "1%")),
        ("runs/a runs/b", (None, None, None, None)),
    ],
)
def test_compare_takes_them_to_measure(line, expected, project, asked):
    assert main(["compare", *line.split()]) == 0
    args = asked.pop()
    assert (args.step, args.batch, args.time_limit, args.fail_over) == expected


def test_versions_that_are_programs_bring_their_own_step(project, asked):
    assert main(["compare", "--measure", "a=sh a.sh {batch}", "b=sh b.sh {batch}"]) == 0
    args = asked.pop()
    assert (args.step, args.batch) == (None, "8..64")


@ask_each(
    ("table", "words"),
    [
        ("[tool.curvescope]\nsteps = 'x'\n", f"no key steps. Its keys are {', '.join(KEYS)}."),
        ("[tool.curvescope]\ntime-limit = '9s'\n", "write time-limit as a number"),
        ("[tool.curvescope]\nbatch = []\n", "write batch as a text, a number or a list"),
        ("[tool.curvescope]\nstep = true\n", "write step as a text, a number or a list"),
        ("[tool]\ncurvescope = 1\n", "write [tool.curvescope] as a table"),
        ("[tool.curvescope\n", "is no TOML"),
    ],
)
def test_what_has_no_meaning_is_an_error(table, words, project, asked, refusal_of):
    project.write_text(table)
    assert words in refusal_of("diagnose")
    assert not asked


def test_a_project_without_the_table_changes_nothing(project, asked, capsys):
    project.write_text("[project]\nname = 'x'\n")
    assert main(["diagnose", "alexnet"]) == 0
    assert (asked.pop().batch, capsys.readouterr().out) == (None, "")
