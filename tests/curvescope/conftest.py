"""The command line in this process: most commands take longer to start than to do."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from curvescope.cli import main


@pytest.fixture(autouse=True, scope="package")
def _eighty_columns():
    """The width of a small terminal; without it, tables of captured output are as wide as their cells."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "80")
        yield


def run_command(*arguments, cwd, code=None):
    """Run a command in a folder; return its exit code, which is `code`, and what it printed, as of an own process."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = main([str(argument) for argument in arguments])
    except SystemExit as exited:
        ended = exited.code
    finally:
        os.chdir(before)
    assert code is None or ended == code, err.getvalue()
    return subprocess.CompletedProcess(arguments, ended, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def command():
    """`run_command`, for tests and for the fixtures of modules."""
    return run_command


@pytest.fixture
def text_of(capsys):
    """Run a command in the current folder; return what it prints."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def document_of(text_of):
    """Run a command with --json; return its document."""
    return lambda *words, code=0: json.loads(text_of(*words, "--json", code=code))


@pytest.fixture
def refusal_of(capsys):
    """Run a command that refuses; return its words, in one line."""

    def run(*words):
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        return " ".join(capsys.readouterr().err.split())

    return run
