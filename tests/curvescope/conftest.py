"""The command line in this process: most commands take longer to start than to do."""

from __future__ import annotations

import contextlib
import io
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


def run_command(*arguments, cwd):
    """Run a command in a folder; return its exit code and what it printed, as of a process of its own."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
    except SystemExit as ended:
        code = ended.code
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def command():
    """`run_command`, for tests and for the fixtures of modules."""
    return run_command
