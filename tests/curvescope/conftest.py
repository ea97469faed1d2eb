"""The command line in this process, for commands that take longer to start than to do."""

from __future__ import annotations

import subprocess

import pytest

from curvescope.cli import main


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs a command in a folder; gives its exit code and what it printed, as of a process of its own."""

    def run(*arguments, cwd):
        monkeypatch.chdir(cwd)
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return run
